"""A queue of copies at an emulated rate, for a device that is the host itself. Needs the extra `torch`."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from gapless.torch.library import Tensor

__all__ = ["Clock", "EmulatedQueue"]


class Clock(Protocol):
    """What copies are timed by."""

    def now_s(self) -> float:
        """What it says."""
        ...

    def wait_until(self, instant_s: float) -> None:
        """Wait until it says that."""
        ...


@dataclass
class _Ticket:
    """A copy in a thread, and when it is over at the emulated rate."""

    done: Future[None]
    end_s: float


class EmulatedQueue:
    """One copy at a time, by a thread; a copy is over when it would be at `beta_s_per_byte`, by the clock."""

    def __init__(self, clock: Clock, beta_s_per_byte: float) -> None:
        self._clock, self._beta_s_per_byte = clock, beta_s_per_byte
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gapless-copy")
        self._free_s = 0.0

    def copy(self, target: Tensor, source: Tensor, after: _Ticket | None = None) -> _Ticket:
        """Begin a copy once the earlier ones are over, and the one of the ticket `after`; its ticket."""
        begin_s = max(self._clock.now_s(), self._free_s, after.end_s if after is not None else 0.0)
        self._free_s = begin_s + self._beta_s_per_byte * source.nbytes
        waits = None if after is None else after.done
        return _Ticket(self._thread.submit(_copied, [target, source], waits), self._free_s)

    def wait(self, ticket: _Ticket) -> None:
        """Wait until a copy is over."""
        ticket.done.result()
        self._clock.wait_until(ticket.end_s)


def _copied(pair: list[Tensor], after: Future[None] | None) -> None:
    """Copy, and hold neither of the two any more when that is over: whoever waited for it lets memory go."""
    if after is not None:
        after.result()
    target, source = pair
    pair.clear()
    target.copy_(source)
