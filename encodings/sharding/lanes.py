"""Two lanes: what proves runs beside what searches, from the same state, and what both found is put together.

Neither lane sees what the other finds, so that the answer is that of the lanes one after the other, on any number of
threads, unless the time limit struck. Where what proves closes the question, its plan is the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gapless.encodings.sharding.methods import ShardingMethod, ShardingSearch
from gapless.methods import MethodChoice, run_methods
from gapless.options import Deadline

__all__ = ["side_by_side"]

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
    lane = _Lane.of(search)
    if search.options.thread_count > 1:
        thread = threading.Thread(target=lane.run, args=(proving, choice), name="gapless-sharding", daemon=True)
        search.is_closed_beside = lambda: lane.is_closed
        try:
            thread.start()
            run_methods(searching, (search.left, search.parameters), search, choice)
            while not lane.is_over.wait(_POLL_S) and not search.deadline.over:
                pass
        finally:
            lane.stop.set()
            search.is_closed_beside = lambda: False
        lane.is_over.wait(_PATIENCE_S)  # a solver that is asked to stop needs a moment
    else:
        lane.run(proving, choice)
        if not lane.is_closed:
            run_methods(searching, (search.left, search.parameters), search, choice)
    if lane.error is not None:
        raise lane.error
    for found in list(lane.search.noted):
        search.offer(found)
    if lane.is_closed and lane.search.choices is not None and lane.search.cost == search.cost:
        search.choices, search.found_by = lane.search.choices, lane.search.found_by
