"""What pictures and pages see of a replay: small enough to be kept, where the replay itself is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.checker import judged
from gapless.checker.replay import Replay, replayed
from gapless.checker.report import Report
from gapless.checker.usage import MemorySteps, memory_steps
from gapless.checker.waits import Waits, waits
from gapless.ir.schedule import Schedule

__all__ = ["Seen", "seen", "seen_of"]


@dataclass(frozen=True)
class Seen:
    """What a replay found, the memory of each device over time, and why each replayed event starts when it does.

    `numbers`: the rows in the schedule of the events that were replayed, int64, shape (n,); `waits` is of those.
    """

    report: Report
    memory: tuple[MemorySteps, ...]
    waits: Waits
    numbers: NDArray[np.int64]


def seen(schedule: Schedule) -> Seen:
    """Replay a schedule and look at it."""
    return seen_of(replayed(schedule))


def seen_of(replay: Replay) -> Seen:
    """Look at a replay that is there already."""
    return Seen(judged(replay), memory_steps(replay), waits(replay.program), replay.program.numbers)
