"""Two lanes: what proves runs beside what searches, from the same state, and what both found is put together.

What proves sees nothing of the other lane. What searches sees the bound once the other is over, and ends with the first
plan that is within the gap of it; where it has gone further by then, it goes back. So the answer is that of proving
first and searching then, on any number of threads, unless the time limit struck. Where what proves closes the question,
its plan is the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.methods import ShardingMethod, ShardingSearch
from gapless.methods import MethodChoice, run_methods
from gapless.options import Deadline

__all__ = ["side_by_side"]

Ints = NDArray[np.int64]
_Best: TypeAlias = tuple[int | None, Ints | None, str]
"""Cost, choices, and the name of the method that found them."""

_PATIENCE_S = 0.25
"""How long a lane that was asked to stop may take."""
_POLL_S = 0.05
"""How long to wait for the other lane before looking whether time is up."""


@dataclass
class _Lane:
    """Methods at work on a copy of a search, in a thread of its own or in the caller's."""

    search: ShardingSearch
    stop: threading.Event
    error: BaseException | None = None
    is_over: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, search: ShardingSearch) -> _Lane:
        """A copy that reports nothing, and can be stopped by itself."""
        stop = threading.Event()
        options = replace(search.deadline.stage(), stop=stop, on_progress=None, on_plan=None)
        own = replace(search, options=options, deadline=Deadline(options), on_plan=lambda *_: None, noted=[])
        return cls(own, stop)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is left to find."""
        return self.is_over.is_set() and (self.search.is_proven or self.search.is_infeasible)

    def is_near(self, cost: int | None) -> bool:
        """Whether a plan of that cost is within the gap of what is proven, now that proving is over."""
        return self.is_over.is_set() and self.search.is_near(cost, self.search.bound)

    def run(self, methods: Sequence[ShardingMethod], choice: MethodChoice) -> None:
        """Try the methods in turn."""
        try:
            run_methods(methods, (self.search.left, self.search.parameters), self.search, choice)
        except BaseException as error:  # the caller's thread raises it
            self.error = error
        finally:
            self.is_over.set()


def side_by_side(
    search: ShardingSearch, searching: Sequence[ShardingMethod], proving: Sequence[ShardingMethod], choice: MethodChoice
) -> None:
    """Run what searches on the search, and what proves on a copy of it as it is now; then offer what that found."""
    lane, plans = _Lane.of(search), [_best(search)]
    tell = search.on_plan

    def on_plan(cost: int, choices: Ints) -> None:
        plans.append(_best(search))
        tell(cost, choices)

    search.on_plan, search.is_closed_beside = on_plan, lambda: lane.is_closed or lane.is_near(search.cost)
    try:
        _run(search, lane, searching, proving, choice)
    finally:
        search.on_plan, search.is_closed_beside = tell, bool
    if lane.error is not None:
        raise lane.error
    is_cut = search.deadline.has_struck or search.options.stop.is_set()
    if not is_cut:
        _go_back(search, next((plan for plan in plans if lane.is_near(plan[0])), plans[-1]))
    for found in list(lane.search.noted):
        search.offer(found)
    if lane.is_closed and lane.search.choices is not None and (not is_cut or lane.search.cost == search.cost):
        _go_back(search, _best(lane.search))


def _best(search: ShardingSearch) -> _Best:
    return search.cost, search.choices, search.found_by


def _go_back(search: ShardingSearch, best: _Best) -> None:
    search.cost, search.choices, search.found_by = best


def _run(
    search: ShardingSearch, lane: _Lane, searching: Sequence[ShardingMethod], proving: Sequence[ShardingMethod],
    choice: MethodChoice,
) -> None:  # fmt: skip
    if search.options.thread_count > 1:
        thread = threading.Thread(target=lane.run, args=(proving, choice), name="gapless-sharding", daemon=True)
        try:
            thread.start()
            run_methods(searching, (search.left, search.parameters), search, choice)
            while not lane.is_over.wait(_POLL_S) and not search.deadline.over:
                pass
        finally:
            lane.stop.set()
        lane.is_over.wait(_PATIENCE_S)  # a solver that is asked to stop needs a moment
    else:
        lane.run(proving, choice)
        if not lane.is_closed:
            run_methods(searching, (search.left, search.parameters), search, choice)
