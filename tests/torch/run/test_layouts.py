"""Operators that return another layout than PyTorch traces for them: planned steps have eager's bits all the same.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch_steps import keep_all, left_by_eager, left_by_plan, random_plan

from gapless.torch.capture.graph import capture
from gapless.torch.capture.timing import profile
from gapless.torch.run import run

pytestmark = pytest.mark.usefixtures("one_thread")


class Transposed(nn.Module):
    """A layer over channels that lie last, between two that take them last."""

    def __init__(self, inner: nn.Module, rest: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(5, 6), inner, nn.Linear(6, 3)
        self.rest = rest

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found = self.inner(self.first(given).transpose(1, -1)).transpose(1, -1)
        return self.last(self.rest(found)).pow(2).mean()


class Strided(nn.Module):
    """Reads what it has computed by strides, as if it were contiguous."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given.erf().as_strided((4, 6, 5), (42, 1, 6)).sin()


def as_it_is(found: torch.Tensor) -> torch.Tensor:
    return found


def flat(found: torch.Tensor) -> torch.Tensor:
    return found.reshape(-1, 6)


INNER: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.BatchNorm1d(6),
    "batch norm, fixed": lambda: nn.BatchNorm1d(6, track_running_stats=False),
    "two batch norms": lambda: nn.Sequential(nn.BatchNorm1d(6), nn.ReLU(), nn.BatchNorm1d(6)),
    "instance norm": lambda: nn.InstanceNorm1d(6, affine=True),
    "group norm": lambda: nn.GroupNorm(2, 6),
    "convolution": lambda: nn.Conv1d(6, 6, 3, padding=1),
    "pooling": lambda: nn.MaxPool1d(3, 1, 1),
    "average": lambda: nn.AvgPool1d(3, 1, 1),
    "dropout": lambda: nn.Dropout(0.5),
    "prelu": lambda: nn.PReLU(6),
    "glu": lambda: nn.Sequential(nn.Conv1d(6, 12, 1), nn.GLU(1)),
    "padding": lambda: nn.Sequential(nn.ReflectionPad1d(1), nn.AvgPool1d(3, 1)),
    "softmax": lambda: nn.Softmax(1),
    "upsampling": lambda: nn.Sequential(nn.AvgPool1d(7), nn.Upsample(7)),
    "response norm": lambda: nn.LocalResponseNorm(2),
    "layer norm": lambda: nn.LayerNorm(7),
}


@pytest.mark.thorough(but=("batch norm-flat", "glu-as_it_is"))
@pytest.mark.parametrize("rest", [as_it_is, flat])
@pytest.mark.parametrize("kind", INNER)
def test_step_over_a_transposed_input_equals_eager(kind: str, rest: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(0)
    model, given = Transposed(INNER[kind](), rest), torch.randn(4, 7, 5)
    step = profile(capture(model, (given,)), repeats=1)
    expected = left_by_eager(model, lambda its: its(given), steps=2)
    for planned in (keep_all(step), random_plan(step, 1)):
        assert left_by_plan(model, planned, given, steps=2).differs_from(expected) == []
        train = run(planned, copy.deepcopy(model), report=lambda _: None)
        train(given)
        assert train.difference is not None
        assert train.difference.is_equal


def moved(given: torch.Tensor) -> torch.Tensor:
    """What an operator returns, in another layout than it was traced with."""
    return given.transpose(1, 2).contiguous().transpose(1, 2)


def test_an_operator_in_a_layout_that_was_not_traced_is_laid_out_as_it_was() -> None:
    """Views, strides among them, rely on it: also where nobody knew before that the operator does so."""
    model = nn.Sequential(nn.Linear(5, 6), Strided())
    given = torch.randn(4, 7, 5)
    step = capture(model, (given,), torch.sum)
    expected = left_by_eager(model, lambda its: its(given).sum(), steps=3)
    erf = next(each for each in step.operators if each is not None and "erf" in str(each.calls[0].function))
    real = erf.calls[0].function
    calls = [replace(call, function=lambda *its: moved(real(*its))) for call in erf.calls]
    operators = [replace(erf, calls=tuple(calls)) if each is erf else each for each in step.operators]
    found = left_by_plan(model, keep_all(replace(step, operators=tuple(operators))), given, steps=3)
    assert found.differs_from(expected) == []
