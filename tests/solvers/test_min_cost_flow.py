"""Minimum-cost flow through both doors: arrays, and models that are networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solution import Status, StopReason
from gapless.solvers import min_cost_flow as min_cost_flow_module
from gapless.solvers.min_cost_flow import min_cost_flow
from gapless.solvers.registry import solve_model

INF = np.inf


def test_the_cheaper_path_is_filled_first() -> None:
    flow = min_cost_flow([0, 0, 1], [1, 2, 2], [2, 9, 9], [1, 5, 1], [4, 0, -4])
    assert flow.status is Status.OPTIMAL
    assert flow.flow is not None
    assert flow.flow.tolist() == [2, 2, 2]
    assert flow.cost == 14


@pytest.mark.parametrize(
    ("capacity", "cost", "supply", "status"),
    [
        ([1, 1], [1, 1], [3, -3], Status.INFEASIBLE),
        ([5, 5], [1, 1], [3, -2], Status.INFEASIBLE),
        ([INF, INF], [-2, 1], [3, -3], Status.UNBOUNDED),
        ([INF, INF], [-1, 1], [3, -3], Status.OPTIMAL),
        ([INF, 4], [-2, 1], [3, -3], Status.OPTIMAL),
    ],
)
def test_an_arc_there_and_one_back(
    capacity: list[float], cost: list[float], supply: list[float], status: Status
) -> None:
    assert min_cost_flow([0, 1], [1, 0], capacity, cost, supply).status is status


def test_parallel_arcs_and_loops_are_arcs_too() -> None:
    flow = min_cost_flow([0, 0, 1], [1, 1, 1], [1, 5, 3], [1, 2, -1], [3, -3])
    assert flow.flow is not None
    assert flow.flow.tolist() == [1, 2, 3]
    assert min_cost_flow([1], [1], [INF], [-1], [0, 0]).status is Status.UNBOUNDED


def test_no_arcs_and_no_supply_cost_nothing() -> None:
    flow = min_cost_flow([], [], [], [], [0, 0])
    assert (flow.status, flow.cost) == (Status.OPTIMAL, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tail": [0, 2]}, "tail must be in 0..1, got 2"),
        ({"capacity": [1, -1]}, "capacity must hold whole numbers >= 0 or inf, got -1.0"),
        ({"unit_cost": [1, 0.5]}, "unit_cost must hold whole numbers"),
        ({"unit_cost": [1]}, "of one length"),
        ({"capacity": [2**51, 2**52]}, "add up to at most"),
        ({"unit_cost": [2**53, 1]}, "unit_cost must hold whole numbers below 2"),
    ],
)
def test_wrong_arrays_are_refused(change: dict[str, list[float]], message: str) -> None:
    arrays: dict[str, list[float]] = {
        "tail": [0, 1], "head": [1, 0], "capacity": [1, 1], "unit_cost": [1, 1], "supply": [1, -1]
    }  # fmt: skip
    with pytest.raises(InputError, match=message):
        min_cost_flow(**{**arrays, **change})  # type: ignore[arg-type]


def _three_rows(model: Model) -> None:
    x = model.integers("x", 2, upper=3)
    for name in "abc":
        model.add(name, (1, x[1:]), upper=1)


def _weighted(model: Model) -> None:
    x = model.integers("x", 2, upper=3)
    model.add("sum", (np.array([2, 3]), x), upper=6, labels=["all"])


def _odd_triangle(model: Model) -> None:
    x = model.integers("x", 3, upper=3)
    model.add("pair", (1, np.array([[x[0], x[1]], [x[1], x[2]], [x[0], x[2]]])), upper=1)


def _fractional(model: Model) -> None:
    model.continuous("x", 2, upper=np.array([1.0, 1.5]))


def _irrational(model: Model) -> None:
    x = model.integers("x", 2, upper=3)
    model.minimize((np.array([1, np.pi]), x))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (_three_rows, "variable 'x_1': must be an arc .*is in 3 rows; use --solver highs"),
        (_weighted, "variable 'x_1': must be an arc .*has 3 in row 'sum_all' beside 2"),
        (_odd_triangle, "variable 'x_[012]': must be an arc .*no change of row signs"),
        (_fractional, "variable 'x_1': must have whole-number bounds for min_cost_flow, got 1.5"),
        (_irrational, "variable 'x_1': costs must be whole numbers"),
    ],
)
def test_what_makes_a_model_no_network_is_named(build: Callable[[Model], None], message: str) -> None:
    model = Model("none")
    build(model)
    with pytest.raises(InputError, match=message):
        solve_model(model, solver="min_cost_flow")


@examples(60)
@given(st.integers(0, 2**32 - 1))
def test_random_networks_agree_with_highs(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows, columns = int(draw.integers(1, 6)), int(draw.integers(1, 12))
    lower, upper = draw.choice([-INF, -2, 0, 0, 1], columns), draw.choice([INF, 3, 5], columns)
    model = Model("random")
    x = (model.integers if draw.random() < 0.5 else model.continuous)("x", columns, lower, upper)
    matrix = np.zeros((rows, columns))
    for column in range(columns):
        tail, head = draw.integers(0, rows, 2)
        matrix[tail, column] += draw.random() < 0.9
        matrix[head, column] -= draw.random() < 0.9
    scale = draw.choice([-1, 1, 2, -0.5], rows)
    least = draw.integers(-3, 4, rows).astype(float)
    most = least + draw.choice([0, 0, 2, INF], rows)
    least[draw.random(rows) < 0.2] = -INF
    row, column = np.nonzero(matrix)
    model.add_sparse(
        "node", rows, row, column, (matrix * scale[:, None])[row, column],
        lower=np.where(scale > 0, least * scale, most * scale), upper=np.where(scale > 0, most * scale, least * scale),
    )  # fmt: skip
    (model.maximize if draw.random() < 0.5 else model.minimize)((draw.choice([-1, 0, 1, 2, 0.5], columns), x), offset=2)
    flow = solve_model(model, SolveOptions(threads=1), "min_cost_flow")
    reference = solve_model(model, SolveOptions(threads=1), "highs")
    assert flow.status is reference.status
    if flow.values is not None:
        assert flow.objective == pytest.approx(reference.objective)
        assert model.arrays().violation(flow.values) == 0


def _chain(arcs: int) -> Model:
    """One unit along the cheaper of two parallel chains."""
    model = Model("two chains")
    flow = model.continuous("flow", (2, arcs), upper=1.0)
    model.add("conserved", (np.array([1.0, -1.0]), np.stack([flow[:, :-1], flow[:, 1:]], axis=2)), lower=0.0, upper=0.0)
    model.add("sent", (1.0, flow[None, :, 0]), lower=1.0, upper=1.0)
    model.minimize((np.array([[1.0], [2.0]]), flow))
    return model


def test_a_large_network_is_solved_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = solve_model(_chain(5), SolveOptions(), "min_cost_flow")
    monkeypatch.setattr(min_cost_flow_module, "_IN_A_MOMENT", 1)
    there = solve_model(_chain(5), SolveOptions(), "min_cost_flow")
    assert here.objective == there.objective == 5.0
    assert there.status is Status.OPTIMAL


def test_a_large_network_that_takes_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(min_cost_flow_module, "_IN_A_MOMENT", 1)
    found = solve_model(_chain(5), SolveOptions(time_limit_s=1e-3), "min_cost_flow")
    assert (found.status, found.stop_reason) == (Status.NO_SOLUTION, StopReason.TIME_LIMIT)
