"""A curve is closed: its cost never rises with the budget, and what is proven holds for every smaller one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hand_training import chain
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.monet.curve.rows import Row, closed
from gapless.encodings.monet.curve.sweep import sweep
from gapless.errors import SolverError
from gapless.options import SolveOptions
from gapless.solution import Status, StopReason


def row(budget_bytes: int, cost_s: float | None, bound_s: float | None, **known: Any) -> Row:
    status = Status.NO_SOLUTION if cost_s is None else Status.FEASIBLE
    overhead = None if cost_s is None else cost_s / 8 - 1  # eight seconds without a budget
    plan = None if cost_s is None else f"{budget_bytes}.json"
    known = {"status": status, "plan": plan, "overhead": overhead, **known}
    return Row(budget_bytes, budget_bytes / 100, cost_s=cost_s, bound_s=bound_s, **known)


KNOWN = st.tuples(st.one_of(st.none(), st.integers(10, 20)), st.integers(8, 10))


@given(st.dictionaries(st.integers(1, 99), KNOWN, min_size=1))
def test_cost_and_bound_never_rise_with_the_budget(known: dict[int, tuple[int | None, int]]) -> None:
    rows = closed([row(budget, cost, bound) for budget, (cost, bound) in known.items()], "s")
    costs = [its.cost_s for its in rows if its.cost_s is not None]
    bounds = [its.bound_s for its in rows if its.cost_s is not None]
    assert [its.budget_bytes for its in rows] == sorted(its.budget_bytes for its in rows)
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds, reverse=True)
    with_plan = [its.cost_s is not None for its in rows]
    assert with_plan == sorted(with_plan)


def test_dearer_plan_gives_way_to_that_of_the_smaller_budget_and_the_row_says_so() -> None:
    small, large = closed([row(40, 10.0, 9.0), row(60, 11.0, 9.5)], "s")
    assert (large.cost_s, large.plan, large.plan_budget_bytes) == (10.0, "40.json", 40)
    assert (small.plan_budget_bytes, small.bound_s, large.bound_s) == (None, 9.5, 9.5)
    assert small.gap == large.gap == pytest.approx(0.05)
    assert small.overhead_bound == pytest.approx(9.5 / 8 - 1)


def test_own_plan_and_bound_stay_as_they_are() -> None:
    rows = [row(40, 10.0, 9.5), row(60, 9.0, 8.5)]
    assert closed(rows, "s") == rows


def test_each_method_has_a_curve_and_all_share_what_is_proven() -> None:
    rows = [row(40, 10.0, 9.0), row(60, 9.5, 9.0), row(40, 12.0, 8.0, method="noop"), row(60, 13.0, 8.0, method="noop")]
    found = closed(rows, "s")
    assert [(its.method, its.budget_bytes, its.cost_s, its.bound_s) for its in found] == [
        ("auto", 40, 10.0, 9.0), ("auto", 60, 9.5, 9.0), ("noop", 40, 12.0, 9.0), ("noop", 60, 12.0, 9.0),
    ]  # fmt: skip


def test_nothing_fits_below_what_is_proven_too_little() -> None:
    known = {"status": Status.INFEASIBLE, "stop_reason": StopReason.FINISHED}
    found = closed([row(20, None, None, stop_reason=StopReason.TIME_LIMIT), row(30, None, None, **known)], "s")
    assert [its.status for its in found] == [Status.INFEASIBLE] * 2
    assert all(its.is_answer for its in found)


@pytest.mark.parametrize("larger", [row(60, 12.0, 11.0), row(60, None, None, status=Status.INFEASIBLE)])
def test_plan_that_refutes_a_proof_is_an_alarm(larger: Row) -> None:
    with pytest.raises(SolverError, match=r"budget 40: a plan of 10\.0 refutes .*, claimed for it or for more"):
        closed([row(40, 10.0, 9.0), larger], "s")


@pytest.mark.thorough
def test_methods_are_swept_side_by_side_into_one_table(tmp_path: Path) -> None:
    options = SolveOptions(gap=0.02, time_limit_s=60.0, threads=1)
    rows = sweep(chain(6), [45, 1000], options, 0, tmp_path, methods=("auto", "store-all"))
    assert [(its.method, its.budget_bytes) for its in rows] == [
        ("auto", 45), ("auto", 1000), ("store-all", 45), ("store-all", 1000),
    ]  # fmt: skip
    assert rows[2].status is Status.NO_SOLUTION
    assert all(its.is_answer for its in rows)
    assert rows[1].cost_s == rows[3].cost_s
    assert sweep(chain(6), [45], options, 0, tmp_path) == [rows[0]]
