"""The relaxation, the MILP and branching together: optimal is said of what enumeration finds the cheapest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sharding_instances import cheapest, random_instance

from gapless.encodings.sharding.bounds.closing import Closing, closed
from gapless.encodings.sharding.instances.instance import FORBIDDEN, Instance
from gapless.encodings.sharding.parameters import DEFAULTS, Parameters
from gapless.encodings.sharding.presolve.reduced import reduced
from gapless.options import Deadline, SolveOptions


def steps(instance: Instance, below: int | None, parameters: Parameters = DEFAULTS) -> list[Closing]:
    """All steps; none where presolve finds no plan."""
    left = reduced(instance)
    return [] if left is None else list(closed(left, below, Deadline(SolveOptions()), parameters))


def held(instance: Instance, below: int | None, parameters: Parameters = DEFAULTS) -> Closing | None:
    """The last step, each held against enumeration."""
    known, last = cheapest(instance), None
    for last in steps(instance, below, parameters):
        if last.choices is not None:
            real = instance.evaluate(last.choices)
            assert (real.cost, real.forbidden) == (last.cost, "")
            assert real.peak <= instance.usage_limit
        assert known is None or last.bound <= known[0]
        assert not last.is_optimal or (known is not None and last.cost == known[0])
    return last


@pytest.mark.parametrize("tightness", [0.1, 0.4])
@pytest.mark.parametrize("seed", range(10))
def test_from_a_plan_the_optimum_is_found_and_proven(seed, tightness):
    instance = random_instance(seed, tightness=tightness, forbidden=0.1, alike=0.0, most_cost=1000)
    known, left = cheapest(instance), reduced(instance)
    if known is None or left is None or not left.node_count:
        return
    last = held(instance, known[0] + 50)
    assert last is not None
    assert last.is_optimal


@pytest.mark.parametrize("seed", range(6))
def test_without_a_plan_bounds_hold_and_the_plan_that_is_found_is_the_cheapest(seed):
    instance = random_instance(seed, tightness=0.3, forbidden=0.1, alike=0.0)
    last = held(instance, None)
    if last is not None and cheapest(instance) is not None and last.cost is not None:
        assert last.is_optimal


@pytest.mark.parametrize("seed", range(6))
def test_branching_alone_proves_the_optimum(seed):
    """Without a MILP, plans come from branches alone."""
    instance = random_instance(seed + 40, nodes=7, edges=12, tightness=0.25, forbidden=0.05, alike=0.0)
    known = cheapest(instance)
    if known is None:
        return
    last = held(instance, known[0] + 20, replace(DEFAULTS, milp_steps=1))
    assert last is None or last.is_optimal


@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_itself_is_proven(seed):
    instance = random_instance(seed, tightness=0.3, forbidden=0.1, alike=0.0)
    known = cheapest(instance)
    if known is None:
        return
    last = held(instance, known[0])
    assert last is None or last.is_optimal


def test_costs_near_64_bits_are_proven_to_the_last_unit():
    instance = random_instance(2, nodes=5, edges=6, tightness=0.5, forbidden=0.0, alike=0.0)
    high = FORBIDDEN // 16
    large = replace(
        instance,
        costs=tuple(cost + high for cost in instance.costs),
        tables=tuple(np.where(table < FORBIDDEN, table + high, table) for table in instance.tables),
    )
    known = cheapest(large)
    assert known is not None
    last = held(large, known[0] + 40)
    assert last is not None
    assert last.is_optimal


def test_the_same_twice():
    instance = random_instance(5, tightness=0.3, forbidden=0.1, alike=0.0)
    first, second = ([(s.bound, s.cost) for s in steps(instance, None)] for _ in range(2))
    assert first == second
