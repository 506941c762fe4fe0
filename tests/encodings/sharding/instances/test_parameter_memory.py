"""AutoParallel's memory: shares of parameters, against enumeration, and what its plans really use."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from sharding_instances import random_instance

from gapless.encodings.sharding.instances.instance import Instance
from gapless.encodings.sharding.instances.parameter_memory import parameter_memory_only, parameter_memory_plan
from gapless.errors import InputError
from gapless.options import SolveOptions

PARAMETERS = (0, 2, 3)
OPTIONS = SolveOptions(threads=1)


def trained_instance(seed: int) -> Instance:
    """Six nodes, three of them parameters with layouts that hold a whole, a half and a quarter."""
    instance = random_instance(seed, nodes=6, choices=4, edges=8, forbidden=0.1)
    usages = list(instance.usages)
    for node in PARAMETERS:
        usages[node] = np.array([4, 2, 1, 2][: len(usages[node])]) * (10 + node)
    return replace(instance, usages=tuple(usages))


def cheapest_by_shares(instance: Instance, most_share: Fraction) -> int | None:
    """The least cost of all choices whose shares add up to no more than AutoParallel allows."""
    whole = {node: int(instance.usages[node].max()) for node in PARAMETERS}
    limit = sum(max(most_share, Fraction(int(instance.usages[node].min()), whole[node])) for node in PARAMETERS)
    found = []
    for choices in product(*(range(len(cost)) for cost in instance.costs)):
        held = sum(Fraction(int(instance.usages[node][choices[node]]), whole[node]) for node in PARAMETERS)
        known = instance.evaluate(np.array(choices))
        if held <= limit and not known.forbidden:
            found.append(known.cost)
    return min(found, default=None)


@pytest.mark.parametrize("most_share", [Fraction(1, 4), Fraction(1, 2), Fraction(1, 3), Fraction(1)])
@pytest.mark.parametrize("seed", range(3))
def test_its_plan_costs_least_among_those_with_its_shares(seed: int, most_share: Fraction) -> None:
    instance = trained_instance(seed)
    plan, least = (
        parameter_memory_plan(instance, PARAMETERS, most_share, OPTIONS),
        cheapest_by_shares(instance, most_share),
    )
    if plan is None or least is None:
        assert plan is None
        assert least is None
        return
    assert plan.cost == plan.bound == least
    assert plan.cost == instance.evaluate(plan.choices).cost
    assert plan.fits == (plan.peak <= instance.usage_limit)


def test_a_plan_within_its_memory_may_need_more_than_there_is() -> None:
    instance = replace(trained_instance(0), usage_limit=1)
    plan = parameter_memory_plan(instance, PARAMETERS, Fraction(1), OPTIONS)
    assert plan is not None
    assert plan.peak > 1
    assert not plan.fits


def test_a_small_parameter_counts_as_much_as_a_large_one() -> None:
    instance = trained_instance(0)
    larger = list(instance.usages)
    larger[PARAMETERS[0]] = larger[PARAMETERS[0]] * 10**6
    asked = parameter_memory_only(instance, PARAMETERS, Fraction(1, 2))
    same = parameter_memory_only(replace(instance, usages=tuple(larger)), PARAMETERS, Fraction(1, 2))
    assert asked.usage_limit == same.usage_limit
    assert all(np.array_equal(one, other) for one, other in zip(asked.usages, same.usages, strict=True))


@pytest.mark.parametrize(
    ("parameters", "most_share", "message"),
    [
        ((7,), Fraction(1, 2), r"parameters: must be nodes in 0\.\.5, got 7"),
        ((0,), Fraction(3, 2), "most_share: must be in 0..1, got 3/2"),
    ],
)
def test_what_is_asked_wrongly_is_said(parameters: tuple[int, ...], most_share: Fraction, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parameter_memory_only(trained_instance(0), parameters, most_share)
