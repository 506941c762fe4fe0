"""What a replay shows of a schedule over time, for pictures and pages; whether it is allowed is `check`'s to say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.checker import judged
from gapless.checker.program import known_events
from gapless.checker.replay import Replay, replayed
from gapless.checker.report import Report
from gapless.checker.resources import memory_levels
from gapless.checker.waits import Waits, waits
from gapless.ir.schedule import Schedule

__all__ = ["Inspection", "MemorySteps", "inspected", "known_events", "memory_steps"]


@dataclass(frozen=True)
class MemorySteps:
    """The live bytes of one device: `live_bytes[k]` from `time_s[k]` until the next; shape (m,), times ascending.

    Several levels of one instant stand in the order in which the replay passes through them. The largest is the peak
    that the report has.
    """

    time_s: NDArray[np.float64]
    live_bytes: NDArray[np.int64]


def memory_steps(replay: Replay) -> tuple[MemorySteps, ...]:
    """The memory of each device over time, as the replay has it: workspace and in-place writes included."""
    program, timeline, log = replay.program, replay.timeline, replay.log
    time_s = np.zeros(len(timeline.event_at))
    time_s[timeline.start] = program.start_s
    time_s[timeline.end] = time_s[timeline.free] = program.end_s
    steps = []
    for position, level in memory_levels(program, timeline, log):
        # Within the tolerance, what comes first in logical time may have the later clock time.
        steps.append(MemorySteps(np.maximum.accumulate(time_s[position]), level))
    return tuple(steps)


@dataclass(frozen=True)
class Inspection:
    """What a replay found, the memory of each device over time, and why each replayed event starts when it does:
    small enough to be kept, where the replay itself is not.

    `numbers`: the rows in the schedule of the events that were replayed, int64, shape (n,); `waits` is of those.
    """

    report: Report
    memory: tuple[MemorySteps, ...]
    waits: Waits
    numbers: NDArray[np.int64]


def inspected(schedule: Schedule) -> Inspection:
    """Replay a schedule and look at it."""
    replay = replayed(schedule)
    return Inspection(judged(replay), memory_steps(replay), waits(replay.program), replay.program.numbers)
