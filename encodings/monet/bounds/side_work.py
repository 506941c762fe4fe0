"""Work beside a search, in a thread of its own, whose results the search sees at moments that no clock decides.

A moment is a number of steps of the search. A piece of work begins when the result of the one before it is taken up. It
weighs so many steps, by what it has done, and its result is seen at the first moment from its beginning plus its weight
on. So the search waits for work that has not got as far as itself, and sees the same on any machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeAlias, TypeVar

from gapless.options import Deadline
from gapless.solvers.interruptible import PATIENCE_S

__all__ = ["Advance", "Beside", "Work"]

T = TypeVar("T")

Advance: TypeAlias = Callable[[float], None]
"""Says what a piece of work weighs so far; never more than in the end."""
Work: TypeAlias = Callable[[Advance, threading.Event], tuple[T, float]]
"""Gives its result and its weight; ends early once the event is set."""

_POLL_S = 0.05
"""How often a wait looks whether the solve is over."""


class Beside(Generic[T]):
    """Does pieces of work one after the other until they end or `close`.

    `works` is asked for the next piece by the thread that takes up results. Where `is_parallel` is false, either the
    search or the work goes on at a time: whichever has got less far.
    """

    def __init__(self, works: Iterator[Work[T]], deadline: Deadline, is_parallel: bool) -> None:
        self._works, self._deadline, self._is_parallel = works, deadline, is_parallel
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._moment = self._begin = self._clock = 0.0
        self._thread: threading.Thread | None = None
        self._outcome: tuple[T, float] | BaseException | None = None
        self._begin_next()

    def results(self, moment: float) -> Iterator[T]:
        """The results that are seen at a moment of the search, inf for all."""
        while self._thread is not None and self._is_there(moment):
            result, weight = self._result()
            self._begin += weight
            yield result
            self._begin_next()

    def close(self) -> T | None:
        """End the work; returns what the last piece came to, where that is known and has not been taken up."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * PATIENCE_S)
        return None if self._outcome is None else self._result()[0]

    def _is_there(self, moment: float) -> bool:
        """Wait until it is known whether the current piece ends by the moment."""
        if moment < self._clock:
            return False
        with self._changed:
            self._moment = moment
            self._changed.notify_all()
            while self._outcome is None and self._clock <= moment and not self._deadline.over:
                self._changed.wait(_POLL_S)
            return self._outcome is not None and self._clock <= moment and not self._deadline.over

    def _result(self) -> tuple[T, float]:
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, BaseException):
            raise outcome
        assert outcome is not None
        return outcome

    def _begin_next(self) -> None:
        work = None if self._stop.is_set() else next(self._works, None)
        self._thread, self._clock = None, self._begin
        if work is not None:
            self._thread = threading.Thread(target=self._do, args=(work,), name="gapless-bound", daemon=True)
            self._thread.start()

    # -- in the thread of the work ---------------------------------------------------------------------------------

    def _do(self, work: Work[T]) -> None:
        try:
            outcome: tuple[T, float] | BaseException = work(self._advance, self._stop)
        except BaseException as error:
            outcome = error
        with self._changed:
            self._outcome = outcome
            self._clock = self._begin + (outcome[1] if isinstance(outcome, tuple) else 0.0)
            self._changed.notify_all()

    def _advance(self, weight: float) -> None:
        with self._changed:
            self._clock = self._begin + weight
            self._changed.notify_all()
            while not self._is_parallel and self._clock > self._moment and not self._stop.is_set():
                self._changed.wait(_POLL_S)
