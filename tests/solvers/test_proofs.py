"""What is called optimal or infeasible was proven twice; what wasn't says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solution import Solution, Status, StopReason
from gapless.solvers import proofs
from gapless.solvers.proofs import confirmed, dual_bound, solve_proven
from gapless.solvers.registry import solve_model


def _knapsack(capacity: float = 11.0, least: float = 0.0) -> Model:
    """Values 6, 10, 12, 13 of weights 1, 2, 3, 5.5, most value within the capacity; at least `least` of weight."""
    model = Model("knapsack")
    taken = model.binaries("taken", 4)
    model.add("weight", (np.array([1, 2, 3, 5.5])[None, :], taken[None, :]), lower=least, upper=capacity)
    model.maximize((np.array([6.0, 10.0, 12.0, 13.0]), taken))
    return model


def _transport(maximize: bool) -> Model:
    """Two sources, two sinks; the cheapest, or the dearest, plan of sending 5 units each."""
    model = Model("transport")
    flow = model.continuous("flow", (2, 2), upper=8.0)
    model.add("sent", (1, flow), lower=5.0, upper=5.0)
    model.add("received", (1, flow.T), upper=7.0)
    cost = (np.array([[1.0, 4.0], [2.0, 3.0]]), flow)
    (model.maximize if maximize else model.minimize)(cost)
    return model


def test_a_true_optimum_stays_one() -> None:
    solution = solve_proven(_knapsack())
    assert (solution.status, solution.objective) == (Status.OPTIMAL, 35.0)


def test_a_true_infeasibility_stays_one() -> None:
    assert solve_proven(_knapsack(least=12.0, capacity=12.5)).status is Status.INFEASIBLE


def test_an_optimum_that_a_second_solve_beats_is_no_proof() -> None:
    model = _knapsack()
    claimed = replace(solve_model(model), values=np.array([1.0, 1, 1, 0]), objective=28.0, bound=28.0)
    answer = confirmed(model, claimed, SolveOptions())
    assert (answer.status, answer.objective) == (Status.FEASIBLE, 35.0)
    assert answer.bound == pytest.approx(35.0)


def test_an_infeasibility_that_a_second_solve_refutes_is_no_proof() -> None:
    model = _knapsack()
    claimed = Solution(Status.INFEASIBLE, StopReason.FINISHED, "highs", "", 0, 0.0)
    answer = confirmed(model, claimed, SolveOptions())
    assert (answer.status, answer.objective) == (Status.FEASIBLE, 35.0)


def test_without_time_for_a_second_look_there_is_no_claim(hard: Model) -> None:
    options = SolveOptions(step_limit=1)
    infeasible = Solution(Status.INFEASIBLE, StopReason.FINISHED, "highs", "", 0, 0.0)
    assert confirmed(hard, infeasible, options).status in (Status.NO_SOLUTION, Status.FEASIBLE)
    point = solve_model(hard, SolveOptions(step_limit=50))
    assert point.values is not None
    optimal = replace(point, status=Status.OPTIMAL, bound=point.objective)
    answer = confirmed(hard, optimal, options)
    assert answer.status is Status.FEASIBLE
    assert answer.bound is None or answer.bound < point.objective


@pytest.mark.parametrize("maximize", [False, True])
def test_the_prices_of_a_linear_program_prove_its_optimum(maximize: bool) -> None:
    model = _transport(maximize)
    solution = solve_model(model)
    assert solution.row_prices is not None
    assert dual_bound(model.arrays(), solution.row_prices) == pytest.approx(solution.objective)


@pytest.mark.parametrize("maximize", [False, True])
def test_no_prices_prove_too_much(maximize: bool) -> None:
    model = _transport(maximize)
    best, random = solve_model(model).objective, np.random.default_rng(5)
    assert best is not None
    for _ in range(100):
        bound = dual_bound(model.arrays(), random.normal(0, 3, model.row_count))
        assert bound >= best - 1e-9 if maximize else bound <= best + 1e-9


def test_a_start_that_is_better_than_the_claimed_optimum_is_the_answer_without_a_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, start = _knapsack(), np.array([0.0, 1, 1, 1])
    worse = replace(solve_model(model), values=np.array([1.0, 1, 1, 0]), objective=28.0, bound=28.0)
    monkeypatch.setattr(proofs, "solve_model", lambda *arguments: worse)
    answer = solve_proven(model, start=start)
    assert (answer.status, answer.objective) == (Status.FEASIBLE, 35.0)
    assert answer.stop_reason is StopReason.CONTRADICTED
    assert answer.bound is None


def test_a_start_where_there_should_be_none_is_the_answer_without_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    none = Solution(Status.INFEASIBLE, StopReason.FINISHED, "highs", "", 0, 0.0)
    monkeypatch.setattr(proofs, "solve_model", lambda *arguments: none)
    answer = solve_proven(_knapsack(), start=np.array([0.0, 1, 1, 1]))
    assert (answer.status, answer.objective) == (Status.FEASIBLE, 35.0)
    assert answer.stop_reason is StopReason.CONTRADICTED
