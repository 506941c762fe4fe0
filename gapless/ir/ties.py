"""Ties: which of several events of one instant comes first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gapless.checker.timeline import instants_of, tolerance_s
from gapless.ir.schedule import Event

__all__ = ["by_start"]


def by_start(program: Sequence[Event]) -> list[Event]:
    """The events in order of their starts; of those that the checker sees start at one instant, first what takes no
    time, as the program lists it, then what goes on, which nothing of that instant waits for.

    A program lists each event after those that it depends on: that write what it reads, use what it frees, or hold what
    it holds. Times that differ by a rounding error don't count.
    """
    start_s, end_s = (np.array([getattr(event, name) for event in program]) for name in ("start_s", "end_s"))
    starts, ends = np.split(instants_of(np.concatenate([start_s, end_s]), tolerance_s(end_s)), 2)
    order = np.lexsort((ends > starts, starts))
    return [program[number] for number in order.tolist()]
