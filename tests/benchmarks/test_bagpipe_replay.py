"""Runs of Bagpipe on a Criteo-like trace: how long their replay takes, and what the objectives beyond the paper's save.

`pytest tests/benchmarks/test_bagpipe_replay.py -s` prints the savings, with their gaps, as a table. A bound takes as
long as several partitions, so every fifth batch has one. Times are processor time of this process, so that other load
on the machine doesn't count.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np
import pytest
from rates import rate
from result_tables import ResultTables

from gapless.checker import check
from gapless.encodings.bagpipe import (
    Batch,
    BatchPlan,
    Bound,
    Cluster,
    Parameters,
    Planning,
    Problem,
    Search,
    capacities,
)
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.bounds import fetches_bound, max_load_bound
from gapless.encodings.bagpipe.budget import Budget, Pace
from gapless.encodings.bagpipe.lowering import to_schedule
from gapless.encodings.bagpipe.pipeline import pipeline
from gapless.encodings.bagpipe.run import Run, plan_run
from gapless.encodings.bagpipe.sharing import Sharing
from gapless.encodings.bagpipe.solve import machine_for
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.generators import criteo_like_trace

BATCH, TRAINERS = 16_384, 8
BATCHES, BOUNDED = 20, 5
PARAMETERS = Parameters(Search(rounds=24), Bound(rounds=0))
"""As the command line's; `BOUND_ROUNDS` are the library's."""
BOUND_ROUNDS = 40

pytestmark = [pytest.mark.usefixtures("keep_tables"), pytest.mark.benchmark(timer=time.process_time)]


def test_replay_of_fifty_batches(benchmark: Any, sized: Any) -> None:
    """From what the trainers do to the report: lowered, and checked; 1.3 million rows are fetched."""
    batches = sized(50, 5)
    planning = Planning(TRAINERS, BATCH, lookahead=200, batches=batches)
    problem, options = Problem(criteo_like_trace(batches * BATCH), planning, Cluster(TRAINERS)), SolveOptions()
    run, deadline = Run(), Deadline(options)
    plan_run(run, problem, options, Parameters(), deadline, Budget(deadline, Pace(), batches))
    times, machine = pipeline(run.counts, problem.cluster), machine_for(problem, run.counts)
    report = benchmark.pedantic(lambda: check(to_schedule(run.actions, times, machine)), rounds=1)
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(times.makespan_s)
    benchmark.extra_info["events"] = report.event_count
    benchmark.extra_info["events_per_s"] = rate(benchmark, report.event_count)


def values(plan: BatchPlan) -> dict[str, int]:
    """What a partition is worth by each objective."""
    return {"fetches": plan.traffic.fetches, "max-load": plan.traffic.max_load}


@cache
def papers(ownership: str, batches: int) -> dict[str, int]:
    """The sums over a run with the paper's optimum in each batch."""
    planning = Planning(TRAINERS, BATCH, lookahead=200, batches=batches, objective="paper", ownership=ownership)
    found = [values(plan) for plan in batch_plans(criteo_like_trace(batches * BATCH), planning)]
    return {objective: sum(entry[objective] for entry in found) for objective in found[0]}


@pytest.mark.parametrize("ownership", ["hash", "first-touch"])
@pytest.mark.parametrize("objective", ["fetches", "max-load"])
def test_saving_of_an_objective(
    benchmark: Any, tables: ResultTables, sized: Any, objective: str, ownership: str
) -> None:
    """Against the paper's optimum in a run of its own, and in each batch with the same owners."""
    batches = sized(BATCHES, BOUNDED)
    planning = Planning(TRAINERS, BATCH, lookahead=200, batches=batches, objective=objective, ownership=ownership)
    bound_of = fetches_bound if objective == "fetches" else max_load_bound
    value = same_owners = 0
    gaps: list[float] = []
    seconds: list[float] = []

    def run() -> None:
        nonlocal value, same_owners
        for plan in batch_plans(criteo_like_trace(batches * BATCH), planning, PARAMETERS):
            assert plan.partition.value == values(plan)[objective]
            value += plan.partition.value
            same_owners += plan.partition.details["of_papers_optimum"]
            seconds.append(plan.partition_s)
            if plan.step.batch % BOUNDED == BOUNDED - 1:
                sharing = Sharing.of(Batch(plan.index, plan.owner, TRAINERS))
                bound = bound_of(sharing, capacities(BATCH, TRAINERS), Bound(BOUND_ROUNDS), Deadline(SolveOptions()))
                assert bound <= plan.partition.value
                gaps.append(1 - bound / plan.partition.value)

    benchmark.pedantic(run, rounds=1)
    paper = papers(ownership, batches)[objective]
    tables.table("bagpipe-objectives", "Objectives against the paper's optimum, Criteo-like, 16,384 x 26, p = 8").add(
        f"{objective} {ownership}", objective=objective, ownership=ownership, rows_a_batch=round(value / batches),
        papers_optimum=round(paper / batches), saved=f"{1 - value / paper:.1%}",
        saved_with_same_owners=f"{1 - value / same_owners:.1%}", gap=f"{np.mean(gaps):.1%}",
        partition_s=round(float(np.median(seconds)), 2),
    )  # fmt: skip
    if objective == "fetches":
        assert value <= 0.85 * paper
        assert value <= 0.85 * same_owners
    else:
        assert value < paper
