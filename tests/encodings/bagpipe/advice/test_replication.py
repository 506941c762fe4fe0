"""Tables that stay on every trainer: what they move, what they save, and which are chosen for a budget."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gapless
from gapless import bagpipe
from gapless.checker import check
from gapless.encodings.bagpipe.advice.replication import choose_replicated, saved_s
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.lowering.actions import EVERYWHERE, NOT_FETCHED, Actions
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.problem import Planning, Problem
from gapless.encodings.bagpipe.solve import solve
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace import TABLE_SHIFT, Trace, trace_of_array, with_table_rows

ROWS = (12, 300, 40, 2000)
PLANNING = Planning(3, 20, lookahead=2, method="contiguous")
CLUSTER = Cluster(3, row_bytes=64, server_bytes_per_s=1e6, trainer_bytes_per_s=4e6)


def actions_of(plan: Any) -> list[Actions]:
    """Of each batch of a plan or a result."""
    return [plan.windows.actions(number) for number in range(plan.windows.count)]


def a_trace(pooling: Any = None) -> Trace:
    return zipf_trace(ROWS, 1.2, 20 * 15, seed=2, pooling=pooling)


def networks_s(actions: list[Actions]) -> float:
    """Seconds on the networks, from what the trainers do; without latencies and dense gradients."""
    total_s = 0.0
    for batch in actions:
        everywhere, by_any = batch.fetched_by == EVERYWHERE, batch.fetched_by != NOT_FETCHED
        rows = int(by_any.sum()) + 2 * int(everywhere.sum()) + int(batch.evicted.sum())
        ring_s = 2 * 2 / 3 / (CLUSTER.trainer_bytes_per_s * CLUSTER.all_reduce_share)
        total_s += 64 * (rows / CLUSTER.server_bytes_per_s + int((batch.sync > 0).sum()) * ring_s)
    return total_s


@pytest.mark.parametrize("replicated", [(), (0,), (1, 3), (0, 1, 2, 3)])
def test_a_run_replays_and_its_replicated_rows_move_once(replicated: tuple[int, ...]) -> None:
    planning = Planning(3, 20, lookahead=2, method="contiguous", replicated=replicated)
    found = solve(Problem(a_trace(), planning, CLUSTER), SolveOptions())
    assert found.schedule is not None
    assert check(found.schedule).valid
    ids = np.concatenate([batch.ids[batch.fetched_by != NOT_FETCHED] for batch in actions_of(found)])
    gone = np.concatenate([batch.ids[batch.evicted == 1] for batch in actions_of(found)])
    for moved in (ids, gone):
        of_replicated = moved[np.isin(moved >> TABLE_SHIFT, replicated)]
        assert len(np.unique(of_replicated)) == len(of_replicated)
    for batch in actions_of(found):
        assert (batch.private_to[np.isin(batch.ids >> TABLE_SHIFT, replicated)] == -1).all()


def test_cached_tables_are_planned_as_without_the_others() -> None:
    ids = np.concatenate(list(a_trace().blocks()))
    alone = batch_plans(trace_of_array(ids[:, [0, 2]]), PLANNING)
    both = batch_plans(a_trace(), Planning(3, 20, lookahead=2, method="contiguous", replicated=(1, 3)))
    for one, other in zip(alone, both, strict=True):
        cached = ~np.isin(other.step.ids >> TABLE_SHIFT, (1, 3))
        table = other.step.ids[cached] >> TABLE_SHIFT
        renumbered = other.step.ids[cached] - ((table - table // 2) << TABLE_SHIFT)
        np.testing.assert_array_equal(one.step.ids, renumbered)
        for name in ("prefetched", "evicted", "in_next"):
            np.testing.assert_array_equal(getattr(one.step, name), getattr(other.step, name)[cached])
        np.testing.assert_array_equal(one.is_private, other.is_private[cached])


@pytest.mark.thorough("None")
@pytest.mark.parametrize("pooling", [None, [1, 3, 2, 1]])
def test_what_a_table_saves_is_what_the_run_saves(pooling: Any) -> None:
    """Of every set of tables: the sum of what each saves, to the last row."""
    trace = a_trace(pooling)
    saved = saved_s(batch_plans(trace, PLANNING), CLUSTER, 4)

    def run_s(replicated: tuple[int, ...]) -> float:
        planning = Planning(3, 20, lookahead=2, method="contiguous", replicated=replicated)
        return networks_s(actions_of(solve(Problem(trace, planning, CLUSTER), SolveOptions())))

    nothing_s = run_s(())
    for count in range(1, 5):
        for replicated in combinations(range(4), count):
            assert nothing_s - run_s(replicated) == pytest.approx(saved[list(replicated)].sum(), abs=1e-9)


@pytest.mark.parametrize("budget_rows", [12, 52, 311, 352, 2012, 2400])
def test_the_choice_is_the_best_of_all_sets(budget_rows: int) -> None:
    found = choose_replicated(a_trace(), PLANNING, CLUSTER, budget_rows * 64, Parameters(), Deadline(SolveOptions()))
    saved = saved_s(batch_plans(a_trace(), PLANNING), CLUSTER, 4)
    sets = [each for count in range(5) for each in combinations(range(4), count)]
    fitting = [each for each in sets if sum(ROWS[table] for table in each) <= budget_rows]
    best_s = max(saved[list(each)].sum() for each in fitting)
    assert found.saved_s == pytest.approx(best_s)
    assert found.bound_s == pytest.approx(best_s, rel=1e-6)
    assert found.size_bytes == 64 * sum(ROWS[table] for table in found.tables) <= budget_rows * 64


def test_a_budget_chooses_tables_that_the_plan_names(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "trainers": 3, "batch_size": 20, "lookahead": 2, "dimension": 16, "server_bandwidth": 1e6, "batches": 15,
    }  # fmt: skip
    plain = bagpipe.solve(a_trace(), **asked)
    plan = bagpipe.solve(a_trace(), **asked, replicate_budget=52 * 64)
    assert plan.report.valid
    assert set(plan.details["replicated_tables"]) <= {"table0", "table2"}
    plan.save(tmp_path / "run.npz")
    assert plan.decision == gapless.load(tmp_path / "run.npz").decision
    assert list(plan.decision.replicated_tables) == plan.details["replicated_tables"] != []
    assert plan.details["replicated_bytes"] <= 52 * 64
    assert 0 < plan.details["replication_saved_s"] <= plan.details["replication_bound_s"]
    assert plan.details["fetched_rows"] < plain.details["fetched_rows"]


@pytest.mark.parametrize(
    ("trace", "changes", "budget", "rule"),
    [
        (a_trace(), {}, 11 * 192, "replicate_budget: must hold a table; the smallest has 2,304 bytes on each trainer"),
        (np.ones((40, 2), dtype=int), {}, 10**6, "replicate_budget: needs the rows of each table of the trace"),
        (a_trace(), {"design": "partitioned"}, 10**6, "goes with a design of replicated, lrpp, lrpp-delayed, got part"),
    ],
)
def test_budget_that_chooses_nothing_is_refused(trace: Any, changes: Any, budget: int, rule: str) -> None:
    with pytest.raises(InputError, match=re.escape(rule)):
        bagpipe.solve(trace, trainers=3, batch_size=20, replicate_budget=budget, **changes)


@pytest.mark.parametrize("replicated", [(4,), (1, 1), (-1,)])
def test_tables_that_are_not_there_are_refused(replicated: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"replicated: must be different tables, 0\.\.3, got"):
        next(batch_plans(a_trace(), Planning(3, 20, lookahead=2, replicated=replicated)))


def test_designs_that_hold_rows_elsewhere_replicate_none() -> None:
    planning = Planning(3, 20, lookahead=2, replicated=(1,), design="partitioned")
    with pytest.raises(InputError, match="replicated: goes with a design of replicated, lrpp, lrpp-delayed, got part"):
        next(batch_plans(a_trace(), planning))


def test_rows_of_a_table_may_be_given_for_a_trace_that_has_none() -> None:
    trace = with_table_rows(trace_of_array(np.array([[3, 1], [2, 4]])), [4, 5])
    assert trace.table_rows == (4, 5)
    assert next(trace.batches(2)).tolist() == [[3, 1], [2, 4]]
    with pytest.raises(InputError, match="array: table 'table1': ids must be below its 4 rows, got 4"):
        next(with_table_rows(trace_of_array(np.array([[3, 1], [2, 4]])), [4, 4]).batches(2))
