"""Incumbents: the best plan of a solve that still goes on, handed on now and then, for whatever may end the process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from gapless.errors import InputError
from gapless.system import Plan

__all__ = ["INTERVAL_S", "Incumbents"]

INTERVAL_S = 30.0
"""How many seconds of a solve a process that is killed may lose."""


class Incumbents:
    """Takes the plans that a solve offers; the best of them goes to `keep`, at most once in `interval_s` seconds.

    `offer` costs next to nothing: a plan is made only when it is kept, in a thread of its own. `keep` replays it, and
    keeps it or not; a file that can't be written to is tried again the next time, and the end of the solve says why.
    `keep` may be None: then plans are only remembered, for `best`.
    """

    def __init__(self, keep: Callable[[Plan], None] | None, interval_s: float) -> None:
        self._keep, self._interval_s = keep, interval_s
        self._news = threading.Condition()
        self._writing = threading.Lock()
        self._is_closed = False
        self._cost, self._kept_cost = math.inf, math.inf
        self._make: Callable[[], Plan] | None = None
        self._next_s = time.monotonic() + interval_s
        if keep is not None:
            threading.Thread(target=self._keep_going, name="gapless-incumbents", daemon=True).start()

    def close(self) -> None:
        """The solve is over: nothing is kept any more."""
        with self._writing, self._news:  # a file that is being written is waited for, a plan that is being made is not
            self._is_closed = True
            self._news.notify()

    def offer(self, cost: float, make: Callable[[], Plan]) -> None:
        """A plan has been found: what it costs (less is better), and what makes it, in any thread, as long as the solve
        goes on or right after.
        """
        with self._news:
            if cost < self._cost:
                self._cost, self._make = cost, make
                self._news.notify()

    @property
    def best(self) -> Plan | None:
        """The best plan that was offered, made now."""
        return None if self._make is None else self._make()

    def _keep_going(self) -> None:
        """Keep what is better than the last one that was kept, whenever it is time."""
        while (news := self._awaited()) is not None:
            cost, make = news
            with suppress(InputError, MemoryError):
                plan = make()
                with self._writing:
                    if not self._is_closed and self._keep is not None:
                        self._keep(plan)
                        self._kept_cost = cost
            self._next_s = time.monotonic() + self._interval_s

    def _awaited(self) -> tuple[float, Callable[[], Plan]] | None:
        """The next plan to keep, once there is one and it is time; None once the solve is over."""
        with self._news:
            while not self._is_closed:
                wait_s = self._next_s - time.monotonic()
                is_news = self._make is not None and self._cost < self._kept_cost
                if is_news and wait_s <= 0 and self._make is not None:
                    return self._cost, self._make
                self._news.wait(wait_s if is_news else None)
        return None
