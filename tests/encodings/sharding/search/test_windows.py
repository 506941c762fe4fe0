"""Sharding's searches: plans within the memory, never dearer than the first, near the cheapest, and the same twice."""

from __future__ import annotations

import numpy as np
import pytest
from sharding_instances import cheapest, random_instance

from gapless.encodings.sharding.instances.instance import Instance
from gapless.encodings.sharding.parameters import Parameters
from gapless.encodings.sharding.problem import Problem
from gapless.encodings.sharding.search import arrays
from gapless.encodings.sharding.solve import solve
from gapless.methods import MethodChoice
from gapless.options import SolveOptions

SHORT = {"message_rounds": 60, "windows_per_node": 3}


def small(seed: int) -> Instance:
    """Eight nodes, whose memory is short."""
    return random_instance(seed, nodes=8, edges=12, forbidden=0.05, alike=0.0, tightness=0.4)


def costs_of(seed: int, *methods: str) -> list[int]:
    """The costs of the plans that methods find for an instance in turn, each held against the file."""
    instance = small(seed)
    found = []
    parameters = Parameters(**SHORT, methods=MethodChoice(only=methods))
    plan = solve(Problem(instance), SolveOptions(on_progress=lambda news: found.append(news.incumbent)), parameters)
    if plan.decision is not None:
        known = instance.evaluate(np.array(plan.decision.choices))
        assert not known.forbidden
        assert known.peak <= instance.usage_limit
        assert known.cost == plan.solution.objective
    costs = [int(cost) for cost in found if cost is not None]
    assert costs == sorted(costs, reverse=True)
    return costs


@pytest.mark.parametrize("methods", [("messages",), ("windows",), ("messages", "windows")])
def test_searches_find_most_of_the_cheapest_plans(methods: tuple[str, ...]) -> None:
    hits = answers = 0
    for seed in range(12):
        known = cheapest(small(seed))
        costs = costs_of(seed, *methods)
        answers += known is not None
        hits += known is not None and bool(costs) and costs[-1] == known[0]
        assert not costs or (known is not None and costs[-1] >= known[0])
    assert answers >= 10
    assert hits >= answers - 2


@pytest.mark.parametrize("seed", range(4))
def test_the_same_seed_finds_the_same_plans(seed: int) -> None:
    assert costs_of(seed, "messages", "windows") == costs_of(seed, "messages", "windows")


@pytest.mark.extra("fast")
def test_plans_are_the_same_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LEAST_WORK", 0)
    compiled = [costs_of(seed, "messages", "windows") for seed in range(4)]
    monkeypatch.setattr(arrays, "is_numba_here", lambda: False)
    assert [costs_of(seed, "messages", "windows") for seed in range(4)] == compiled


@pytest.mark.parametrize("seed", range(6))
def test_windows_never_end_above_where_they_began(seed: int) -> None:
    first, both = costs_of(seed, "descent"), costs_of(seed, "descent", "windows")
    assert not first or both[-1] <= first[-1]
