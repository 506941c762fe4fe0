"""Work beside a search, in threads of its own, whose results the search sees at moments that no clock decides.

A moment is a number of steps of the search. Work comes in strands, each a sequence of pieces. One strand goes on at a
time: after a slice of work comes the next one's turn, and the strand whose bound rises most has several slices in a
row. A piece weighs so many steps, by what it has done; what all strands weigh together is their clock. A result is seen
at the first moment from the clock at its end on, so the search waits for work that has not got as far as itself, and
sees the same on any machine.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from gapless.options import Deadline
from gapless.solvers.interruptible import PATIENCE_S

__all__ = ["Advance", "Beside", "Strand", "Work", "alone"]

T = TypeVar("T")


class Advance(Protocol):
    """Says what a piece of work weighs so far, never more than in the end, and what it has proven by then."""

    def __call__(self, weight: float, bound: float = -math.inf, interim: Callable[[], T | None] | None = None) -> None:
        """`interim` makes the result so far at the end of a slice, None where that is nothing new."""


def alone(weight: float, bound: float = -math.inf, interim: Callable[[], object] | None = None) -> None:
    """`Advance` of work that goes on beside nothing."""


Work: TypeAlias = Callable[[Advance, threading.Event], tuple[T, float]]
"""Gives its result and its weight; ends early once the event is set."""

_POLL_S = 0.05
"""How often a wait looks whether the solve is over."""
_IN_A_ROW = 3
"""Slices in a row of the strand whose bound rises most."""


@dataclass
class Strand(Generic[T]):
    """Pieces of work, one after the other, of which the first begins when so many results `after` have been taken up.

    `works` is asked for the next piece by the thread that takes up results. `weight`: of the current piece so far.
    `bound`: the best that it has said. `rise`: by how much it raised the best of all, the latest slices most.
    """

    works: Iterator[Work[T]]
    after: int = 0
    thread: threading.Thread | None = None
    weight: float = 0.0
    bound: float = -math.inf
    rise: float = 0.0


class Beside(Generic[T]):
    """Does pieces of work, one at a time, until they end or `close`.

    `slice_weight`: of a turn. Where `is_parallel` is false, either the search or the work goes on at a time: whichever
    has got less far.
    """

    def __init__(
        self, strands: Sequence[Strand[T]], deadline: Deadline, is_parallel: bool, slice_weight: float = math.inf
    ) -> None:
        self._strands, self._deadline, self._is_parallel = strands, deadline, is_parallel
        self._slice_weight = slice_weight
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._moment = self._clock = self._used = 0.0
        self._taken = self._in_a_row = 0
        self._best = -math.inf
        self._turn: Strand[T] | None = None
        self._interim: deque[tuple[float, T]] = deque()
        self._outcomes: deque[tuple[T, float] | BaseException] = deque()
        self._begin(strand for strand in strands if not strand.after)

    def results(self, moment: float) -> Iterator[T]:
        """The results that are seen at a moment of the search, inf for all."""
        while self._is_there(moment):
            if self._interim:
                yield self._interim.popleft()[1]
                continue
            strand, result = self._turn, self._result()
            self._taken += 1
            yield result
            assert strand is not None
            self._begin([strand, *(other for other in self._strands if other.after == self._taken)])

    def close(self) -> list[T]:
        """End the work; returns what is known and has not been taken up."""
        self._stop.set()
        for strand in self._strands:
            if strand.thread is not None:
                strand.thread.join(2 * PATIENCE_S)
        interim = [result for _, result in self._interim]
        self._interim.clear()
        return [*interim, *(self._result() for _ in range(len(self._outcomes)))]

    def _is_there(self, moment: float) -> bool:
        """Wait until it is known whether something is to be seen by the moment."""
        with self._changed:
            self._moment = moment
            self._changed.notify_all()
            while self._turn is not None and not self._outcomes and self._clock <= moment and not self._interim:
                if self._deadline.over:
                    return False
                self._changed.wait(_POLL_S)
            if self._interim:
                return self._interim[0][0] <= moment
            return bool(self._outcomes) and self._clock <= moment and not self._deadline.over

    def _result(self) -> T:
        outcome = self._outcomes.popleft()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome[0]

    def _begin(self, strands: Iterator[Strand[T]] | list[Strand[T]]) -> None:
        """Begin the next piece of each strand; if the last one's strand has none, it is another's turn."""
        for strand in strands:
            work = None if self._stop.is_set() else next(strand.works, None)
            strand.thread, strand.weight = None, 0.0
            if work is not None:
                do = partial(self._do, strand, work)
                strand.thread = threading.Thread(target=do, name="gapless-bound", daemon=True)
        with self._changed:
            if self._turn is None or self._turn.thread is None:
                self._pass_on()
            self._changed.notify_all()
        for strand in self._strands:
            if strand.thread is not None and strand.thread.ident is None:
                strand.thread.start()

    # -- turns, with the condition held --------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        """The next turn, in order from the current one."""
        at = -1 if self._turn is None else self._strands.index(self._turn)
        order = [*self._strands[at + 1 :], *self._strands[: at + 1]]
        self._turn = next((strand for strand in order if strand.thread is not None), None)
        self._used, self._in_a_row = 0.0, 0

    def _end_slice(self, strand: Strand[T], interim: Callable[[], T | None] | None) -> None:
        """Whoever raised the best bound most has some slices more before the next turn."""
        self._used, self._in_a_row = 0.0, self._in_a_row + 1
        strand.rise = strand.rise / 2 + max(strand.bound - self._best, 0.0)
        self._best = max(self._best, strand.bound)
        result = None if interim is None else interim()
        if result is not None:
            self._interim.append((self._clock, result))
        leads = all(strand.rise > other.rise for other in self._strands if other is not strand)
        if not leads or self._in_a_row >= _IN_A_ROW:
            self._pass_on()

    # -- in the threads of the work ------------------------------------------------------------------------------------

    def _do(self, strand: Strand[T], work: Work[T]) -> None:
        with self._changed:
            self._wait(strand)
        outcome: tuple[T, float] | BaseException
        try:
            outcome = work(partial(self._advance, strand), self._stop)
        except BaseException as error:
            outcome = error
        with self._changed:
            self._outcomes.append(outcome)
            self._clock += max(outcome[1] - strand.weight, 0.0) if isinstance(outcome, tuple) else 0.0
            self._changed.notify_all()

    def _advance(
        self, strand: Strand[T], weight: float, bound: float = -math.inf, interim: Callable[[], T | None] | None = None
    ) -> None:
        with self._changed:
            more = max(weight - strand.weight, 0.0)
            strand.weight, strand.bound = strand.weight + more, max(strand.bound, bound)
            self._clock += more
            self._used += more
            if self._used >= self._slice_weight:
                self._end_slice(strand, interim)
            self._changed.notify_all()
            self._wait(strand)

    def _wait(self, strand: Strand[T]) -> None:
        """Until it is this strand's turn, nothing waits to be taken up, and the search has got as far."""
        while not self._stop.is_set() and (
            self._turn is not strand or self._outcomes or (not self._is_parallel and self._clock > self._moment)
        ):
            self._changed.wait(_POLL_S)
