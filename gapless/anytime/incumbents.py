"""Incumbents: the best of a solve that still goes on, handed on now and then, for whatever may end the process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from gapless.errors import InputError

__all__ = ["INTERVAL_S", "Incumbents"]

T = TypeVar("T")

INTERVAL_S = 30.0
"""How many seconds of a solve a process that is killed may lose."""


class Incumbents(Generic[T]):
    """Takes what a solve offers; the best of it goes to `keep`, at most once in `interval_s` seconds, until `close`.

    `offer` costs next to nothing: a result is made only when it is to be kept, in a thread of its own. What can't be
    written is tried again the next time; the end of the solve says why. Without `keep`, offers are only remembered.
    """

    def __init__(self, keep: Callable[[T], None] | None, interval_s: float) -> None:
        self._keep, self._interval_s = keep, interval_s
        self._lock = threading.Lock()  # whose `with` nothing cuts in two, where a solve is cut short in an offer
        self._news = threading.Condition(self._lock)
        self._keeping = threading.Lock()
        self._is_closed = False
        self._cost, self._kept_cost = math.inf, math.inf
        self._make: Callable[[], T] | None = None
        self._next_s = time.monotonic() + interval_s
        if keep is not None:
            threading.Thread(target=self._keep_best, name="gapless-incumbents", daemon=True).start()

    def close(self) -> None:
        """Keep nothing any more. What is being kept is waited for, what is being made is not."""
        with self._keeping, self._news:
            self._is_closed = True
            self._news.notify()

    def offer(self, cost: float, make: Callable[[], T]) -> None:
        """Something was found: what it costs (less is better), and what makes it, in any thread, at any time."""
        with self._lock:
            if cost < self._cost:
                self._cost, self._make = cost, make
                self._news.notify()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was offered yet."""
        return self._make is None

    def best(self) -> T | None:
        """The best that was offered, made now."""
        return None if self._make is None else self._make()

    def _keep_best(self) -> None:
        """Keep what is better than the last that was kept, whenever it is time."""
        while (news := self._awaited()) is not None:
            cost, make = news
            with suppress(InputError, MemoryError):
                made = make()
                with self._keeping:
                    if not self._is_closed and self._keep is not None:
                        self._keep(made)
                        self._kept_cost = cost
            self._next_s = time.monotonic() + self._interval_s

    def _awaited(self) -> tuple[float, Callable[[], T]] | None:
        """What is to be kept next, once there is something and it is time; None once the solve is over."""
        with self._news:
            while not self._is_closed:
                wait_s = self._next_s - time.monotonic()
                is_news = self._cost < self._kept_cost
                if is_news and wait_s <= 0 and self._make is not None:
                    return self._cost, self._make
                self._news.wait(wait_s if is_news else None)
        return None
