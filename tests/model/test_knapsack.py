"""Modes under a budget: the dynamic programme against all choices, its front against single solves, the bounds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.model import Model
from gapless.model.knapsack import Items, Relaxation, best, front, is_within, one_mode_each, within_budget
from gapless.options import SolveOptions
from gapless.solvers.proofs import solve_proven


def some_items(seed: int, whole: bool = True) -> Items:
    """Up to six items in up to five modes, some of which an item may not have."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(1, 7)), int(rng.integers(1, 6))
    cost = 4.0 * rng.integers(0, 12, shape) if whole else rng.random(shape)
    error = rng.integers(0, 9, shape) / 2
    error[rng.random(shape) < 0.2] = np.inf
    error[:, 0] = np.where(np.isfinite(error).any(axis=1), error[:, 0], 3.0)
    return Items(cost, error)


def least_error(items: Items, budget: float) -> float:
    """By looking at every choice."""
    modes = [np.flatnonzero(np.isfinite(row)) for row in items.error]
    choices = [items.choice(np.array(chosen)) for chosen in itertools.product(*modes)]
    return min((choice.error for choice in choices if choice.cost <= budget), default=math.inf)


def some_budget(items: Items, seed: int) -> float:
    most = float(np.where(np.isfinite(items.error), items.cost, 0).max(axis=1).sum())
    return float(np.random.default_rng(seed).uniform(-0.1, 1.1)) * most


@pytest.mark.parametrize("seed", range(300))
def test_the_dynamic_programme_finds_what_looking_at_every_choice_finds(seed: int) -> None:
    items = some_items(seed)
    budget = some_budget(items, seed)
    found, least = front(items).at(budget), least_error(items, budget)
    if found is None:
        assert least == math.inf
    else:
        assert (found.error, found.bound) == (least, least)
        assert found.cost <= budget


@pytest.mark.parametrize("seed", range(30))
def test_one_pass_has_the_answer_to_every_budget(seed: int) -> None:
    items = some_items(seed)
    found = front(items)
    choices = list(found.choices())
    assert found.is_exact
    assert [choice.cost for choice in choices] == found.budgets.tolist()
    assert [choice.error for choice in choices] == found.errors.tolist()
    assert [choice.error for choice in choices] == sorted({choice.error for choice in choices}, reverse=True)
    for budget, choice in zip(found.budgets.tolist(), choices, strict=True):
        assert choice.error == least_error(items, budget) < least_error(items, budget - 1e-6)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("whole", [True, False])
def test_rounded_costs_keep_the_budget_and_say_how_far_off_they_may_be(seed: int, whole: bool) -> None:
    items = some_items(seed, whole)
    budget = some_budget(items, seed)
    for most_work in (60, 2000):
        found, least = best(items, budget, most_work), least_error(items, budget)
        if found is None:
            assert least == math.inf
        else:
            assert found.cost <= budget
            assert found.bound - 1e-9 <= least <= found.error + 1e-9
            assert found.gap >= 0


@pytest.mark.parametrize("seed", range(60))
def test_dantzigs_bound_is_the_linear_programmes_value(seed: int) -> None:
    items = some_items(seed)
    budget = some_budget(items, seed)
    relaxation = Relaxation(items)
    found = relaxation.at(budget)
    model, _ = encoded(items, budget, is_integer=False)
    solution = solve_proven(model, SolveOptions(), "highs")
    if found is None:
        assert solution.objective is None
        return
    assert found.cost <= budget
    assert relaxation.bound_at(budget) == pytest.approx(solution.objective, abs=1e-7)
    assert found.bound <= least_error(items, budget) <= found.error


@pytest.mark.parametrize("seed", range(40))
def test_the_rows_of_a_model_say_the_same(seed: int) -> None:
    items = some_items(seed)
    budget = max(some_budget(items, seed), 0.0)
    model, ids = encoded(items, budget, is_integer=True)
    solution = solve_proven(model, SolveOptions(), "highs")
    least = least_error(items, budget)
    assert (math.inf if solution.objective is None else solution.objective) == pytest.approx(least)
    if solution.values is not None:
        assert solution.values[ids].sum(axis=1) == pytest.approx(1)


def encoded(items: Items, budget: float, is_integer: bool) -> tuple[Model, np.ndarray]:
    model, has = Model("modes"), np.isfinite(items.error)
    add = model.integers if is_integer else model.continuous
    ids = add("mode", items.cost.shape, upper=has.astype(float))
    one_mode_each(model, "an_item_has_one_mode", ids)
    within_budget(model, "costs_stay_within_the_budget", items.cost, ids, budget)
    model.minimize((np.where(has, items.error, 0).reshape(-1), ids.reshape(-1)))
    return model, ids


def test_at_most_one_mode_and_a_margin() -> None:
    model = Model("none")
    ids = model.binaries("mode", (2, 2))
    one_mode_each(model, "at_most_one", ids, or_none=True)
    within_budget(model, "half", np.ones(4), ids, 4.0, margin=0.5)
    model.maximize((1.0, ids.reshape(-1)))
    assert solve_proven(model, SolveOptions(), "highs").objective == pytest.approx(2)
    arrays = model.arrays()
    assert arrays.row_upper.tolist() == [1, 1, 0.5]


def test_many_items_are_chosen_near_the_bound() -> None:
    rng = np.random.default_rng(1)
    cost = np.cumsum(rng.random((1500, 6)), axis=1)
    items = Items(cost, np.sort(rng.random((1500, 6)))[:, ::-1])
    found = best(items, 0.6 * cost[:, -1].sum(), most_work=2_000_000)
    assert found is not None
    assert 0 <= found.gap < 2e-4
    assert found.cost <= 0.6 * cost[:, -1].sum()


@given(st.integers(0, 2**31))
def test_what_is_within_a_budget_is_so_in_any_order(seed: int) -> None:
    costs = np.random.default_rng(seed).random(50)
    assert is_within(float(costs[::-1].sum()), float(costs.sum()))
    assert not is_within(float(costs.sum()) * (1 + 1e-8), float(costs.sum()))


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        ([1.0], [1.0], r"must be \(items, modes\)"),
        ([[1.0, 2.0]], [[1.0]], r"must be \(items, modes\)"),
        ([[1.0, -2.0]], [[1.0, 1.0]], r"cost of item 0 in mode 1 must be a number >= 0, got -2.0"),
        ([[1.0], [np.nan]], [[1.0], [1.0]], r"cost of item 1 in mode 0 must be a number >= 0, got nan"),
        ([[1.0]], [[np.nan]], r"error of item 0 in mode 0 must be a number or inf, got nan"),
        ([[1.0]], [[np.inf]], r"item 0 has no mode of finite error"),
    ],
)
def test_items_check_themselves(cost: list[object], error: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Items(np.array(cost), np.array(error))


def test_no_items_cost_nothing() -> None:
    nothing = Items(np.zeros((0, 3)), np.zeros((0, 3)))
    found = best(nothing, 0.0)
    assert found is not None
    assert (found.cost, found.error, found.gap) == (0.0, 0.0, 0.0)
