"""What a backend claims and what a Solution says of it: `answer` is the one place where this is decided."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solution import Bound, PlanClass, Solution, Status, StopReason, claim_of, settled_bound
from gapless.solvers.backend import Task, answer, as_minimisation, from_minimisation


def _task(maximize: bool = False, offset: float = 0.0) -> Task:
    """Two columns, x integer and y real, both in 0..10, costs 1 and 2."""
    model = Model("claims")
    x, y = model.integers("x", upper=10), model.continuous("y", upper=10.0)
    (model.maximize if maximize else model.minimize)((1, x), (2, y), offset=offset)
    options = SolveOptions(seed=3)
    return Task(model, model.arrays(), options, Deadline(options), solver="test", version="1.0")


def _claim(
    claim: Status, values: list[float] | None = None, bound: float | None = None,
    stop: StopReason = StopReason.FINISHED, maximize: bool = False,
) -> Solution:  # fmt: skip
    point = None if values is None else np.array(values)
    return answer(_task(maximize), claim, stop, point, bound)


def test_the_objective_comes_from_the_values() -> None:
    solution = answer(_task(offset=0.5), Status.OPTIMAL, values=np.array([4.0, 1.0]), bound=6.5)
    assert solution.objective == 6.5
    assert solution.status is Status.OPTIMAL
    assert (solution.solver, solution.version, solution.seed) == ("test", "1.0", 3)


def test_a_claim_of_optimal_short_of_its_bound_is_feasible() -> None:
    solution = _claim(Status.OPTIMAL, [4, 3], bound=9.9)
    assert (solution.status, solution.stop_reason) == (Status.FEASIBLE, StopReason.GAP_REACHED)
    assert solution.gap == pytest.approx(0.01)


def test_a_bound_that_meets_the_objective_is_a_proof_whatever_stopped_the_search() -> None:
    solution = _claim(Status.FEASIBLE, [4, 3], bound=10.0, stop=StopReason.TIME_LIMIT)
    assert (solution.status, solution.stop_reason) == (Status.OPTIMAL, StopReason.FINISHED)


def test_a_gap_of_a_millionth_is_the_border_of_optimal() -> None:
    assert _claim(Status.OPTIMAL, [4, 3], bound=10 - 9e-6).status is Status.OPTIMAL
    assert _claim(Status.OPTIMAL, [4, 3], bound=10 - 2e-5).status is Status.FEASIBLE


def test_a_bound_on_the_wrong_side_by_rounding_moves_to_the_objective() -> None:
    assert _claim(Status.OPTIMAL, [4, 3], bound=10 + 1e-7).bound == 10
    assert _claim(Status.OPTIMAL, [4, 3], bound=10 - 1e-7, maximize=True).bound == 10


def test_a_bound_that_the_values_disprove_is_dropped() -> None:
    solution = _claim(Status.OPTIMAL, [4, 3], bound=12.0)
    assert solution.bound is None
    assert solution.status is Status.FEASIBLE


@pytest.mark.parametrize("bound", [np.inf, -np.inf, 1e30, None])
def test_an_infinite_bound_is_unknown(bound: float | None) -> None:
    solution = _claim(Status.FEASIBLE, [4, 3], bound=bound, stop=StopReason.TIME_LIMIT)
    assert solution.bound is None
    assert solution.gap is None
    assert solution.stop_reason is StopReason.TIME_LIMIT


def test_nothing_found_keeps_its_bound_and_reason() -> None:
    solution = _claim(Status.FEASIBLE, None, bound=2.0, stop=StopReason.INTERRUPTED)
    assert (solution.status, solution.stop_reason) == (Status.NO_SOLUTION, StopReason.INTERRUPTED)
    assert solution.bound == 2
    assert not solution.has_values


@pytest.mark.parametrize("claim", [Status.INFEASIBLE, Status.UNBOUNDED])
def test_a_proof_that_there_is_no_optimum_has_no_numbers(claim: Status) -> None:
    solution = _claim(claim, [4, 3], bound=2.0)
    assert solution.status is claim
    assert (solution.values, solution.objective, solution.bound) == (None, None, None)


def test_integers_are_rounded_where_they_nearly_are_and_bounds_kept() -> None:
    values = _claim(Status.OPTIMAL, [3.9999999, 10.0000001], bound=24.0).values
    assert values is not None
    assert values.tolist() == [4, 10]
    rough = _claim(Status.FEASIBLE, [3.9, -1e-9]).values
    assert rough is not None
    assert rough.tolist() == [3.9, 0]
    assert not np.signbit(rough).any()


@pytest.mark.parametrize("maximize", [False, True])
def test_a_minimisation_gives_its_objective_back(maximize: bool) -> None:
    model = Model("tiny")
    x = model.continuous("x", 2, upper=1.0)
    goal = model.maximize if maximize else model.minimize
    goal((np.array([3e-7, -2e-7]), x), offset=1.0)
    arrays = model.arrays()
    plain = as_minimisation(arrays)
    assert not plain.maximize
    assert np.abs(plain.cost).max() >= 1
    point = np.array([0.5, 0.25])
    assert from_minimisation(arrays, plain.objective(point)) == pytest.approx(arrays.objective(point), rel=1e-14)


@pytest.mark.parametrize(
    ("objective", "bound", "settled"),
    [
        (2.0, None, None), (2.0, 1.5, 1.5), (2.0, 2.0 - 1e-9, 2.0), (2.0, 2.0 + 1e-9, 2.0), (2.0, 2.1, None),
        (0.0, 1e-18, 0.0),
    ],
)  # fmt: skip
def test_a_bound_is_settled_by_a_plan(objective: float, bound: float | None, settled: float | None) -> None:
    assert settled_bound(objective, bound) == settled


@pytest.mark.parametrize(
    ("bound", "status", "reason"),
    [
        (2.0, Status.OPTIMAL, StopReason.FINISHED),
        (1.99, Status.FEASIBLE, StopReason.GAP_REACHED),
        (1.5, Status.FEASIBLE, StopReason.WORK_LIMIT),
        (2.1, Status.FEASIBLE, StopReason.CONTRADICTED),
    ],
)
def test_what_is_claimed_of_a_plan(bound: float, status: Status, reason: StopReason) -> None:
    claim = claim_of(2.0, bound, SolveOptions(gap=0.01), solver="test", version="1.0", wall_s=0.0)
    assert (claim.status, claim.stop_reason) == (status, reason)
    assert claim.bound == (None if reason is StopReason.CONTRADICTED else bound)


def _asked(bound: float | None, *narrower: Bound, gap: float = 0.0) -> Solution:
    return claim_of(
        10.0, bound, SolveOptions(gap=gap), solver="s", version="1", wall_s=0.0, source="cuts", narrower=narrower
    )  # fmt: skip


def test_classes_stand_from_the_widest_to_the_narrowest_and_say_more_each() -> None:
    chunks, sketch = Bound(PlanClass.CHUNKS, 9.0, name="in 1 chunk"), Bound(PlanClass.SKETCH, 8.0, name="under s")
    solution = _asked(7.0, chunks, Bound(PlanClass.PLACEMENT, 7.5, name="no more than the sketch"), sketch)
    assert [one.plans for one in solution.bounds] == [PlanClass.QUESTION, PlanClass.SKETCH, PlanClass.CHUNKS]
    assert [one.value for one in solution.bounds] == [7.0, 8.0, 9.0]
    assert solution.bounds[0].source == "cuts"
    assert solution.gap == pytest.approx(0.3)
    assert (solution.status, solution.proven_class) == (Status.FEASIBLE, None)


def test_optimal_is_of_the_question_and_a_narrower_proof_has_its_class() -> None:
    narrow = Bound(PlanClass.CUT, 10.0, name="with this cut")
    assert _asked(8.0, narrow).status is Status.FEASIBLE
    assert _asked(8.0, narrow).proven_class is PlanClass.CUT
    assert _asked(8.0, narrow).stop_reason is StopReason.CLASS_EXHAUSTED
    assert (_asked(10.0, narrow).status, _asked(10.0, narrow).narrower) == (Status.OPTIMAL, ())
    assert _asked(None, narrow).gap is None
    assert _asked(None, narrow).proven_class is PlanClass.CUT


@pytest.mark.parametrize(
    ("gap", "reason"),
    [(0.05, StopReason.WORK_LIMIT), (0.1, StopReason.CLASS_EXHAUSTED), (0.2, StopReason.GAP_REACHED)],
)
def test_the_gap_counts_against_the_question_and_a_class_that_leaves_less_is_exhausted(
    gap: float, reason: StopReason
) -> None:
    assert _asked(8.0, Bound(PlanClass.CHUNKS, 9.0), gap=gap).stop_reason is reason


def test_a_narrower_bound_that_the_plan_refutes_is_dropped_and_said() -> None:
    solution = _asked(8.0, Bound(PlanClass.CHUNKS, 11.0))
    assert (solution.narrower, solution.stop_reason) == ((), StopReason.CONTRADICTED)


def test_a_bound_on_something_else_is_kept_with_its_own_gap() -> None:
    rows = Bound(PlanClass.HISTORY, 90.0, objective=100.0, unit="rows")
    solution = _asked(8.0, rows)
    assert solution.narrower == (rows,)
    assert solution.gap_of(rows) == pytest.approx(0.1)
