"""What a replay sees of a schedule over time, for pictures and traces; whether it is allowed is `check`'s to say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.checker.program import known_events
from gapless.checker.replay import Replay
from gapless.checker.resources import memory_levels

__all__ = ["MemorySteps", "known_events", "memory_steps"]


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
