"""Trees, grids, hubs and tight memory against CP-SAT: no false bound, no missed optimum, no plan above the limit."""

from __future__ import annotations

import pytest
from sharding_families import FAMILIES, cp_sat_optimum, drawn_of_family, evaluated

import gapless
from gapless.encodings.sharding.parameters import DEFAULTS, METHODS, Parameters
from gapless.encodings.sharding.problem import Problem
from gapless.methods import MethodChoice
from gapless.options import SolveOptions
from gapless.solution import Status

pytest.importorskip("ortools")

QUICK, ALL = 2, 100
"""Of each family, in the default tier and in all."""


def check(family: str, seed: int, parameters: Parameters) -> Status:
    """What is said of a drawn instance is true; returns the status."""
    instance = drawn_of_family(family, seed)
    known = cp_sat_optimum(instance)
    result = gapless.solve(Problem(instance), SolveOptions(threads=1, seed=seed), parameters)
    claim = result.solution
    if known is None:
        assert result.status in (Status.INFEASIBLE, Status.NO_SOLUTION)
        return result.status
    assert result.status is not Status.INFEASIBLE
    assert claim.bound is None or claim.bound <= known
    if result.schedule is None:
        return result.status
    cost, peak = evaluated(instance, result.decision.choices)
    assert cost == claim.objective >= known
    assert peak == result.report.peak_bytes[0] <= instance.usage_limit
    assert result.valid
    assert (result.status is Status.OPTIMAL) == (claim.bound == cost)
    if result.status is Status.OPTIMAL:
        assert cost == known
    return result.status


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_are_answered_truly_and_proven(family: str) -> None:
    for seed in range(QUICK):
        assert check(family, seed, DEFAULTS) in (Status.OPTIMAL, Status.INFEASIBLE)


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_a_hundred_of_each_family_are_answered_truly_and_proven(family: str) -> None:
    found = [check(family, seed, DEFAULTS) for seed in range(ALL)]
    assert set(found) <= {Status.OPTIMAL, Status.INFEASIBLE}


@pytest.mark.thorough
@pytest.mark.parametrize("left_out", METHODS)
def test_what_is_said_without_a_method_is_true(left_out: str) -> None:
    parameters = Parameters(methods=MethodChoice(without=(left_out,)))
    for family in FAMILIES:
        for seed in range(ALL, ALL + 8):
            check(family, seed, parameters)
