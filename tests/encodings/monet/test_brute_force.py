"""The full ILP, the bound and the local search against trying everything, on 300 graphs of up to six operators."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from linear_relaxation import linear_optimum
from tiny_training import MIB, cheapest_s, keep_all, training_graphs

import gapless
from gapless import SolveOptions, Status
from gapless.encodings.monet import Problem
from gapless.encodings.monet.bounds import relaxation
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.ilp import model as ilp
from gapless.encodings.monet.parameters import Bounding, Cooling, Parameters
from gapless.profiles.training.graph import TrainingGraph
from gapless.solvers.registry import solve_model

PARAMETERS = Parameters(
    bounding=Bounding(small_cells=0), cooling=Cooling(steps_per_node=5, patience=2), least_budget_steps=100
)
"""Without the exact part, which would hide what the search finds on graphs as small as these, and with so few steps of
the search that not all plans are the best."""


@examples(100, suppress_health_check=[HealthCheck.too_slow])
@given(graph=training_graphs(6), less_mib=st.integers(0, 20), windows=st.integers(1, 3))
def test_all_agree_with_exhaustive_search(graph: TrainingGraph, less_mib: int, windows: int) -> None:
    budget_bytes = max(1, evaluate(graph, keep_all(graph)).peak_bytes - less_mib * MIB)
    best_s = cheapest_s(graph, budget_bytes)
    _assert_ilp_finds_it(graph, budget_bytes, best_s)
    _assert_bound_is_not_above(graph, budget_bytes, best_s, windows)
    _assert_search_is_within_its_gap(graph, budget_bytes, best_s)


def _assert_ilp_finds_it(graph: TrainingGraph, budget_bytes: int, best_s: float | None) -> None:
    model = ilp.encode(graph, budget_bytes)
    solution = solve_model(model.milp, SolveOptions(threads=1))
    if best_s is None:
        assert solution.status is Status.INFEASIBLE
        return
    assert solution.objective is not None
    assert solution.objective * model.unit == pytest.approx(best_s, abs=1e-10)
    decisions = ilp.decode(model, solution.values)
    found = evaluate(graph, decisions)
    assert found.faults == ()
    assert found.peak_bytes <= budget_bytes
    assert found.cost_s == pytest.approx(best_s, abs=1e-10)
    assert model.milp.arrays().violation(ilp.first_point(model, decisions)) < 1e-9
    assert linear_optimum(model.milp) <= solution.objective + 1e-6


def _assert_bound_is_not_above(graph: TrainingGraph, budget_bytes: int, best_s: float | None, windows: int) -> None:
    cuts = tuple(range(1, 1 + min(windows, len(graph.backward))))
    model = relaxation.encode(graph, budget_bytes, cuts)
    solution = solve_model(model.milp, SolveOptions(threads=1, time_limit_s=30.0))
    if solution.status is Status.INFEASIBLE:
        assert best_s is None
    elif best_s is not None:
        assert solution.bound is not None
        assert solution.bound * model.unit_s <= best_s * (1 + 1e-6) + 1e-12


def _assert_search_is_within_its_gap(graph: TrainingGraph, budget_bytes: int, best_s: float | None) -> None:
    result = gapless.solve(Problem(graph, budget_bytes), SolveOptions(threads=1, gap=0.0), PARAMETERS)
    if best_s is None:
        assert result.schedule is None
        return
    assert result.status is not Status.INFEASIBLE
    if result.schedule is not None:
        assert result.report is not None
        assert result.valid, result.report.summary()
        cost_s, gap = result.report.makespan_s, result.solution.gap
        assert cost_s * (1 - (1.0 if gap is None else gap)) - 1e-12 <= best_s <= cost_s * (1 + 1e-9)
        assert result.status is not Status.OPTIMAL or cost_s == pytest.approx(best_s, rel=2e-6, abs=1e-12)
