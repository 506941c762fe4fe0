"""Presolve: what is left has the same least cost, and its plans are plans of the instance."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from examples import share
from sharding_instances import cheapest, random_instance

from gapless.encodings.sharding.instances.drawn import instance_of_words
from gapless.encodings.sharding.instances.instance import FORBIDDEN, Instance
from gapless.encodings.sharding.presolve.arcs import agree
from gapless.encodings.sharding.presolve.factors import Factors, OutOfTime
from gapless.encodings.sharding.presolve.reduced import Reduced, reduced


def least_left(left: Reduced) -> int | None:
    """The least cost of a plan of what is left, each held against the instance."""
    instance, best = left.factors.instance, None
    for choices in product(*map(range, left.sizes.tolist())):
        found, full = left.evaluate(np.array(choices, dtype=np.int64)), left.expand(np.array(choices, dtype=np.int64))
        real = instance.evaluate(full)
        fits = found.peak <= instance.usage_limit
        assert bool(found.forbidden) == bool(real.forbidden)
        assert fits == (real.peak <= instance.usage_limit)
        if not found.forbidden:
            assert found.cost == real.cost
            if fits and (best is None or found.cost < best):
                best = found.cost
    return best


@pytest.mark.parametrize("tightness", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(share(20)))
def test_the_least_cost_stays(seed, tightness):
    instance = random_instance(seed, tightness=tightness, forbidden=0.3 if seed % 2 else 0.05)
    left, known = reduced(instance), cheapest(instance)
    assert (None if left is None else least_left(left)) == (None if known is None else known[0])


@pytest.mark.parametrize("seed", range(5))
def test_costs_near_64_bits_stay_exact(seed):
    instance = random_instance(seed, tightness=0.5, forbidden=0.1)
    large = replace(
        instance,
        costs=tuple(cost + FORBIDDEN - 100 for cost in instance.costs),
        tables=tuple(np.where(table < FORBIDDEN, table + FORBIDDEN - 100, table) for table in instance.tables),
    )
    left, known = reduced(large), cheapest(large)
    assert (None if left is None else least_left(left)) == (None if known is None else known[0])


def test_nodes_that_must_agree_become_one():
    same = np.where(np.eye(3, dtype=bool), 0, FORBIDDEN)
    costs = tuple(np.array([5, 3, 4]) + node for node in range(4))
    pairs = np.array([[0, 1], [1, 2], [2, 3]])
    instance = Instance("a chain", np.tile([0, 1], (4, 1)), costs, (np.arange(3),) * 4, pairs, (same,) * 3, 8)
    factors = Factors(instance)
    assert agree(factors)
    assert len(factors.costs) == 1
    left = reduced(instance)
    assert left is not None
    assert left.expand(np.zeros(left.node_count, dtype=np.int64)).tolist() == [1, 1, 1, 1]  # nothing else to hold


def test_a_plan_that_nothing_allows_is_known_at_once():
    shut = np.full((2, 2), FORBIDDEN)
    instance = Instance(
        "shut", np.zeros((2, 2), dtype=np.int64), (np.zeros(2, np.int64),) * 2, (np.zeros(2, np.int64),) * 2,
        np.array([[0, 1]]), (shut,), 0,
    )  # fmt: skip
    assert reduced(instance) is None


def test_too_little_memory_for_the_least_is_known_at_once():
    instance = Instance(
        "large", np.array([[0, 2], [1, 3]]), (np.zeros(2, np.int64),) * 2, (np.array([3, 4]), np.array([3, 5])),
        np.zeros((0, 2), np.int64), (), 5,
    )  # fmt: skip
    assert reduced(instance) is None
    assert reduced(replace(instance, usage_limit=6)) is not None


def test_steps_say_how_much_is_left_and_never_grow():
    instance, steps = random_instance(3, nodes=9, tightness=0.3, forbidden=0.1), []
    left = reduced(instance, steps)
    assert left is not None
    assert steps[0].choices == sum(map(len, instance.costs))
    for before, after in pairwise(steps):
        for name in ("nodes", "choices", "time_points"):
            assert getattr(after, name) <= getattr(before, name)
    assert (steps[-1].nodes, steps[-1].time_points) == (left.node_count, len(left.points.room))


def test_who_asks_for_the_time_changes_nothing_and_who_says_it_is_up_ends_presolve():
    instance, asked = instance_of_words("drawn:nodes=3000,choices=2"), []
    before, after = reduced(instance), reduced(instance, is_over=lambda: bool(asked.append(None)))
    assert len(asked) > 4
    for name in ("offset", "starts", "costs", "ends", "tables"):
        assert np.array_equal(getattr(before, name), getattr(after, name))
    for last in (1, 4):
        left = iter([False] * (last - 1))
        with pytest.raises(OutOfTime):
            reduced(instance, is_over=lambda left=left: next(left, True))
    assert not after.factors.copy().is_over()
