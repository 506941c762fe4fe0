"""How many examples a second traces are drawn and read at, looked ahead over and planned, on one core.

With the extra `fast` loops are compiled; `arrays` in a test's name is without.

Times are processor time of this process, so that other load on the machine doesn't count. Rates are in the column
`examples_per_s` of the extra information (`--benchmark-json`); `-s` prints them too.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rates import rate
from result_tables import ResultTables

from gapless.encodings.bagpipe import Batch, Planning, capacities, cost_matrix
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.designs.counts import Counts, row_of
from gapless.encodings.bagpipe.ids.distinct import positions, unique_ids
from gapless.encodings.bagpipe.lookahead.processes import lookahead_by_table
from gapless.encodings.bagpipe.lookahead.steps import lookahead_steps
from gapless.encodings.bagpipe.lowering.actions import Actions
from gapless.encodings.bagpipe.partition.transport import lower_bound
from gapless.profiles.traces.files import read_trace
from gapless.profiles.traces.generators import criteo_like_trace, skew_trace, zipf_trace
from gapless.profiles.traces.trace import Block, Trace, global_ids, trace_of_array

BATCH = 16_384
CRITEO_ROWS = criteo_like_trace(1).table_rows or ()

pytestmark = pytest.mark.benchmark(timer=time.process_time)


def report(benchmark: Any, examples: int) -> None:
    found = benchmark.extra_info["examples_per_s"] = rate(benchmark, examples)
    if found is not None:
        print(f"\n{benchmark.name}: {found / 1e6:.2f} M examples/s")


def kept_batches(count: int, batch_size: int) -> list[np.ndarray]:
    """Batches of a Criteo-like trace, half as wide to save memory."""
    trace = criteo_like_trace(count * batch_size, seed=1)
    return [batch.astype(np.int32, order="C") for batch in trace.batches(batch_size)]


@pytest.mark.parametrize(("lookahead", "batch_size"), [(5, BATCH), (50, BATCH), (200, BATCH), (5, 8 * BATCH)])
def test_lookahead(benchmark: Any, loops: str, lookahead: int, batch_size: int) -> None:
    """All lists of every batch, from start-up to the end of the trace."""
    batches = kept_batches(max(lookahead + 100, 2 * lookahead) if batch_size == BATCH else 30, batch_size)

    def run() -> tuple[int, int, int]:
        fetched = evicted = updated = 0
        wide: Iterator[Block] = (batch.astype(np.int64) for batch in batches)
        for step in lookahead_steps(wide, lookahead):
            fetched += len(step.prefetch_ids)
            evicted += int(step.evicted.sum())
            updated += int((~step.evicted).sum())
        return fetched, evicted, updated

    fetched, evicted, updated = benchmark.pedantic(run, rounds=2, warmup_rounds=loops == "compiled")
    assert fetched == evicted
    distinct = [unique_ids(batch.astype(np.int64))[0] for batch in batches]
    assert evicted + updated == sum(map(len, distinct))
    before = [np.concatenate([np.zeros(0, np.int64), *distinct[max(0, b - lookahead) : b]]) for b in (0, 1, lookahead)]
    expected = [len(np.setdiff1d(distinct[b], seen)) for b, seen in zip((0, 1, lookahead), before, strict=True)]
    wide = (batch.astype(np.int64) for batch in batches)
    first = [int(step.prefetched.sum()) for step in islice(lookahead_steps(wide, lookahead), lookahead + 1)]
    assert expected == [first[0], first[1], first[lookahead]]
    report(benchmark, len(batches) * batch_size)


@pytest.mark.parametrize("objective", ["paper", "synchronised", "time"])
@pytest.mark.usefixtures("keep_tables")
def test_planning(benchmark: Any, tables: ResultTables, loops: str, objective: str) -> None:
    """Lookahead, partition for 8 trainers, sets, counts and actions of 40 batches; none of them is kept."""
    trace = trace_of_array(np.concatenate(kept_batches(40, BATCH)))
    design = "lrpp-fine-grained" if objective == "time" else "lrpp-delayed"
    planning = Planning(8, BATCH, lookahead=10, objective=objective, design=design)

    def run() -> tuple[int, int]:
        cost, rows = 0, []
        for plan in batch_plans(trace, planning):
            assert Actions.of(plan, design).examples.sum() == BATCH
            rows.append(row_of(plan, design))
            cost += plan.partition.value
        return cost, int(Counts.of(8, rows).distinct.sum())

    found = benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    proven, distinct = (found[0] if objective == "time" else 0), 0  # messages have no bound
    for plan in batch_plans(trace, planning):
        if objective == "paper":
            cost = cost_matrix(Batch(plan.index, plan.owner, 8))
            proven += lower_bound(cost, capacities(BATCH, 8), plan.partition.prices)
        elif objective == "synchronised":
            proven += plan.partition.bound
        distinct += len(plan.step.ids)
    assert found[1] == distinct
    assert proven == found[0] if objective == "paper" else 0 < proven <= found[0]
    begin_s = time.process_time()
    run()
    ms = 1e3 * (time.process_time() - begin_s) / 40
    tables.table("bagpipe-speed", "Planning a batch, processor time").add(
        f"{objective} {loops}", objective=objective, loops=loops, cpu_ms=round(ms, 1)
    )
    report(benchmark, 40 * BATCH)


def test_distinct_ids(benchmark: Any) -> None:
    batch = next(criteo_like_trace(BATCH).batches(BATCH)).copy()
    ids, _ = benchmark.pedantic(unique_ids, args=(batch,), rounds=20, warmup_rounds=2)
    assert np.array_equal(ids, np.unique(global_ids(batch)))
    report(benchmark, BATCH)


def test_positions_among_distinct_ids(benchmark: Any) -> None:
    batch = next(criteo_like_trace(BATCH).batches(BATCH)).copy()
    ids, bounds = unique_ids(batch)
    places = benchmark.pedantic(positions, args=(ids, bounds, batch), rounds=20, warmup_rounds=2)
    assert np.array_equal(ids[places], global_ids(batch))
    report(benchmark, BATCH)


@pytest.mark.parametrize(
    "make",
    [
        criteo_like_trace,
        lambda examples: zipf_trace(CRITEO_ROWS, 1.0, examples),
        lambda examples: zipf_trace(CRITEO_ROWS, 5.0, examples),
        lambda examples: skew_trace(CRITEO_ROWS, 0.4, examples),
    ],
    ids=["criteo-like", "zipf-1", "zipf-5", "skew-0.4"],
)
def test_generators(benchmark: Any, make: Callable[[int], Trace]) -> None:
    trace = make(20 * BATCH)
    count = benchmark.pedantic(lambda: sum(map(len, trace.batches(BATCH))), rounds=3, warmup_rounds=1)
    assert count == 20 * BATCH
    report(benchmark, count)


@pytest.mark.parametrize("name", ["t.npy", "t.npz", "t.csv", "t.csv.gz"])
def test_readers(benchmark: Any, name: str, tmp_path: Path) -> None:
    """26 tables; in the csv a third of them as text."""
    count = (2 if "csv" in name else 20) * BATCH
    ids = np.concatenate(list(criteo_like_trace(count).batches(BATCH)))
    columns = [f"c{number}" for number in range(26)]
    if name.endswith("npy"):
        np.save(tmp_path / name, ids)
    elif name.endswith("npz"):
        np.savez(tmp_path / name, ids)
    else:
        np.savetxt(
            tmp_path / name, ids, ["%d", "%d", "x%x"] * 8 + ["%d"] * 2, ",", header=",".join(columns), comments=""
        )
    trace = read_trace(tmp_path / name, columns if "csv" in name else ())
    read = benchmark.pedantic(lambda: list(trace.batches(BATCH)), rounds=2)
    whole = np.concatenate(read)
    assert np.array_equal(whole[:, 0], ids[:, 0])
    assert all(len(np.unique(mine)) == len(np.unique(own)) for mine, own in zip(whole.T, ids.T, strict=True))
    report(benchmark, count)


@pytest.mark.skipif(os.name == "nt", reason="processor time of ended processes is Unix")
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_lookahead_by_table(benchmark: Any, processes: int) -> None:
    """What each process takes for its tables, beside what handing out columns and joining steps takes."""
    batches = [batch.astype(np.int64) for batch in kept_batches(150, BATCH)]
    tables = batches[0].shape[1]

    def ended_s() -> float:
        found = resource.getrusage(resource.RUSAGE_CHILDREN)
        return found.ru_utime + found.ru_stime

    before_s = ended_s()
    assert [step.batch for step in lookahead_by_table(batches[:1], tables, 50, processes)] == [0]
    start_s = (ended_s() - before_s) / processes  # of a process, without work
    before_s = ended_s()
    fetched = benchmark.pedantic(
        lambda: sum(len(step.prefetch_ids) for step in lookahead_by_table(batches, tables, 50, processes)), rounds=1
    )
    each_s = (ended_s() - before_s) / processes - start_s
    ours_s = float(benchmark.stats.stats.mean) if benchmark.stats is not None else float("nan")
    benchmark.extra_info["process_s"] = each_s
    each_ms, ours_ms = (1e3 * time_s / len(batches) for time_s in (each_s, ours_s))
    print(f"\n{processes} processes: {each_ms:.1f} ms a batch in each, {ours_ms:.1f} in the caller's")
    assert fetched == sum(len(step.prefetch_ids) for step in lookahead_steps(batches, 50))
