"""Plans that are carried over: the same decisions at another batch size where they fit, and a line where not."""

from __future__ import annotations

from pathlib import Path

import pytest

import gapless
from gapless import SolveOptions, Status
from gapless.cli.main import main
from gapless.encodings.monet.decisions import StepDecision
from gapless.encodings.monet.study.carried import carried_from
from gapless.errors import InputError
from gapless.profiles.training.networks import build
from gapless.recipe import Result

LITTLE = SolveOptions(gap=0.05, time_limit_s=20.0, threads=1)


@pytest.fixture(scope="module")
def small() -> Result:
    """A plan of UNet at batch 2 that recomputes."""
    result = gapless.solve(gapless.monet.problem("unet", batch=2, budget="0.6x", method="greedy"), LITTLE)
    assert result.valid
    assert result.details["recompute_s"] > 0
    return result


def test_decisions_stay_and_memory_grows_with_the_batch(small: Result) -> None:
    larger = gapless.solve(gapless.monet.problem("unet", batch=6, budget="0.62x", carry=small), LITTLE)
    assert larger.valid
    assert isinstance(larger.decision, StepDecision)
    assert isinstance(small.decision, StepDecision)
    assert larger.decision.kept == small.decision.kept
    assert [run[:2] for run in larger.decision.runs] == [run[:2] for run in small.decision.runs]
    assert [variant for variant, _ in larger.decision.backward] == [variant for variant, _ in small.decision.backward]
    assert larger.problem.description["carried"] == "unet, batch 2"
    assert 2.5 * small.report.peak_bytes[0] < larger.report.peak_bytes[0] < 3 * small.report.peak_bytes[0]
    assert larger.solution.bound <= larger.report.makespan_s


def test_a_carried_plan_is_not_cheaper_than_a_solve_from_it(small: Result) -> None:
    asked = gapless.monet.problem("unet", batch=3, budget="0.62x", carry=small)
    carried = gapless.solve(asked, LITTLE)
    least_s = gapless.solve(gapless.monet.problem("unet", batch=3, budget="0.62x"), LITTLE).solution.bound
    assert carried.report.makespan_s >= least_s


def test_what_does_not_fit_is_one_line_with_what_it_needs(
    small: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    small.save(path)
    asked = ["solve", "monet", "--graph", "unet", "--batch", "8", "--budget", "3GB", "--carry", str(path), "--quiet"]
    assert main(asked) == 4
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("gapless: the plan, carried over from batch 2, needs ")
    assert line.endswith(" GB), more than the budget")
    carried = gapless.solve(gapless.monet.problem("unet", batch=8, budget="3GB", carry=str(path)), LITTLE)
    assert carried.status is Status.NO_SOLUTION
    assert carried.details["needed_bytes"] > 3e9


def test_implementations_are_chosen_for_the_new_batch(small: Result) -> None:
    graph = build("unet", 6)
    unchanged = carried_from(small.plan).on(graph)
    result = gapless.solve(gapless.monet.problem(graph, budget="0.62x", carry=small), LITTLE)
    assert isinstance(result.decision, StepDecision)
    assert (result.decision.on(graph).variant == unchanged.variant).all()
    assert result.details["carried_batch"] == 2


def test_plans_of_other_networks_systems_and_methods_are_refused(small: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^carry: must be a plan of 'vgg16', got one of 'unet' with other operators"):
        gapless.monet.problem("vgg16", batch=2, budget="8GB", carry=small)
    other = gapless.solve(gapless.monet.problem("resnet50", batch=2, budget="16GB", method="store-all"), LITTLE)
    with pytest.raises(InputError, match=r"^carry: must be a plan of 'resnet101', got one of 'resnet50'"):
        gapless.monet.problem("resnet101", batch=2, budget="8GB", carry=other)
    with pytest.raises(InputError, match="a carried plan decides by itself; leave method 'noop' out"):
        gapless.monet.problem("unet", batch=2, budget="8GB", carry=small, method="noop")
    lossy = gapless.solve(gapless.monet.problem("unet", batch=2, budget="16GB", method="gist"), LITTLE)
    with pytest.raises(InputError, match="a plan of method gist keeps them encoded"):
        gapless.monet.problem("unet", batch=4, budget="8GB", carry=lossy)
