"""What looks at a plan ends in time too: reading it, its replay and its pictures, each while there is time for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gapless.options import Deadline, SolveOptions
from gapless.solvers.interruptible import run_interruptibly

__all__ = ["Patience"]

T = TypeVar("T")


class Patience:
    """The time that a command has, which also ends once `stop` is set."""

    def __init__(self, time_limit_s: float | None, stop: threading.Event) -> None:
        self._stop = stop
        self._deadline = Deadline(SolveOptions(time_limit_s, stop=stop))

    def given(self, work: Callable[[], T]) -> T | None:
        """What `work` returns; None once there is no time, which leaves behind what is at work then.

        Raises what `work` raises.
        """
        if self._deadline.over:
            return None
        try:
            return run_interruptibly(work, _go_on, self._stop, self._deadline.remaining_s)
        except TimeoutError:
            return None

    @property
    def why_over(self) -> str:
        """Why there is no time any more."""
        return "it was stopped" if self._stop.is_set() else "the time limit was reached"


def _go_on() -> None:
    """Neither a replay nor a picture can be asked to end."""
