"""Two solves of one question: the better plan is kept, with what both have proven."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.sweeps import Row
from gapless.sweeps.results import joined


def row(objective_s: float | None, bound_s: float | None, **known: Any) -> Row:
    plan = None if objective_s is None else "plan.json"
    found = {"status": "feasible" if plan else "no_solution", "stop_reason": "time_limit", "solve_s": 2.0, **known}
    return Row("hash", "monet", {}, (), objective_s=objective_s, bound_s=bound_s, plan=plan, **found)


def test_the_better_plan_and_the_better_bound_are_kept() -> None:
    early = row(10.0, 6.0, stop_reason="interrupted", solve_s=5.0)
    for later, objective_s, bound_s in (
        (row(12.0, 8.0), 10.0, 8.0),
        (row(9.0, 5.0), 9.0, 6.0),
        (row(None, 7.0), 10.0, 7.0),
    ):
        found = joined(early, later)
        assert (found.objective_s, found.bound_s, found.stop_reason) == (objective_s, bound_s, "time_limit")
        assert found.gap == pytest.approx(1 - bound_s / objective_s)
        assert (found.solve_s, found.plan) == (7.0, "plan.json")


@pytest.mark.parametrize("unit", ["j", "error"])
def test_joules_and_errors_are_compared_as_seconds_are(unit: str) -> None:
    def claimed(cost: float) -> Row:
        return Row("hash", "monet", {}, (), **{f"objective_{unit}": cost, f"bound_{unit}": 4.0}, plan="p")

    one, other = claimed(8.0), claimed(9.0)
    assert (joined(one, other).objective, joined(one, other).gap) == (8.0, 0.5)
    assert (one.unit, one.objective, one.bound) == (unit, 8.0, 4.0)


def test_a_proof_that_nothing_fits_and_a_broken_plan_stand_by_themselves() -> None:
    early = row(10.0, 6.0)
    for later in (row(None, None, status="infeasible"), row(None, None, violations=2)):
        assert joined(early, later) is later
    assert joined(row(None, 6.0), row(12.0, 8.0)) == row(12.0, 8.0)
