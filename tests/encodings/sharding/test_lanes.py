"""Two lanes: the answer is the same on one thread and on two, and what closes the question ends the search."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from gapless.encodings.sharding.drawn import instance_of_words
from gapless.encodings.sharding.lanes import side_by_side
from gapless.encodings.sharding.methods import Found, ShardingMethod, ShardingSearch
from gapless.encodings.sharding.parameters import DEFAULTS
from gapless.encodings.sharding.presolve.reduced import Reduced, reduced
from gapless.methods import MethodChoice
from gapless.options import Deadline, SolveOptions

WAIT_S = 30.0


@pytest.fixture(scope="module")
def left() -> Reduced:
    found = reduced(instance_of_words("drawn:nodes=12,choices=3,tightness=60"))
    assert found is not None
    return found


def plans(left: Reduced) -> list[np.ndarray]:
    """Allowed choices, the dearest first."""
    limit, random = left.factors.instance.usage_limit, np.random.default_rng(0)
    found = {}
    while len(found) < 4:
        choices = random.integers(0, left.sizes)
        known = left.evaluate(choices)
        if not known.forbidden and known.peak <= limit:
            found[known.cost] = choices
    return [found[cost] for cost in sorted(found, reverse=True)]


def searched(left: Reduced, threads: int, search_for, prove) -> ShardingSearch:
    options = SolveOptions(threads=threads)
    search = ShardingSearch(left, options, DEFAULTS, Deadline(options), lambda *_: None)
    lists = [[ShardingMethod(name, run)] for name, run in (("searching", search_for), ("proving", prove))]
    side_by_side(search, *lists, MethodChoice())
    return search


@pytest.mark.parametrize("threads", [1, 2])
def test_what_both_lanes_find_is_put_together(left: Reduced, threads: int) -> None:
    dearest, _, cheap, cheapest = plans(left)
    seen = []

    def search_for(search: ShardingSearch) -> Iterator[Found]:
        yield Found("searching", dearest)
        yield Found("searching", cheapest)
        seen.append(search.bound)

    def prove(search: ShardingSearch) -> Iterator[Found]:
        yield Found("proving", cheap, bound=7)
        seen.append(search.cost)

    found = searched(left, threads, search_for, prove)
    assert (found.cost, found.found_by) == (left.evaluate(cheapest).cost, "searching")
    assert (found.bound, found.bound_by) == (7, "proving")
    assert sorted(map(str, seen)) == sorted(map(str, [None, left.evaluate(cheap).cost])), "neither sees the other"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_proof_ends_the_search_and_its_plan_is_the_answer(left: Reduced, threads: int) -> None:
    dearest, _, _, cheapest = plans(left)
    is_begun = threading.Event()

    def search_for(search: ShardingSearch) -> Iterator[Found]:
        yield Found("searching", dearest)
        yield Found("searching", cheapest)
        is_begun.set()
        waiting = threading.Event()
        while not search.is_over:
            waiting.wait(0.01)

    def prove(search: ShardingSearch) -> Iterator[Found]:
        if threads > 1:
            assert is_begun.wait(WAIT_S)
        yield Found("proving", cheapest, bound=left.evaluate(cheapest).cost)

    found = searched(left, threads, search_for, prove)
    assert found.is_proven
    assert found.found_by == "proving"


@pytest.mark.parametrize("threads", [1, 2])
def test_what_goes_wrong_beside_is_said(left: Reduced, threads: int) -> None:
    def prove(search: ShardingSearch) -> Iterator[Found]:
        yield Found("proving", bound=1)
        raise ZeroDivisionError("beside")

    with pytest.raises(ZeroDivisionError, match="beside"):
        searched(left, threads, lambda search: iter(()), prove)


def test_a_stop_reaches_both_lanes(left: Reduced) -> None:
    options = SolveOptions(threads=2)
    ended = threading.Event()

    def search_for(search: ShardingSearch) -> Iterator[Found]:
        options.stop.set()
        yield Found("searching", plans(left)[0])

    def prove(search: ShardingSearch) -> Iterator[Found]:
        waiting = threading.Event()
        while not search.is_over:
            waiting.wait(0.01)
        ended.set()
        yield Found("proving", bound=1)

    search = ShardingSearch(left, options, DEFAULTS, Deadline(options), lambda *_: None)
    lists = [[ShardingMethod(name, run)] for name, run in (("searching", search_for), ("proving", prove))]
    side_by_side(search, *lists, MethodChoice())
    assert ended.wait(WAIT_S)
    assert search.bound == 1
