"""Planned steps beside eager ones: equal in every bit, and within the plan's memory.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.nn import functional
from torch_models import Case, Gpt, cases
from torch_steps import keep_all, left_by_eager, left_by_plan, random_plan

from gapless.encodings.monet import Problem
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, write_plan
from gapless.options import SolveOptions
from gapless.torch.capture.graph import capture
from gapless.torch.capture.program import CapturedStep
from gapless.torch.capture.timing import profile
from gapless.torch.run import StepPlan, load, plan, run

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS = ("resnet", "unet", "fcn", "gpt", "bert")
Captured = Callable[[str], CapturedStep]
QUICK = SolveOptions(gap=1.0, time_limit_s=20.0, threads=1)


@pytest.fixture(scope="module")
def models() -> dict[str, Case]:
    return cases()


@pytest.fixture(scope="module")
def captured(models: dict[str, Case]) -> Captured:
    """A model's step, captured when it is first asked for."""
    return cache(lambda kind: profile(capture(*models[kind], name=kind), repeats=1))


# -- bits and bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.thorough(but=("gpt",))
@pytest.mark.parametrize("kind", KINDS)
def test_step_that_keeps_everything_equals_eager(models: dict[str, Case], captured: Captured, kind: str) -> None:
    model, arguments = models[kind]
    found = left_by_plan(model, keep_all(captured(kind)), *arguments)
    assert found.differs_from(left_by_eager(model, lambda its: its(*arguments))) == []
    assert found.peak_bytes <= keep_all(captured(kind)).peak_bytes


@pytest.mark.thorough(but=("gpt", "unet"))
@pytest.mark.parametrize("kind", KINDS)
def test_random_plans_equal_eager_and_keep_to_their_peak(
    models: dict[str, Case], captured: Captured, kind: str
) -> None:
    model, arguments = models[kind]
    expected = left_by_eager(model, lambda its: its(*arguments))
    for seed in range(6):
        planned = random_plan(captured(kind), seed)
        found = left_by_plan(model, planned, *arguments)
        assert found.differs_from(expected) == []
        assert found.peak_bytes <= planned.peak_bytes


@pytest.mark.thorough(but=("0.9-gpt",))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", [0.9, 0.75])
def test_solved_plans_equal_eager_within_their_budget(
    models: dict[str, Case], captured: Captured, kind: str, ratio: float
) -> None:
    model, arguments = models[kind]
    expected = left_by_eager(model, lambda its: its(*arguments))
    budget_bytes = int(ratio * max(expected.peak_bytes, 1))
    step = captured(kind)
    planned = plan(step, Problem(step.graph, max(budget_bytes, _least_bytes(step))), QUICK)
    found = left_by_plan(model, planned, *arguments)
    assert found.differs_from(expected) == []
    assert found.peak_bytes <= planned.peak_bytes


def _least_bytes(step: CapturedStep) -> int:
    """A budget that is not far from the least: parameters' gradients, and what the worst operator takes."""
    graph = step.graph
    worst = max(
        node.output_bytes + int(live) + sum(graph.forward[need].output_bytes for need in node.variants[0].needs)
        for node, live in zip(graph.backward, graph.gradient_bytes, strict=True)
    )
    return int(1.3 * (graph.backward[-1].fixed_bytes + worst))


def test_gradients_of_several_steps_add_up_as_eager(models: dict[str, Case], captured: Captured) -> None:
    model, arguments = models["gpt"]  # its tied weight gets two gradients a step, which are added first
    found = left_by_plan(model, random_plan(captured("gpt"), 0), *arguments, steps=3)
    assert found.differs_from(left_by_eager(model, lambda its: its(*arguments), steps=3)) == []


def test_training_with_an_optimiser_goes_as_eager(models: dict[str, Case], captured: Captured) -> None:
    model, arguments = models["unet"]
    trained = []
    for planned in (True, False):
        its = copy.deepcopy(model)
        step = run(random_plan(captured("unet"), 1), its)
        optimiser = torch.optim.AdamW(its.parameters(), lr=1e-2)
        torch.manual_seed(3)
        for _ in range(3):
            optimiser.zero_grad()
            if planned:
                step(*arguments)
            else:
                its(*arguments).backward()
            optimiser.step()
        trained.append(its.state_dict())
    assert all(torch.equal(trained[0][name], trained[1][name]) for name in trained[0])


@pytest.mark.thorough("0.5", "0.09")
@pytest.mark.parametrize("share", [0.04, 0.09, 0.5])
def test_dropout_rounds_as_eager_does(share: float) -> None:
    model = Gpt(width=8, layers=1, heads=2, dropout=share)
    arguments = torch.randint(64, (2, 16)), torch.randint(64, (2, 16))
    found = left_by_plan(model, keep_all(capture(model, arguments)), *arguments)
    assert found.differs_from(left_by_eager(model, lambda its: its(*arguments))) == []


class Odd(nn.Module):
    """A parameter that is added as it is, one that is used three times, one that is not used, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.added, self.often = nn.Parameter(torch.randn(4, 8)), nn.Parameter(torch.randn(8, 8))
        self.unused, self.frozen = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(8), requires_grad=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found = functional.softplus((given + self.added) @ self.often)
        return (found @ self.often * self.frozen) @ self.often.t()


def test_odd_parameters_get_eagers_gradients() -> None:
    model, given, target = Odd(), torch.randn(4, 8), torch.randn(4, 8)
    step = profile(capture(model, (given,), functional.mse_loss, targets=(target,)), repeats=1)
    planned = random_plan(step, 2)
    found = left_by_plan(model, planned, given, target, steps=2)
    assert found.differs_from(left_by_eager(model, lambda its: functional.mse_loss(its(given), target), steps=2)) == []
    assert found.peak_bytes <= planned.peak_bytes  # this loss leaves its scalar in a buffer of the outputs' size


def test_parameters_that_share_a_gradient_get_one_each() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return (given * (self.a + self.b)).sum()

    model, given = Pair(), torch.randn(6)
    run(keep_all(capture(model, (given,))), model, tolerance=0.0)(given)
    assert model.a.grad is not None
    assert model.b.grad is not None
    assert torch.equal(model.a.grad, given)
    model.a.grad.zero_()
    assert torch.equal(model.b.grad, given)


def test_plan_from_a_file_runs_on_a_step_captured_anew(
    models: dict[str, Case], captured: Captured, tmp_path: Path
) -> None:
    model, arguments = models["unet"]
    planned = random_plan(captured("unet"), 3)
    write_plan(tmp_path / "plan.json", SavedPlan("monet", {}, {}, {}, planned.schedule))
    loaded = load(tmp_path / "plan.json", capture(*models["unet"], name="unet"))
    found = left_by_plan(model, loaded, *arguments)
    assert found.differs_from(left_by_eager(model, lambda its: its(*arguments))) == []
    assert found.peak_bytes <= loaded.peak_bytes == planned.peak_bytes
    with pytest.raises(InputError, match=r"plan\.json: plan must be for the step 'gpt'"):
        load(tmp_path / "plan.json", captured("gpt"))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> tuple[Gpt, tuple[torch.Tensor, ...], StepPlan]:
    model = Gpt(width=8, layers=1, heads=2)
    arguments = torch.randint(64, (2, 16)), torch.randint(64, (2, 16))
    return model, arguments, keep_all(capture(model, arguments))


Small = tuple[Gpt, tuple[torch.Tensor, ...], StepPlan]


def test_other_shape_is_refused_with_the_expected_one(small: Small) -> None:
    model, arguments, planned = small
    with pytest.raises(
        InputError, match=r"tensor 0 must have shape \[2, 16\], torch.int64 on cpu.*got shape \[1, 16\].*capture"
    ):
        run(planned, model)(arguments[0][:1], arguments[1])


def test_other_count_of_arguments_is_refused(small: Small) -> None:
    model, arguments, planned = small
    with pytest.raises(InputError, match=r"must get 2 tensors in the structure that was captured.*got 1"):
        run(planned, model)(arguments[0])


def test_autocast_is_refused(small: Small) -> None:
    model, arguments, planned = small
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(InputError, match=r"outside of torch\.autocast.*into the model's forward"):
            run(planned, model)(*arguments)
        with pytest.raises(InputError, match=r"outside of torch\.autocast"):
            capture(model, arguments)


def test_other_model_is_refused(small: Small) -> None:
    with pytest.raises(InputError, match=r"parameter 'words.weight' must have shape \[64, 8\].*got shape \[64, 16\]"):
        run(small[2], Gpt(width=16, layers=1, heads=2))


def test_evaluation_mode_is_refused_where_training_was_captured(small: Small) -> None:
    model, arguments, planned = small
    step = run(planned, model)
    model.eval()
    try:
        with pytest.raises(InputError, match="captured in training mode"):
            step(*arguments)
    finally:
        model.train()


def test_impossible_budget_is_refused_with_the_least(captured: Captured) -> None:
    with pytest.raises(InputError, match=r"infeasible; every plan needs at least [0-9,]+ bytes"):
        plan(captured("gpt"), Problem(captured("gpt").graph, 1000), QUICK)
