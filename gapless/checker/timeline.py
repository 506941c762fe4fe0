"""Logical time: every event's start, end and frees as integer positions, so that all that follows compares exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["RELATIVE_TOLERANCE", "Timeline", "instants_of", "logical_time", "tolerance_s"]

RELATIVE_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Timeline:
    """Positions of n events in logical time, all int64.

    `start`, `end`, `free`, shape (n,): all different, in 1..3n. `event_at`, shape (3n + 1,): the event that a position
    belongs to; position 0 is the state before the first event, and belongs to none (-1).
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    free: NDArray[np.int64]
    event_at: NDArray[np.int64]


def tolerance_s(end_s: NDArray[np.float64]) -> float:
    """Times that are closer than this are the same instant: float noise, not time."""
    return RELATIVE_TOLERANCE * float(end_s.max(initial=0.0))


def logical_time(start_s: NDArray[np.float64], end_s: NDArray[np.float64], tolerance_s: float) -> Timeline:
    """Puts starts, ends and frees in order.

    Within an instant: first all ends of events that started earlier, then what those events free, then the events that
    start here in listed order; where such an event takes no time, its end and its frees follow its start at once.
    """
    count = len(start_s)
    instant = instants_of(np.concatenate([start_s, end_s]), tolerance_s)
    starts, ends = instant[:count], instant[count:]
    event = np.arange(count)
    lasting = ends > starts
    base = 5 * count
    begin = 2 * count + 3 * event
    key = np.concatenate(
        [
            starts * base + begin,
            ends * base + np.where(lasting, event, begin + 1),
            ends * base + np.where(lasting, count + event, begin + 2),
        ]
    )
    order = np.argsort(key, kind="stable")  # most schedules come in order: a few runs to merge
    position = np.empty(3 * count, dtype=np.int64)
    position[order] = np.arange(1, 3 * count + 1)
    event_at = np.concatenate([[-1], order % max(count, 1)])
    return Timeline(position[:count], position[count : 2 * count], position[2 * count :], event_at)


def instants_of(times_s: NDArray[np.float64], tolerance_s: float) -> NDArray[np.int64]:
    """The number of the instant that each time falls in: a new one begins after each gap above the tolerance."""
    order = np.argsort(times_s, kind="stable")
    gap = np.diff(times_s[order], prepend=times_s[order[:1]]) > tolerance_s
    instant = np.empty(len(times_s), dtype=np.int64)
    instant[order] = np.cumsum(gap)
    return instant
