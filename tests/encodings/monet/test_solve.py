"""The solver's claims on measured and built graphs, and how it ends; test_brute_force has tiny ones."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import gapless
from gapless import Progress, SolveOptions, Status, StopReason
from gapless.encodings.monet import Problem
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build

GIB = 2**30


@pytest.mark.thorough
@pytest.mark.parametrize("threads", [1, 2])
def test_vgg16_is_solved_within_five_percent_and_replays_within_its_budget(
    measured: Callable[[str], TrainingGraph], threads: int
) -> None:
    problem = Problem(measured("vgg16_176_inplace_conv_multiway_newnode"), 8 * GIB)
    result = gapless.solve(problem, SolveOptions(gap=0.05, time_limit_s=60, threads=threads))
    assert result.valid
    assert result.report is not None
    assert result.solution.gap is not None
    assert result.solution.gap <= 0.05
    assert result.report.makespan_s == pytest.approx(result.solution.objective, rel=1e-9)
    assert result.report.peak_bytes[0] <= 8 * GIB
    assert result.report.makespan_s * 1e5 >= 137_278  # a bound that the full ILP proved


@pytest.mark.thorough
def test_impossible_budget_is_proven_and_the_least_possible_named(
    measured: Callable[[str], TrainingGraph],
) -> None:
    problem = Problem(measured("vgg16_176_inplace_conv_multiway_newnode"), 5 * GIB)
    result = gapless.solve(problem, SolveOptions(time_limit_s=20, gap=0.0))
    assert result.status is Status.INFEASIBLE
    assert result.solution.stop_reason is StopReason.FINISHED
    bound, found = (result.details[f"least_budget_{title}_bytes"] for title in ("bound", "found"))
    assert 5 * GIB < bound <= found < 5.5 * GIB


def test_no_plan_within_the_limit_is_told() -> None:
    result = gapless.solve(Problem(build("unet", 11), 5 * GIB), SolveOptions(time_limit_s=0.05, threads=1))
    assert result.status in (Status.NO_SOLUTION, Status.FEASIBLE)
    if result.status is Status.NO_SOLUTION:
        assert result.schedule is None
        assert result.solution.stop_reason is StopReason.TIME_LIMIT


def test_stop_keeps_the_best_plan_so_far() -> None:
    stop = threading.Event()

    def stop_at_the_first_plan(progress: Progress) -> None:
        if progress.incumbent is not None:
            stop.set()

    options = SolveOptions(gap=0.0, time_limit_s=60, on_progress=stop_at_the_first_plan, stop=stop)
    result = gapless.solve(Problem(build("vgg16", 32), 2 * GIB), options)
    assert result.valid
    assert result.solution.stop_reason is StopReason.INTERRUPTED


def test_enough_memory_needs_no_recomputation() -> None:
    problem = Problem(build("mobilenet_v2", 8), 14 * GIB)
    result = gapless.solve(problem, SolveOptions(gap=1e-6, time_limit_s=30))
    assert result.status is Status.OPTIMAL
    assert result.details["recompute_s"] == 0
