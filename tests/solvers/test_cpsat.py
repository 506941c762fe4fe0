"""What CP-SAT takes: integers within finite bounds, and coefficients that a factor makes whole."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solution import Status
from gapless.solvers.integral import implied_bounds, scale_to_integers, whole_bounds
from gapless.solvers.registry import solve_model


def test_a_continuous_variable_is_named() -> None:
    model = Model("mixed")
    model.binaries("keep", 2)
    model.continuous("time", 3)
    with pytest.raises(InputError, match=r"variable 'time_0': must be an integer for cpsat.*use --solver highs"):
        solve_model(model, solver="cpsat")


def test_a_variable_without_a_finite_bound_is_named() -> None:
    model = Model("open")
    model.integers("x", 2, upper=np.array([5.0, np.inf]))
    with pytest.raises(InputError, match=r"variable 'x_1': must have bounds .*for cpsat.*, got upper inf"):
        solve_model(model, solver="cpsat")


def test_a_coefficient_that_no_factor_makes_whole_is_named() -> None:
    model = Model("odd")
    x = model.integers("x", 2, upper=5)
    model.add("good", (0.1, x), upper=1)
    model.add("bad", (np.array([1.0, np.pi]), x), upper=9, labels=["here"])
    with pytest.raises(InputError, match=r"row 'bad_here': coefficients must be whole numbers.*got 3.14159"):
        solve_model(model, solver="cpsat")


def test_a_cost_that_no_factor_makes_whole_is_named() -> None:
    model = Model("odd")
    x = model.integers("x", 2, upper=5)
    model.minimize((np.array([1.0, np.e]), x))
    with pytest.raises(InputError, match=r"variable 'x_1': costs must be whole numbers.*got cost"):
        solve_model(model, solver="cpsat")


def test_decimals_and_thirds_are_scaled_exactly() -> None:
    model = Model("fractions")
    x = model.integers("x", 2, upper=30)
    model.add("decimals", (np.array([0.1, 0.25]), x), upper=1.0)
    model.add("thirds", (np.array([1 / 3, 1 / 7]), x), upper=2.0)
    model.maximize((np.array([0.3, 0.5]), x), offset=0.05)
    exact = solve_model(model, SolveOptions(threads=1), "cpsat")
    reference = solve_model(model, SolveOptions(threads=1), "highs")
    assert exact.status is reference.status is Status.OPTIMAL
    assert exact.objective == pytest.approx(reference.objective)


def test_conditional_rows_imply_no_bounds() -> None:
    model = Model("conditional")
    flag, x = model.binaries("flag"), model.integers("x")
    model.add("cap", (1, x), upper=3, only_if=flag)
    with pytest.raises(InputError, match="variable 'x': must have bounds"):
        solve_model(model, solver="cpsat")


def test_bounds_follow_through_chains_of_rows() -> None:
    model = Model("chain")
    x = model.integers("x", 3, lower=-np.inf)
    model.add("first", (1, x[:1]), lower=-2, upper=4)
    model.add("next", (np.array([2, -1]), np.stack([x[1:], x[:-1]], axis=1)), lower=0, upper=1)
    lower, upper = implied_bounds(model.arrays())
    assert lower.tolist() == [-2, -1, 0]
    assert upper.tolist() == [4, 2, 1]


def test_scales_are_the_smallest_that_serve() -> None:
    values = np.array([1.0, 0.5, 0.25, 1 / 3, 1e-7, 2e16])
    scale = scale_to_integers(values, np.arange(6), 7)
    assert scale[[0, 1, 2, 6]].tolist() == [1, 10, 100, 1]
    assert scale[3] == 3
    assert np.isnan(scale[[4, 5]]).all()


def test_whole_bounds_forgive_rounding_and_nothing_more() -> None:
    lower, upper = whole_bounds(np.array([0.1 * 30, -np.inf, 0.2]), np.array([0.3 * 10 - 1e-12, np.inf, 0.9]))
    assert lower.tolist() == [3, -np.inf, 1]
    assert upper.tolist() == [3, np.inf, 0]
