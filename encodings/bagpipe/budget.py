"""Budget: how many batches there is time for.

What is planned has to be replayed and written, all within the time limit. What that takes is measured on the first
batch of the run (`Pace`), never guessed, and grows in proportion to the batches, since all of it goes window by window.
Each batch has the partition that was asked for; planning ends where finishing what is planned takes all that is left.
Without a limit none of this decides anything, and once somebody has asked to stop, everything ends at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.options import Deadline, SolveOptions

__all__ = ["Budget", "OutOfTimeErrorError", "Pace"]


class OutOfTimeErrorError(Exception):
    """There is no time to look further ahead."""


@dataclass(frozen=True)
class Pace:
    """Seconds a batch: to plan with the quickest partition; to lower, replay and write."""

    plan_s: float = 0.0
    finish_s: float = 0.0


class Budget:
    """The time of a run, from batch to batch."""

    def __init__(self, deadline: Deadline, pace: Pace) -> None:
        self._deadline, self._pace, self._planned = deadline, pace, 0

    def check_reading(self) -> None:
        """Called before a batch is read. Raises `OutOfTimeErrorError` where there is no time to plan one more."""
        if not self._allows(self._left_s()):
            raise OutOfTimeErrorError

    def goes_on(self) -> bool:
        """Called for each batch that was planned: whether there is time for another one."""
        self._planned += 1
        return self._allows(self._left_s() - self._pace.plan_s)

    def partition_options(self) -> SolveOptions | None:
        """Under which the next batch may be partitioned; None where there is no time for a search."""
        left_s = self._left_s()
        return self._deadline.stage(left_s) if self._allows(left_s) else None

    def _left_s(self) -> float:
        """What is left when the next batch is finished too."""
        return self._deadline.remaining_s - (self._planned + 1) * self._pace.finish_s

    def _allows(self, left_s: float) -> bool:
        if left_s <= 0 < self._deadline.remaining_s:
            self._deadline.strike()  # the clock decides, though it has not yet run out
        return left_s > 0
