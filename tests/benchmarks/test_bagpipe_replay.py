"""Runs of Bagpipe on a Criteo-like trace: how long their replay takes, and what the objectives beyond the paper's save.

`pytest tests/benchmarks/test_bagpipe_replay.py -s` prints the savings, with their gaps, as a table. A bound takes as
long as several partitions, so every fifth batch has one. Times are processor time of this process, so that other load
on the machine doesn't count.
"""

from __future__ import annotations

import resource
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rates import rate
from result_tables import ResultTables

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
from gapless.encodings.bagpipe.partition.batch import Sharing
from gapless.encodings.bagpipe.partition.bounds import fetches_bound, max_load_bound
from gapless.encodings.bagpipe.run.file import write_run
from gapless.encodings.bagpipe.solve import solve
from gapless.io.plan import SavedPlan
from gapless.methods.ledger import REST, Ledger
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.generators import criteo_like_trace
from gapless.system import Plan

BATCH, TRAINERS = 16_384, 8
BATCHES, BOUNDED = 20, 5
EPOCH, LOOKAHEAD = 2393, 200
"""Of Criteo Kaggle; after three times the lookahead a batch takes what the ones before it took."""
PARAMETERS = Parameters(Search(rounds=24), Bound(rounds=0))
"""As the command line's; `BOUND_ROUNDS` are the library's."""
BOUND_ROUNDS = 40

pytestmark = [pytest.mark.usefixtures("keep_tables"), pytest.mark.benchmark(timer=time.process_time)]


def test_replay_of_fifty_batches(benchmark: Any, sized: Any) -> None:
    """From the file of what the trainers do to the report, window by window; 1.3 million rows are fetched."""
    batches = sized(50, 5)
    planning = Planning(TRAINERS, BATCH, lookahead=200, batches=batches)
    plan = solve(Problem(criteo_like_trace(batches * BATCH), planning, Cluster(TRAINERS)), SolveOptions())
    report = benchmark.pedantic(plan.windows.replay, rounds=1)
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(plan.windows.times.makespan_s)
    benchmark.extra_info["events"] = report.event_count
    benchmark.extra_info["events_per_s"] = rate(benchmark, report.event_count)


@pytest.mark.parametrize(("design", "most"), [("lrpp-delayed", EPOCH), ("lrpp-fine-grained", 3 * LOOKAHEAD)])
def test_an_epoch_that_is_stopped_and_gone_on_with(
    benchmark: Any, sized: Any, tables: ResultTables, tmp_path: Path, design: str, most: int
) -> None:
    """Planned to its middle, gone on with, replayed; processor time, memory and the file."""
    batches = sized(most, 6)
    planning = Planning(TRAINERS, BATCH, lookahead=sized(LOOKAHEAD, 3), batches=batches, design=design)
    trace, cluster = criteo_like_trace(batches * BATCH), Cluster(TRAINERS)
    seconds: dict[str, float] = {}

    def planned(resume: str | None, until: int) -> Plan:
        options = SolveOptions(on_progress=lambda progress: progress.done == until and options.stop.set())
        begin_s = time.process_time()
        plan = solve(Problem(trace, planning, cluster, resume=resume), options)
        seconds["go on" if resume else "begin"] = time.process_time() - begin_s
        return plan

    half = planned(None, batches // 2)
    assert half.windows.count == batches // 2
    write_run(tmp_path / "half.npz", SavedPlan("bagpipe", {}, {}, {}, half.schedule, windows=half.windows))
    plan = planned(str(tmp_path / "half.npz"), -1)
    assert plan.windows.count == plan.details["batches_optimised"] == batches
    write_run(tmp_path / "run.npz", SavedPlan("bagpipe", {}, {}, {}, plan.schedule, windows=plan.windows))
    begin_s = time.process_time()
    report = benchmark.pedantic(plan.windows.replay, rounds=1)
    seconds["replay"] = time.process_time() - begin_s
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(plan.windows.times.makespan_s)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert peak_bytes < 2 * 10**9
    tables.table("bagpipe-epoch", "An epoch of Criteo Kaggle's length, 16,384 x 26, p = 8").add(
        f"{design} {batches}", design=design, batches=batches, begin_s=round(seconds["begin"]),
        go_on_s=round(seconds["go on"]), replay_s=round(seconds["replay"]), peak_mb=peak_bytes // 10**6,
        file_mb=(tmp_path / "run.npz").stat().st_size // 10**6, makespan_s=round(report.makespan_s, 2),
    )  # fmt: skip


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

    def run() -> None:
        nonlocal value, same_owners
        for plan in batch_plans(criteo_like_trace(batches * BATCH), planning, PARAMETERS):
            assert plan.partition.value == values(plan)[objective]
            value += plan.partition.value
            same_owners += plan.partition.details["of_papers_optimum"]
            if plan.step.batch % BOUNDED == BOUNDED - 1:
                sharing = Sharing.of(Batch(plan.index, plan.owner, TRAINERS))
                bound = bound_of(sharing, capacities(BATCH, TRAINERS), Bound(BOUND_ROUNDS), Deadline(SolveOptions()))
                assert bound <= plan.partition.value
                gaps.append(1 - bound / plan.partition.value)

    with Ledger() as ledger:
        benchmark.pedantic(run, rounds=1)
    partition_s = sum(each_s for row, each_s in ledger.rows.items() if row not in ("lookahead", REST))
    paper = papers(ownership, batches)[objective]
    tables.table("bagpipe-objectives", "Objectives against the paper's optimum, Criteo-like, 16,384 x 26, p = 8").add(
        f"{objective} {ownership}", objective=objective, ownership=ownership, rows_a_batch=round(value / batches),
        papers_optimum=round(paper / batches), saved=f"{1 - value / paper:.1%}",
        saved_with_same_owners=f"{1 - value / same_owners:.1%}", gap=f"{np.mean(gaps):.1%}",
        partition_s=round(partition_s / batches, 2),
    )  # fmt: skip
    if objective == "fetches":
        assert value <= 0.85 * paper
        assert value <= 0.85 * same_owners
    else:
        assert value < paper
