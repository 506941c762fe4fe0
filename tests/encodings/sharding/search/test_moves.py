"""Moves of sharding's searches: exact where they say so, within the memory, and the same with and without numba."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from examples import share
from sharding_instances import cheapest, random_instance

from gapless.encodings.sharding.presolve.reduced import Reduced, reduced
from gapless.encodings.sharding.search.arrays import Arrays, arrays_of, restricted
from gapless.encodings.sharding.search.elimination import elimination_of
from gapless.encodings.sharding.search.kernels import eliminate, message_starts, settle, sweep
from gapless.encodings.sharding.search.moves import Moves
from gapless.encodings.sharding.search.profiles import profiles_of


def left_of_seed(seed: int, **kind: float) -> Reduced:
    """What presolve leaves of a small instance, seven nodes or fewer."""
    for further in range(seed, seed + 1000, 50):
        left = reduced(random_instance(further, **{"nodes": 7, "edges": 9, "forbidden": 0.1, "alike": 0.0, **kind}))
        if left is not None and left.node_count > 3:
            return left
    raise AssertionError("all are solved by presolve")


def drawn(arrays: Arrays, random: np.random.Generator) -> np.ndarray:
    return random.integers(0, arrays.sizes)


@pytest.mark.parametrize("entries", [1, 9, 10**6])
@pytest.mark.parametrize("seed", range(share(12)))
def test_elimination_finds_the_least_cost_of_its_nodes(seed: int, entries: int) -> None:
    arrays, random = arrays_of(left_of_seed(seed)), np.random.default_rng(seed)
    free = random.permutation(arrays.node_count)[: 4 if seed % 2 else arrays.node_count]
    steps = elimination_of(arrays, free.tolist(), entries, random)
    start = drawn(arrays, random)
    found = eliminate(arrays, steps, arrays.costs, start)
    kept = np.setdiff1d(np.arange(arrays.node_count), steps.node)
    assert set(steps.node.tolist()) <= set(free.tolist())
    assert entries < 10**6 or len(steps.node) == len(free)
    assert (found[kept] == start[kept]).all()
    least = np.inf
    for choices in product(*(range(int(arrays.sizes[node])) for node in steps.node)):
        other = start.copy()
        other[steps.node] = choices
        least = min(least, arrays.cost(other))
    assert arrays.cost(found) == least


@pytest.mark.parametrize("seed", range(share(12)))
def test_arrays_have_the_costs_and_slack_of_what_is_left(seed: int) -> None:
    left, random = left_of_seed(seed), np.random.default_rng(seed)
    arrays = arrays_of(left)
    choices = drawn(arrays, random)
    known = left.evaluate(choices)
    assert (arrays.cost(choices) >= arrays.shut) == bool(known.forbidden)
    assert known.forbidden or arrays.cost(choices) == known.cost - left.offset
    assert (arrays.slack(choices) == left.points.slack(left.starts[:-1] + choices)).all()
    prices = random.integers(0, 9, len(arrays.room)).astype(float)
    paid = (arrays.priced(prices) - arrays.costs)[arrays.starts[:-1] + choices].sum()
    assert paid == (prices * (arrays.room - arrays.slack(choices))).sum()


@pytest.mark.parametrize("seed", range(share(12)))
def test_messages_bound_the_cost_of_all_plans(seed: int) -> None:
    left = left_of_seed(seed, tightness=1.0, forbidden=0.0, edges=14)
    arrays = arrays_of(left)
    known = cheapest(left.factors.instance)
    starts, choices = message_starts(arrays), np.zeros(arrays.node_count, dtype=np.int64)
    messages, order = np.zeros(int(starts[-1])), np.arange(arrays.node_count)
    bounds = []
    for _ in range(10):
        sweep(arrays, order, arrays.costs, arrays.tables, starts, messages, choices)
        bounds.append(sweep(arrays, order[::-1].copy(), arrays.costs, arrays.tables, starts, messages, choices))
    assert known is not None
    assert all(after >= before - 1e-6 for before, after in pairwise(bounds))
    assert bounds[0] < bounds[-1] or bounds[0] == pytest.approx(known[0] - left.offset)
    assert bounds[-1] <= known[0] - left.offset + 1e-6


@pytest.mark.parametrize("seed", range(share(12)))
def test_filling_stays_within_the_memory_and_never_costs_more(seed: int) -> None:
    arrays, random = arrays_of(left_of_seed(seed, tightness=0.4)), np.random.default_rng(seed)
    profiles, order = profiles_of(arrays), np.arange(arrays.node_count)
    for _ in range(20):
        choices = drawn(arrays, random)
        slack, before = arrays.slack(choices), arrays.cost(choices)
        is_short = slack < 0
        settle(arrays, profiles, order, slack, choices)
        assert (slack == arrays.slack(choices)).all()
        assert is_short.any() or (slack >= 0).all()
        assert arrays.cost(choices) <= before


@pytest.mark.parametrize("seed", range(share(12)))
def test_a_fitted_plan_fits(seed: int) -> None:
    left, random = left_of_seed(seed, tightness=0.3), np.random.default_rng(seed)
    arrays = arrays_of(left)
    moves = Moves(arrays, 1000, random, lambda: False)
    found = moves.fitted(moves.whole(), np.zeros(len(arrays.room)), drawn(arrays, random))
    known = cheapest(left.factors.instance)
    assert found is None or known is not None
    if found is not None:
        evaluated = left.evaluate(found.choices)
        assert evaluated.cost - left.offset == found.cost
        assert evaluated.peak <= left.factors.instance.usage_limit
        assert known[0] <= evaluated.cost


@pytest.mark.parametrize("seed", range(8))
def test_narrowed_arrays_have_the_same_costs_and_slack(seed: int) -> None:
    arrays, random = arrays_of(left_of_seed(seed)), np.random.default_rng(seed)
    choices = drawn(arrays, random)
    is_kept = random.random(len(arrays.costs)) < 0.4
    is_kept[arrays.starts[:-1] + choices] = True
    narrow = restricted(arrays, is_kept)
    own = drawn(narrow, random)
    wide = np.flatnonzero(is_kept)[narrow.starts[:-1] + own] - arrays.starts[:-1]
    assert narrow.cost(own) == arrays.cost(wide)
    assert (narrow.slack(own) == arrays.slack(wide)).all()
    found = Moves(arrays, 100, random, lambda: False).fitted_among(is_kept, np.zeros(len(arrays.room)), choices, np.inf)
    assert found is None or is_kept[arrays.starts[:-1] + found.choices].all()


@pytest.mark.extra("fast")
def test_compiled_loops_give_the_numbers_of_arrays() -> None:
    """A plan doesn't depend on what is installed: choices, messages, bounds and slack are the same numbers."""
    left = reduced(random_instance(3, nodes=60, choices=6, edges=90, forbidden=0.05, alike=0.0, tightness=0.9))
    assert left is not None
    ours = [replace(arrays_of(left), is_compiled=flag) for flag in (False, True)]
    random = np.random.default_rng(0)
    order, start = random.permutation(left.node_count), drawn(ours[0], random)
    starts = message_starts(ours[0])
    tables = np.minimum(ours[0].tables, 1e4)
    messages = [np.zeros(int(starts[-1])) for _ in ours]
    for _ in range(3):
        found = []
        for arrays, own in zip(ours, messages, strict=True):
            choices = start.copy()
            found.append((sweep(arrays, order, arrays.costs, tables, starts, own, choices), choices.tolist()))
        assert found[0] == found[1]
        assert (messages[0] == messages[1]).all()
    for entries in (2, 200, 5000):
        steps = elimination_of(ours[0], range(left.node_count), entries, random)
        assert (
            eliminate(ours[0], steps, ours[0].costs, start) == eliminate(ours[1], steps, ours[1].costs, start)
        ).all()
    ends = []
    for arrays in ours:
        choices, slack = start.copy(), arrays.slack(start) + 40
        ends.append((settle(arrays, profiles_of(arrays), order, slack, choices), choices.tolist(), slack.tolist()))
    assert ends[0] == ends[1]
    assert ends[0][0] > 0
