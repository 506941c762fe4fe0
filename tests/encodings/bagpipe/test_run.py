"""Runs that end early: what was planned is a run that replays clean, and nothing that was planned is lost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import gapless
from gapless import Result, SolveOptions
from gapless.checker import check
from gapless.encodings.bagpipe import Planning
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.budget import Budget, Histories, Pace
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.counts import counted
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.run import Run, plan_run
from gapless.encodings.bagpipe.solve import solve
from gapless.options import Deadline, Progress
from gapless.profiles.traces.generators import zipf_trace
from gapless.solution import StopReason

TRAINERS, BATCHES = 3, 10


def problem(**settings: Any) -> Problem:
    planning = Planning(TRAINERS, 24, **{"lookahead": 2, "batches": BATCHES, **settings})
    return Problem(zipf_trace((40, 300, 5), 1.1, 24 * BATCHES, 0), planning, Cluster(TRAINERS, fetch_latency_s=1e-3))


def whole_run(asked: Problem) -> Run:
    run, options = Run(), SolveOptions()
    deadline = Deadline(options)
    plan_run(run, asked, options, Parameters(), deadline, Budget(deadline, Pace(), None))
    return run


@pytest.mark.parametrize("settings", [{}, {"lookahead": 5}, {"cache_rows": 90, "lookahead": None}, {"lookahead": 50}])
def test_the_first_batches_of_any_run_are_a_run(settings: dict[str, Any]) -> None:
    run = whole_run(problem(**settings))
    for batches in range(1, BATCHES + 1):
        first = run.first(batches)
        assert len(first.actions) == first.counts.batches == batches
        assert first.counts.evicted.tolist() == [int(batch.evicted.sum()) for batch in first.actions]
        written = np.concatenate([batch.ids[batch.evicted == 1] for batch in first.actions])
        fetched = np.concatenate([batch.ids[batch.fetched_by > -2] for batch in first.actions])
        assert np.array_equal(np.sort(written), np.sort(fetched))
    assert run.first(BATCHES).actions == run.actions


def test_a_run_in_progress_is_offered_after_each_batch_and_every_offer_replays_clean() -> None:
    offers = []
    solve(problem(lookahead=4), SolveOptions(on_plan=lambda cost, make: offers.append((cost, make))))
    assert [cost for cost, _ in offers] == [-float(batches) for batches in range(1, BATCHES + 1)]
    for cost, make in offers:
        plan = make()
        assert plan.details["batches_planned"] == -cost
        assert check(plan.schedule).valid


def stopped_after(batches: int, objective: str) -> Result:
    """Stopped by somebody who sees so many batches planned."""

    def stop(progress: Progress) -> None:
        if progress.done == batches:
            options.stop.set()

    options = SolveOptions(on_progress=stop)
    return gapless.solve(problem(objective=objective, lookahead=3), options)


@pytest.mark.parametrize("objective", ["paper", "fetches", "max-load"])
@pytest.mark.parametrize("batches", [1, 4, 9])
def test_who_stops_a_run_keeps_what_was_planned(batches: int, objective: str) -> None:
    result = stopped_after(batches, objective)
    assert result.valid
    assert result.details["batches_planned"] == result.details["batches_optimised"] == batches
    assert result.solution.stop_reason is StopReason.INTERRUPTED
    whole = gapless.solve(problem(objective=objective, lookahead=3))
    for part, same in zip(result.product.trainer, whole.product.trainer, strict=False):
        assert np.array_equal(part, same)


@pytest.mark.parametrize("method", ["auto", "milp", "min_cost_flow", "lp"])
def test_who_has_stopped_before_the_start_has_one_batch(method: str) -> None:
    options = SolveOptions()
    options.stop.set()
    result = gapless.solve(problem(method=method), options)
    assert result.valid
    assert result.details["batches_planned"] == 1
    assert result.details["batches_optimised"] == 0
    assert result.solution.stop_reason is StopReason.INTERRUPTED


@pytest.mark.parametrize("objective", ["paper", "fetches", "max-load"])
def test_with_no_time_there_is_a_run_of_one_batch(objective: str) -> None:
    result = gapless.solve(problem(objective=objective), SolveOptions(time_limit_s=1e-6))
    assert result.valid
    assert result.details["batches_planned"] == 1
    assert result.details["batches_optimised"] == 0
    assert result.solution.stop_reason is StopReason.TIME_LIMIT


class _Clock(Deadline):
    """A deadline whose time passes by hand."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(SolveOptions(time_limit_s=1e6))
        self.left_s = limit_s

    @property
    def remaining_s(self) -> float:
        return self.left_s


def planned(clock: _Clock, pace: Pace, **settings: Any) -> list[bool]:
    """Of each batch that is planned, whether its partition was cut. Reading and planning cost what the pace says."""
    asked = problem(**settings)
    budget = Budget(clock, pace, asked.batch_count)
    reads_on = budget.reads_on

    def read() -> bool:
        clock.left_s -= pace.read_s
        return reads_on()

    budget.reads_on = read  # type: ignore[method-assign]
    plans = []
    for plan in batch_plans(asked.trace, asked.planning, None, SolveOptions(), budget):
        plans.append(plan)
        partition_s = 0.0 if plan.partition.is_cut else 10 * pace.plan_s
        clock.left_s -= partition_s or pace.plan_s
        if not budget.plans_on(plan.step.rows, partial(np.zeros, len(plan.step.rows), np.int64), partition_s):
            break
    assert counted(plans).batches == len(plans)
    return [plan.partition.is_cut for plan in plans]


def test_with_time_for_all_every_batch_is_optimised() -> None:
    assert planned(_Clock(1000.0), Pace(1.0, 1.0, 1.0)) == [False] * BATCHES


def test_with_time_for_some_the_others_have_the_quickest_partition() -> None:
    cut = planned(_Clock(60.0), Pace(1.0, 1.0, 1.0), objective="fetches")
    assert len(cut) == BATCHES
    assert 0 < sum(cut) < BATCHES


@pytest.mark.parametrize("lookahead", [1, 3, 50])
def test_with_time_for_few_batches_the_rest_is_not_planned(lookahead: int) -> None:
    clock = _Clock(20.0)
    cut = planned(clock, Pace(1.0, 1.0, 2.0), lookahead=lookahead)
    assert 1 < len(cut) < BATCHES
    assert cut.count(False) <= 1  # how long the partition that was asked for takes isn't known before the first
    assert clock.has_struck


def test_rows_with_one_history_count_once() -> None:
    histories = Histories()
    assert histories.distinguish(np.arange(4, dtype=np.int32), np.array([7, 7, 7, 7])) == 1 / 4
    assert histories.distinguish(np.arange(4, dtype=np.int32), np.array([7, 7, 8, 9])) == 4 / 8
    assert histories.distinguish(np.arange(2000, dtype=np.int32), np.full(2000, 7)) == (4 + 4) / 2008


def test_a_batch_that_is_read_alone_is_the_first_of_the_run() -> None:
    result = gapless.solve(problem(batches=1), SolveOptions(time_limit_s=60.0))
    assert result.details["batches_optimised"] == 1
    assert result.solution.stop_reason is StopReason.FINISHED
    assert replace(result.solution, wall_s=0.0) == replace(gapless.solve(problem(batches=1)).solution, wall_s=0.0)
