"""The bound on a run's time holds for every partition, design and cache; that of partitions after their history."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import gapless
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.bound import first_uses, run_bound_s
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.designs.pipeline import pipeline
from gapless.encodings.bagpipe.parameters import Bound, Parameters
from gapless.encodings.bagpipe.problem import Planning, Problem
from gapless.encodings.bagpipe.question import BASELINES, DESIGNS, PLACEMENTS, SHARDED
from gapless.profiles.traces.named import find_trace
from gapless.profiles.traces.trace import Trace
from gapless.solution import PlanClass

Ints = NDArray[np.int64]

UNPROVEN = Parameters(bound=Bound(rounds=0))
SLOW_ROWS = Cluster(
    trainers=2, trainer_bytes_per_s=1.0, server_bytes_per_s=2.0, latency_s=0.5, row_bytes=1, forward_s=4.0,
    backward_s=6.0, pass_examples=2, dense_bytes=5, all_reduce_share=1.0, control_s=0.0,
)  # fmt: skip
CLUSTERS = (
    SLOW_ROWS,
    replace(SLOW_ROWS, fetch_latency_s=3.0, dense_bytes=0, latency_s=0.0),
    replace(SLOW_ROWS, servers=2, placement="colocated", forward_s=0.0, backward_s=0.0),
    replace(SLOW_ROWS, trainer_bytes_per_s=1e3, dense_bytes=100),
)


def small_trace(seed: int, batches: int) -> Trace:
    return find_trace(np.random.default_rng(seed).integers(6, size=(4 * batches, 2)))


def halves() -> list[Ints]:
    """Every way to give two of a batch's four examples to each of two trainers."""
    return [np.array([int(k in ones) for k in range(4)]) for ones in combinations(range(4), 2)]


def times_s(trace: Trace, planning: Planning, cluster: Cluster, partitions: tuple[Ints, ...]) -> tuple[float, float]:
    """The bound of a run, and how long it takes in these partitions."""
    plans = list(batch_plans(trace, planning, UNPROVEN, known=partitions))
    ids = [plan.step.ids for plan in plans]
    first, last = (np.array(list(first_uses(each))) for each in (ids, ids[::-1]))
    bound_s = run_bound_s(np.full(len(plans), 2), first, last[::-1], cluster)
    return bound_s, pipeline(counted(plans), cluster, planning.design).makespan_s


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("design", DESIGNS)
def test_no_partition_of_two_batches_in_any_design_beats_the_bound(seed: int, design: str) -> None:
    trace = small_trace(seed, 2)
    for partitions in product(halves(), repeat=2):
        for cluster in CLUSTERS:
            planning = Planning(2, 4, lookahead=1 + seed, objective="paper", design=design)
            bound_s, run_s = times_s(trace, planning, cluster, partitions)
            assert 0 < bound_s <= run_s * (1 + 1e-9)


@pytest.mark.parametrize("design", [*DESIGNS, *BASELINES])
def test_no_partition_of_longer_runs_in_any_cache_beats_the_bound(design: str) -> None:
    rng, known = np.random.default_rng(7), halves()
    cache = {"cache_rows": 12} if design in BASELINES else {"lookahead": 2}
    for seed in range(4):
        trace, chosen = small_trace(seed, 4), tuple(known[k] for k in rng.integers(len(known), size=4))
        for cluster in CLUSTERS:
            planning = Planning(2, 4, objective="paper", design=design, **cache)
            bound_s, run_s = times_s(trace, planning, cluster, chosen)
            assert bound_s <= run_s * (1 + 1e-9)


@examples(60, cases=8)
@given(
    seed=st.integers(0, 10**6), trainers=st.integers(1, 3), batch_size=st.integers(3, 7), batches=st.integers(1, 6),
    rows=st.integers(3, 40), design=st.sampled_from([*DESIGNS, *BASELINES, *SHARDED]), lookahead=st.integers(1, 4),
    placement=st.sampled_from(PLACEMENTS), bytes_per_s=st.sampled_from([1.0, 30.0, 1e4]),
    fetch_latency_s=st.sampled_from([0.0, 3.0]), dense_bytes=st.sampled_from([0, 5, 100]),
)  # fmt: skip
def test_no_replay_is_below_the_bound(
    seed: int, trainers: int, batch_size: int, batches: int, rows: int, design: str, lookahead: int, placement: str,
    bytes_per_s: float, fetch_latency_s: float, dense_bytes: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    trace = find_trace(rng.integers(rows, size=(batch_size * batches - int(rng.integers(2)), 2)))
    cache = {"lookahead": lookahead} if design in DESIGNS else {"cache_rows": 2 * rows} if design in BASELINES else {}
    cluster = replace(
        SLOW_ROWS, trainers=trainers, servers=trainers if placement == "colocated" else 1 + seed % 2,
        placement=placement, trainer_bytes_per_s=bytes_per_s, fetch_latency_s=fetch_latency_s, dense_bytes=dense_bytes,
    )  # fmt: skip
    planning = Planning(trainers, batch_size, design=design, method="random" if seed % 3 else "auto", **cache)
    result = gapless.solve(Problem(trace, planning, cluster), parameters=UNPROVEN)
    assert result.report is not None
    assert result.valid, result.report.summary()
    assert result.solution.bound is not None
    assert result.solution.bound <= result.report.makespan_s * (1 + 1e-9)


def test_many_new_rows_in_a_later_batch_count_as_those_of_the_first_do() -> None:
    """4 rows and 80 more at 2 a second, one pass of 1 s, and those 80 back."""
    cluster = replace(SLOW_ROWS, dense_bytes=0, forward_s=0.0, backward_s=1.0)
    rows = np.array([4, 80])
    bound_s = run_bound_s(np.array([2, 2]), rows, rows, cluster)
    assert bound_s == pytest.approx((0.5 + 84 / 2) + 1 + (0.5 + 80 / 2))
    assert bound_s > run_bound_s(np.array([2, 2]), np.array([4, 0]), rows, cluster)


def test_the_bound_is_reached_where_nothing_but_training_takes_time() -> None:
    cluster = replace(SLOW_ROWS, server_bytes_per_s=1e12, trainer_bytes_per_s=1e12, latency_s=0.0, dense_bytes=0)
    bound_s, run_s = times_s(small_trace(0, 3), Planning(2, 4, lookahead=2), cluster, (halves()[0],) * 3)
    assert bound_s == pytest.approx(run_s) == pytest.approx(30.0)


@pytest.mark.parametrize("design", ["lrpp-delayed", "partitioned"])
def test_the_time_of_a_run_has_a_bound_and_partitions_one_after_their_history(design: str) -> None:
    trace = small_trace(1, 6)
    result = gapless.bagpipe.solve(
        trace, trainers=2, batch_size=4, lookahead=2, batches=6, design=design, objective="fetches"
    )
    question, history = result.solution.bounds
    assert (question.plans, history.plans) == (PlanClass.QUESTION, PlanClass.HISTORY)
    assert question.value <= result.report.makespan_s
    assert result.solution.gap == pytest.approx(1 - question.value / result.report.makespan_s)
    assert (history.objective, history.unit) == (result.details["partition_cost"], "rows")
    assert history.value == result.details["partition_bound_after_history"] <= result.details["partition_cost"]
    assert "among plans of each batch after those before it, in partition cost" in result.summary()
    assert "partition bound " not in result.summary()


def test_replicated_tables_keep_to_the_bound_of_the_question() -> None:
    trace = find_trace("zipf", table_rows=[30, 50], examples=48)
    planning = Planning(2, 8, lookahead=2, batches=6)
    plain, replicated = (
        gapless.solve(Problem(trace, replace(planning, replicated=tables), SLOW_ROWS)) for tables in ((), (0,))
    )
    assert replicated.details["evicted_rows"] != plain.details["evicted_rows"]
    assert replicated.report.makespan_s >= plain.solution.bound * (1 - 1e-9)
    assert replicated.solution.bound == pytest.approx(plain.solution.bound)
