"""Bounds from multipliers: true whatever the multipliers are, and what they rule out is in no cheaper plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sharding_instances import cheapest, random_instance

from gapless.encodings.sharding.bounds.dual import Multipliers, Proof, proof
from gapless.encodings.sharding.bounds.pairs import pairs_of
from gapless.encodings.sharding.instances.instance import FORBIDDEN, Instance
from gapless.encodings.sharding.presolve.reduced import Reduced, narrowed, reduced

SEEDS = range(24)


def drawn(seed: int, *, size: float = 8.0) -> tuple[Instance, Reduced, Multipliers] | None:
    """An instance with a plan, what is left of it, and multipliers drawn at random."""
    instance = random_instance(seed, tightness=0.4, forbidden=0.1, alike=0.1)
    left, random = reduced(instance), np.random.default_rng(seed)
    if left is None or not left.node_count or cheapest(instance) is None:
        return None
    pairs = pairs_of(left)
    messages = (random.normal(0.0, size, len(each)) for each in (pairs.row_choice, pairs.column_choice))
    return instance, left, Multipliers(random.exponential(0.5, len(left.points.room)), *messages)


def shown(left: Reduced, multipliers: Multipliers, below: int | None = None) -> Proof:
    """What the multipliers prove."""
    return proof(left, pairs_of(left), multipliers, below)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_exceeds_the_least_cost(seed):
    case = drawn(seed)
    if case is None:
        return
    instance, left, multipliers = case
    least = cheapest(instance)[0]
    assert shown(left, multipliers).bound <= least
    assert shown(left, multipliers, least + 5).bound <= least


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_ruled_out_leaves_the_cheapest_plan_and_its_cost(seed):
    case = drawn(seed, size=2.0)
    if case is None:
        return
    instance, left, multipliers = case
    least, plan = cheapest(instance)
    narrow = narrowed(left, shown(left, multipliers, least + 3).narrowing)
    assert narrow is not None
    known = narrow.evaluate(narrow.contract(np.array(plan)))
    assert (known.cost, known.forbidden) == (least, "")
    assert known.peak <= instance.usage_limit
    assert narrow.expand(narrow.contract(np.array(plan))).tolist() == list(plan)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_costs_at_least_the_bound_and_the_excess_of_each_of_its_choices(seed):
    case = drawn(seed)
    if case is None:
        return
    instance, left, multipliers = case
    least, plan = cheapest(instance)
    found = shown(left, multipliers)
    taken = left.starts[:-1] + left.contract(np.array(plan))
    assert (found.bound + found.excess[taken] <= least).all()


@pytest.mark.parametrize("seed", range(4))
def test_bounds_hold_for_costs_near_64_bits(seed):
    instance = random_instance(seed, tightness=0.5, forbidden=0.1)
    high = FORBIDDEN - 100
    large = replace(
        instance,
        costs=tuple(cost + high for cost in instance.costs),
        tables=tuple(np.where(table < FORBIDDEN, table + high, table) for table in instance.tables),
    )
    left, known = reduced(large), cheapest(large)
    if left is None or known is None:
        return
    pairs = pairs_of(left)
    zero = Multipliers(*(np.zeros(len(each)) for each in (left.points.room, pairs.row_choice, pairs.column_choice)))
    found = shown(left, zero, known[0] + 1)
    assert known[0] * 0.999 < found.bound <= known[0]


def test_multipliers_that_are_no_numbers_prove_no_more_than_none():
    case = drawn(1)
    assert case is not None
    instance, left, multipliers = case
    broken = replace(multipliers, memory=np.full(len(multipliers.memory), np.nan), rows=multipliers.rows * np.inf)
    assert shown(left, broken).bound <= cheapest(instance)[0]


def test_a_node_that_may_take_what_alone_costs_too_much_is_narrowed():
    costs, usages = (np.array([1, 90]), np.array([2, 3])), (np.array([5, 0]), np.array([5, 0]))
    table = np.array([[0, 4], [5, 0]])
    instance = Instance("two", np.tile([0, 1], (2, 1)), costs, usages, np.array([[0, 1]]), (table,), 5)
    left = reduced(instance)
    assert left is not None
    pairs = pairs_of(left)
    found = shown(left, Multipliers(np.zeros(1), np.zeros(2), np.zeros(2)), 10)
    assert found.narrowing.choices.tolist() == [True, False, True, True]
    assert found.narrowing.pairs.sum() < len(pairs.row)
