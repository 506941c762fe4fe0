"""Calls of several lengths that share a plan: outputs and gradients are those of unpadded calls, or one line refuses.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.errors import InputError
from gapless.torch import Padding, planned

WORDS = 11


class Reader(nn.Module):
    """One layer of attention over words, with the loss inside; `heeds`: whether it heeds the mask."""

    def __init__(self, heeds: bool = True, is_causal: bool = False) -> None:
        super().__init__()
        self.heeds, self.is_causal = heeds, is_causal
        self.words, self.out, self.drop = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS), nn.Dropout(0.0)

    def forward(self, input_ids: torch.Tensor, attention_mask: Any = None, labels: Any = None) -> dict[str, Any]:
        hidden = self.words(input_ids)
        scores = hidden @ hidden.transpose(1, 2)
        if self.heeds and attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None, :] == 0, float("-inf"))
        if self.is_causal:
            length = input_ids.shape[1]
            scores = scores.masked_fill(torch.ones(length, length).tril() == 0, float("-inf"))
        shares = self.drop(scores.softmax(-1))
        logits = self.out(shares @ hidden)
        loss = None if labels is None else nn.functional.cross_entropy(logits.transpose(1, 2), labels)
        return {"loss": loss, "logits": logits, "shares": shares}


def arguments(length: int, **less: None) -> dict[str, Any]:
    words = torch.randint(WORDS, (2, length), generator=torch.Generator().manual_seed(length))
    given = {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words, **less}
    given["attention_mask"] = None if "attention_mask" in less else given["attention_mask"].clone()
    return {name: value for name, value in given.items() if value is not None}


def pair(pad_to: Any, make: Callable[[], nn.Module] = Reader) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    eager = make()
    return eager, planned(copy.deepcopy(eager), "1.0x", pad_to=pad_to, report=lambda _: None)


def check_equal(eager: nn.Module, model: nn.Module, given: dict[str, Any]) -> None:
    """Outputs and gradients are equal but for rounding."""
    found = []
    for its in (eager, model):
        its.zero_grad()
        outputs = its(**given)
        (outputs["loss"] + outputs["shares"].pow(2).sum()).backward()
        found.append([*outputs.values(), *(each.grad for each in its.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_lengths_share_a_plan_with_the_results_of_unpadded_calls() -> None:
    eager, model = pair(8)
    for length in (5, 7, 8):
        check_equal(eager, model, arguments(length))
    assert len(model.forward.plans) == 1
    with torch.no_grad():
        assert model(**arguments(5))["logits"].shape == (2, 5, WORDS)


def test_positional_arguments_and_a_list_of_lengths() -> None:
    eager, model = pair([4, 6])
    given = tuple(arguments(5).values())
    torch.testing.assert_close(model(*given)["loss"], eager(*given)["loss"])
    with pytest.raises(InputError, match="argument 'input_ids' has length 7, more than the longest, 6"):
        model(**arguments(7))


@pytest.mark.thorough
def test_causal_model_needs_no_mask() -> None:
    eager, model = pair(Padding(8, mask=None), lambda: Reader(is_causal=True))
    check_equal(eager, model, arguments(5, attention_mask=None))
    _, model = pair(8, lambda: Reader(is_causal=True))
    with pytest.raises(InputError, match="must have the argument 'attention_mask', which marks the places that count"):
        model(**arguments(5, attention_mask=None))


@pytest.mark.parametrize(
    ("make", "padding", "said"),
    [
        (lambda: Reader(heeds=False), 8, "output 0 of the model differs where its arguments are padded, by more than"),
        (Reader, Padding(8, {"input_ids": 0, "attention_mask": 0}), "nothing says what goes behind argument 'labels'"),
        (Reader, Padding(8, {"input_ids": 0, "attention_mask": 0, "labels": 0}), "output 0 of the model differs"),
        (lambda: nn.Sequential(nn.BatchNorm1d(5)), Padding(8, {"input": 0}, mask=None), "module '0' takes statistics"),
    ],
    ids=["mask", "labels", "loss", "norm"],
)
def test_padding_that_would_show_is_refused(make: Callable[[], nn.Module], padding: Any, said: str) -> None:
    _, model = pair(padding, make)
    given = {"input": torch.randn(2, 5)} if isinstance(model, nn.Sequential) else arguments(5)
    with pytest.raises(InputError, match=f"^pad_to: {said}"):
        model(**given)
    assert all(module.training for module in model.modules())


class Pair(nn.Module):
    """Two sequences, each with an output of its length."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(one), self.layer(other)


def test_outputs_are_cut_to_the_argument_that_they_follow() -> None:
    _, model = pair(Padding(8, {"one": 0, "other": 0}, mask=None), Pair)
    for lengths in ((5, 5), (5, 6), (6, 5), (8, 3), (3, 3), (7, 4)):
        outputs = model(*(torch.ones(2, length, 1) for length in lengths))
        assert tuple(output.shape[1] for output in outputs) == lengths


def test_wrong_paddings_are_one_line() -> None:
    for to in (0, [], "64", [4, -1]):
        with pytest.raises(InputError, match="pad_to: must be a length >= 1, or a list of such"):
            planned(Reader(), "1.0x", pad_to=to)
    with pytest.raises(InputError, match="fills must say what marks a place of 'attention_mask' that doesn't count"):
        Padding(8, {"input_ids": 0})
