"""The first call of a planned step, which is compared with eager's: what it says, refuses, and leaves behind.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch_steps import keep_all, left_by_eager

from gapless.errors import DifferenceError, InputError
from gapless.torch.capture.graph import capture
from gapless.torch.run import Step, StepPlan, run
from gapless.torch.run.difference import Outcome, difference

Given = torch.randn(8, 6, generator=torch.Generator().manual_seed(5))


class Small(nn.Module):
    """Batch norm and dropout between two layers, with a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop, self.last = (
            nn.Linear(6, 6),
            nn.BatchNorm1d(6),
            nn.Dropout(0.3),
            nn.Linear(6, 6),
        )

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(self.norm(self.first(given)))).pow(2).mean()


def twice(given: torch.Tensor) -> torch.Tensor:
    return 2 * given


@pytest.fixture
def model() -> Small:
    torch.manual_seed(0)
    return Small()


def planned(model: nn.Module, loss: Callable[..., Any] | None = None) -> StepPlan:
    return keep_all(capture(model, (Given,), loss))


def spoilt(step: Step, spoil: Callable[[], None]) -> None:
    """Let something happen after a step's calls that no plan says."""
    program = step._program  # noqa: SLF001

    def run_and_spoil(placed: list[torch.Tensor]) -> torch.Tensor:
        loss = program(placed)
        spoil()
        return loss

    step._program = run_and_spoil  # type: ignore[assignment]  # noqa: SLF001


def otherwise(step: Step, add: float = 0.001) -> None:
    """Let a step find another gradient of the first weight."""

    def spoil() -> None:
        weight = step._model.first.weight  # noqa: SLF001
        weight.grad = weight.grad + add

    spoilt(step, spoil)


def test_equal_step_says_so_once(model: Small) -> None:
    said: list[str] = []
    step = run(planned(model), model, report=said.append)
    assert step.difference is None
    step(Given)
    step(Given)
    assert said == ["first step of 'Small': loss, 6 gradients and 3 buffers are bit-equal to eager's"]


def test_line_goes_to_stderr_by_default(model: Small, capsys: pytest.CaptureFixture[str]) -> None:
    run(planned(model), model)(Given)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gapless: first step of 'Small': loss, 6 gradients")


def test_steps_leave_what_eager_leaves(model: Small) -> None:
    """Gradients add up, buffers are updated once, and the random state goes on, whether compared or not."""
    expected = left_by_eager(model, lambda its: its(Given), steps=3)
    step = run(planned(model), model, tolerance=0.0, report=lambda _: None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        losses = [step(Given) for _ in range(3)]
        state = torch.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(losses, expected.losses, strict=True))
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, expected.gradients[name])  # type: ignore[arg-type]
    assert all(torch.equal(buffer, expected.buffers[name]) for name, buffer in model.named_buffers())
    assert torch.equal(state, expected.random)


def test_small_difference_is_reported_with_the_tensor(model: Small) -> None:
    said: list[str] = []
    step = run(planned(model), model, tolerance=1.0, report=said.append)
    otherwise(step)
    step(Given)
    assert step.difference is not None
    assert step.difference.name == "the gradient of first.weight"
    assert 0 < step.difference.relative < 1
    assert "the gradient of first.weight is off eager's by" in said[0]


def test_step_beyond_the_tolerance_is_refused_and_leaves_nothing(model: Small) -> None:
    step = run(planned(model), model, report=lambda _: None)
    otherwise(step)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    model.last.weight.grad = given = torch.ones(6, 6)
    with pytest.raises(DifferenceError, match=r"gradient of first\.weight is off .*tolerance is 0\.0001; .*tolerance"):
        step(Given)
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.last.weight.grad is given
    assert torch.equal(given, torch.ones(6, 6))
    assert model.first.weight.grad is None
    with pytest.raises(DifferenceError):  # and so is the next
        step(Given)


def test_buffer_that_differs_is_refused(model: Small) -> None:
    step = run(planned(model), model, report=lambda _: None)
    spoilt(step, lambda: model.norm.running_mean.zero_())
    with pytest.raises(DifferenceError, match=r"the buffer norm\.running_mean is off"):
        step(Given)


def test_loss_that_is_not_the_captured_one_is_refused() -> None:
    """A model that computes something else than at its capture, which no shape gives away."""

    elsewhere = deque([1.0])  # no list, tuple or mapping, whose values are watched

    class Scaled(Small):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return super().forward(given) * elsewhere[0]

    model = Scaled()
    step = run(planned(model), model)
    elsewhere[0] = 3.0
    with pytest.raises(DifferenceError, match="is off eager's"):
        step(Given)


def test_loss_beside_the_model_is_compared(model: Small) -> None:
    step = run(planned(model, twice), model, report=lambda _: None)
    found = step(Given)
    assert step.difference is not None
    assert step.difference.is_equal
    assert found.item() > 0


def test_no_tolerance_compares_nothing(model: Small) -> None:
    step = run(planned(model), model, tolerance=None, report=lambda _: pytest.fail("nothing is to be said"))
    otherwise(step)
    step(Given)
    assert step.difference is None


def test_too_little_memory_for_eager_is_reported(model: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    step = run(planned(model), model, report=said.append)

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Small, "forward", full)
    step(Given)
    assert said == ["first step of 'Small': not compared with eager's, for which there is not enough memory"]
    assert model.first.weight.grad is not None


@pytest.mark.parametrize("tolerance", [-1.0, float("nan")])
def test_tolerance_that_is_none_is_refused(model: Small, tolerance: float) -> None:
    with pytest.raises(InputError, match="tolerance must be >= 0"):
        run(planned(model), model, tolerance=tolerance)


# -- how far -----------------------------------------------------------------------------------------------------------


def outcome(*gradients: torch.Tensor | None) -> Outcome:
    return Outcome(torch.ones(()), dict(zip("abc", gradients, strict=False)), {})


def test_difference_is_relative_to_the_norm_of_what_is_expected() -> None:
    found = difference(outcome(torch.tensor([3.0, 4.5])), outcome(torch.tensor([3.0, 4.0])))
    assert found.relative == pytest.approx(0.1)
    assert found.name == "the gradient of a"


def test_rounding_of_a_gradient_that_is_nothing_counts_little() -> None:
    """A bias before a softmax or a batch norm has a gradient of rounding errors alone."""
    tiny, other, large = torch.full((4,), 1e-9), torch.full((4,), -1e-9), torch.ones(4)
    found = difference(outcome(tiny, large), outcome(other, large))
    assert 0 < found.relative < 1e-5


def test_missing_gradients_and_infinities_are_infinitely_far() -> None:
    one = torch.ones(2)
    assert difference(outcome(None), outcome(one)).relative == float("inf")
    assert difference(outcome(one), outcome(None)).relative == float("inf")
    assert difference(outcome(one / 0), outcome(one)).relative == float("inf")


def test_what_is_no_number_in_both_is_equal() -> None:
    given = torch.tensor([float("nan"), 1.0])
    assert difference(outcome(given), outcome(given.clone())).is_equal


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64, torch.complex64, torch.int64, torch.bool])
def test_every_type_is_compared(kind: torch.dtype) -> None:
    one, none = torch.ones(4).to(kind), torch.zeros(4).to(kind)
    assert difference(outcome(one), outcome(one.clone())).is_equal
    assert difference(outcome(none), outcome(one)).relative == pytest.approx(1.0)
