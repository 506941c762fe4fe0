"""Two lanes: the answer is the same on one thread and on two, and what closes the question ends the search."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from gapless.encodings.sharding.instances.drawn import instance_of_words
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


def searched(left: Reduced, threads: int, search_for, prove, gap: float = 0.0) -> ShardingSearch:
    options = SolveOptions(threads=threads, gap=gap)
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


@pytest.mark.parametrize("is_proof_late", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_plan_within_the_gap_of_what_is_proven_beside_is_the_answer(
    left: Reduced, threads: int, is_proof_late: bool
) -> None:
    """The first such plan, however much further the search is when the proof comes."""
    dearest, dear, cheap, cheapest = plans(left)
    bound = left.evaluate(cheap).cost * 9 // 10
    gap = 1 - bound / left.evaluate(dear).cost + 1e-9
    is_proven, is_further = threading.Event(), threading.Event()

    def search_for(search: ShardingSearch) -> Iterator[Found]:
        yield Found("searching", dearest)
        assert not search.is_proven
        yield Found("searching", dear)
        if is_proof_late and threads > 1:
            yield Found("searching", cheapest)
            is_further.set()
        assert is_proven.wait(WAIT_S)
        for _ in range(int(WAIT_S / 0.01)):
            if search.is_over:
                return
            threading.Event().wait(0.01)
        raise AssertionError("nobody looks at what is proven")

    def prove(search: ShardingSearch) -> Iterator[Found]:
        if is_proof_late and threads > 1:
            assert is_further.wait(WAIT_S)
        yield Found("proving", bound=bound)
        is_proven.set()

    found = searched(left, threads, search_for, prove, gap)
    assert (found.cost, found.bound) == (left.evaluate(dear).cost, bound)
    assert found.is_proven


@pytest.mark.parametrize("threads", [1, 2])
def test_a_plan_proven_within_the_gap_is_the_answer_beside_a_better_one(left: Reduced, threads: int) -> None:
    _, _, cheap, cheapest = plans(left)
    is_begun = threading.Event()

    def search_for(search: ShardingSearch) -> Iterator[Found]:
        yield Found("searching", cheapest)
        is_begun.set()

    def prove(search: ShardingSearch) -> Iterator[Found]:
        if threads > 1:
            assert is_begun.wait(WAIT_S)
        yield Found("proving", cheap, bound=left.evaluate(cheap).cost * 9 // 10)

    found = searched(left, threads, search_for, prove, 0.2)
    assert (found.cost, found.found_by) == (left.evaluate(cheap).cost, "proving")
