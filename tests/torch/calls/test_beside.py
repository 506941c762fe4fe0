"""Outputs beside a loss: a plan holds no gradients of them, and those that come are right all the same."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.errors import InputError
from gapless.torch import planned
from gapless.torch.devices import measure_peak

_WORDS = 5000


@dataclass
class Found:
    """Outputs as attributes."""

    scores: torch.Tensor
    side: torch.Tensor
    loss: torch.Tensor


class Scorer(nn.Module):  # type: ignore[misc,unused-ignore]
    """A loss, scores that it is computed from, and a head beside that it isn't."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.3)
        self.scores, self.side = nn.Linear(32, _WORDS), nn.Linear(32, 3)

    def forward(self, given: torch.Tensor, labels: torch.Tensor | None = None, attributes: bool = False) -> Any:
        hidden = self.drop(self.norm(self.first(given)).relu())
        found = {"scores": self.scores(hidden), "side": self.side(hidden)}
        if labels is not None:
            found["loss"] = nn.functional.cross_entropy(found["scores"], labels)
        return Found(**found) if attributes else found


class Cached(nn.Module):  # type: ignore[misc,unused-ignore]
    """Attention that returns keys and values beside its loss, and adds to a bank of so many rows, if any."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 96) for _ in range(3))
        self.scores = nn.Linear(32, 50)
        self.register_buffer("bank", torch.zeros(rows, 32))

    def forward(self, given: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        cache = []
        for layer in self.layers:
            query, key, value = (part.contiguous() for part in layer(given).chunk(3, -1))
            cache.append((key, value))
            given = given + (query @ key.transpose(-1, -2)).softmax(-1) @ value
        if self.bank.numel():
            self.bank.add_(given.detach().mean())
        scores = self.scores(given)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
        return {"loss": loss, "scores": scores, "cache": cache}


def pair(**options: Any) -> tuple[Scorer, Scorer, list[str]]:
    """A model, a copy whose calls follow plans, and what is reported."""
    torch.manual_seed(0)
    eager, lines = Scorer(), []
    model = planned(copy.deepcopy(eager), options.pop("budget", "1x"), report=lines.append, **options)
    return eager, model, lines


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(5)
    return torch.randn(24, 16, generator=drawn), torch.randint(_WORDS, (24,), generator=drawn)


def backward(model: nn.Module, by: str, **options: Any) -> dict[str, torch.Tensor | None]:
    """The gradients of a call, and the model's buffers, by a loss that reads such outputs."""
    torch.manual_seed(1)
    model.zero_grad()
    found = model(*batch(), **options)
    found = found if isinstance(found, dict) else vars(found)
    parts = {"loss": found["loss"], "scores": found["scores"].square().mean(), "side": found["side"].sin().sum()}
    torch.stack([parts[name] for name in by.split("+")]).sum().backward()
    drawn = {"drawn": torch.rand(3)}
    return {name: its.grad for name, its in model.named_parameters()} | dict(model.named_buffers()) | drawn


def same(one: dict[str, torch.Tensor | None], other: dict[str, torch.Tensor | None]) -> bool:
    def equal(name: str) -> bool:
        left, right = one[name], other[name]
        return left is right if left is None or right is None else torch.equal(left, right)

    return one.keys() == other.keys() and all(map(equal, one))


@pytest.mark.thorough("True")
@pytest.mark.parametrize("attributes", [False, True])
def test_plan_for_the_loss_has_eagers_bits_without_the_gradient_of_scores(attributes: bool) -> None:
    eager, model, lines = pair()
    for _ in range(2):
        assert same(backward(model, "loss", attributes=attributes), backward(eager, "loss", attributes=attributes))
    _, other, _ = pair(gradients="all")
    backward(other, "loss", attributes=attributes)
    one, two = model.forward.plans[0], other.forward.plans[0]
    kept_bytes = sum(buffer.nbytes for buffer in model.buffers()) + torch.get_rng_state().nbytes  # to run once more
    assert two.step.graph.fixed_bytes - one.step.graph.fixed_bytes >= 24 * _WORDS * 4 - kept_bytes
    assert two.peak_bytes - one.peak_bytes >= 24 * _WORDS * 4 - kept_bytes
    assert len(lines) == 1


@pytest.mark.thorough("3000", "0.8x")
@pytest.mark.parametrize(("rows", "budget"), [(0, "1x"), (0, "0.8x"), (3000, "1x")])
def test_step_stays_within_its_plan_with_caches_and_buffers_beside_the_loss(rows: int, budget: str) -> None:
    torch.manual_seed(0)
    model, given, labels = Cached(rows), torch.randn(4, 32, 32), torch.randint(50, (4, 32))
    planned(model, budget, report=lambda _: None)

    def step() -> None:
        found = model(given, labels)  # which is held until the step is over
        found["loss"].backward()

    for _ in range(2):  # the first has the plan made
        model.zero_grad()
        peak_bytes, _ = measure_peak(step, torch.device("cpu"))
    assert peak_bytes <= model.forward.plans[0].peak_bytes


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["scores", "loss+scores+side"])
def test_gradient_that_comes_for_other_outputs_is_eagers_and_later_calls_are_planned_for_all(by: str) -> None:
    eager, model, lines = pair()
    assert same(backward(model, "loss"), backward(eager, "loss"))
    for _ in range(2):
        assert same(backward(model, by), backward(eager, by))
    assert [line.startswith("planned a call") for line in lines] == [True, False, True]
    assert "gradients='all'" in lines[1]


def test_first_call_may_have_gradients_of_other_outputs() -> None:
    eager, model, _ = pair()
    assert same(backward(model, "loss+side"), backward(eager, "loss+side"))


def test_gradients_of_arguments_and_hooks_come_once() -> None:
    eager, model, _ = pair()
    given, counts = [batch()[0].requires_grad_() for _ in range(2)], [0, 0]
    for number, its in enumerate((eager, model)):

        def count(_: torch.Tensor, number: int = number) -> None:
            counts[number] += 1

        its.first.weight.register_hook(count)
        torch.manual_seed(1)
        its(given[number], batch()[1])["scores"].sum().backward()
    assert torch.equal(given[0].grad, given[1].grad)
    assert counts == [1, 1]


@pytest.mark.thorough
def test_such_a_gradient_has_eagers_bits_under_autocast_and_with_tied_parameters() -> None:
    eager, _, lines = pair()
    eager.side.weight = nn.Parameter(eager.scores.weight[:3].detach().clone())
    eager.norm.bias = eager.first.bias
    model = planned(copy.deepcopy(eager), "1x", report=lines.append)
    for its in (eager, model):
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = its(*batch())
        (found["loss"] + found["side"].float().sum()).backward()
    pairs = zip(eager.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs)


@pytest.mark.thorough
def test_mode_that_changes_before_such_a_gradient_is_one_line() -> None:
    _, model, _ = pair()
    found = model(*batch())
    model.eval()
    with pytest.raises(RuntimeError, match=r"mode or settings were changed since.*gradients='all'"):
        found["scores"].sum().backward()


@pytest.mark.thorough
def test_argument_that_changes_before_such_a_gradient_is_one_line() -> None:
    _, model, _ = pair()
    given, labels = batch()
    found = model(given, labels)
    given.zero_()
    with pytest.raises(RuntimeError, match=r"changed in place"):
        found["scores"].sum().backward()


def test_second_backward_pass_for_such_a_gradient_is_refused() -> None:
    _, model, _ = pair()
    found = model(*batch())
    found["loss"].backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="retain_graph"):
        found["scores"].sum().backward()


def test_outputs_without_a_loss_are_planned_for_all() -> None:
    eager, model, lines = pair()
    given = batch()[0]
    for its in (eager, model):
        torch.manual_seed(1)
        its(given)["side"].sum().backward()
    assert torch.equal(eager.first.weight.grad, model.first.weight.grad)
    assert len(lines) == 1


def test_other_words_are_refused() -> None:
    with pytest.raises(InputError, match="gradients: must be one of loss, all, got 'none'"):
        planned(Scorer(), "1x", gradients="none")


@pytest.mark.thorough
def test_plans_on_disk_are_told_apart(tmp_path: Any) -> None:
    for gradients in ("loss", "all", "loss"):
        _, model, lines = pair(gradients=gradients, cache=tmp_path)
        backward(model, "loss")
    assert len(list(tmp_path.glob("call-*.json"))) == 2
    assert lines[0].startswith("took the plan")
