"""The ledger of a solve: what its seconds were spent on. Every second is in one row, and rows add up to the whole.

A block of code is charged to a row by name. What a block does within another is charged to its own row alone, so that
a bound that a method works out when it needs it is the bound's time, not the method's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType

__all__ = ["REST", "Ledger", "charge", "spent_s"]

REST = "rest"
"""The row of what no block is charged for."""

_OPEN: ContextVar[Ledger | None] = ContextVar("open_ledger", default=None)
"""The ledger of the solve that is under way; other threads have none, and what they do is the time of who waits."""


class Ledger:
    """Open within a `with` block, in the thread that enters it. `clock`: seconds since whenever, never going back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._row, self._since_s = clock, REST, clock()
        self._spent_s: dict[str, float] = {}
        self._token: Token[Ledger | None] | None = None

    def __enter__(self) -> Ledger:  # noqa: PYI034  nothing is derived from it
        self._row, self._since_s, self._token = REST, self._clock(), _OPEN.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.turn_to("")
        if self._token is not None:
            _OPEN.reset(self._token)

    @property
    def rows(self) -> dict[str, float]:
        """Seconds by row, the most first, with those of the row that is open up to now; from any thread."""
        spent_s, row, since_s = dict(self._spent_s), self._row, self._since_s
        if row:
            spent_s[row] = spent_s.get(row, 0.0) + self._clock() - since_s
        most_first = sorted(spent_s.items(), key=lambda item: (-item[1], item[0]))
        return {name: round(duration_s, 6) for name, duration_s in most_first}

    def turn_to(self, row: str) -> str:
        """Charge what follows to another row, to none where it is empty; returns the row that was open before."""
        before, now_s = self._row, self._clock()
        if before:
            self._spent_s[before] = self._spent_s.get(before, 0.0) + now_s - self._since_s
        self._row, self._since_s = row, now_s
        return before


def spent_s(rows: Mapping[str, float]) -> float:
    """Seconds of all rows, to the microsecond, as they are."""
    return round(sum(rows.values()), 6)


@contextmanager
def charge(row: str) -> Iterator[None]:
    """Charge the block, or the function that this decorates, to a row of the open ledger, if there is one.

    A block must not lie around a `yield`, unless the iterator is used up within the block around it.
    """
    ledger = _OPEN.get()
    if ledger is None:
        yield
        return
    before = ledger.turn_to(row)
    try:
        yield
    finally:
        ledger.turn_to(before)
