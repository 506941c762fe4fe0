"""Ties: which of several events of one instant comes first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gapless.checker.timeline import logical_time, tolerance_s
from gapless.schedule import Event

__all__ = ["by_start"]


def by_start(program: Sequence[Event]) -> list[Event]:
    """The events in order of their starts; those that the checker sees start at one instant, as the program lists them.

    A program lists each event after those that it depends on: that write what it reads, use what it frees, or hold what
    it holds. So what takes no time stays behind what it needs, and times that differ by a rounding error don't count.
    """
    start_s, end_s = (np.array([getattr(event, name) for event in program]) for name in ("start_s", "end_s"))
    order = np.argsort(logical_time(start_s, end_s, tolerance_s(end_s)).start)
    return [program[number] for number in order.tolist()]
