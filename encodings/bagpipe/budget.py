"""Budget: how many batches there is time for, and which of them may be partitioned with care.

What is read has to be planned, lowered, replayed and written, all within the time limit. What that takes is measured on
the first batch of the run (`Pace`), never guessed. Then: reading ends where what is read takes the rest of the limit;
a batch gets the partition that was asked for while the time that all others need at least isn't touched; and planning
ends where finishing what is planned takes all that is left. Without a limit none of this decides anything, and once
somebody has asked to stop, everything ends at once.

Rows with one history are lowered together. Of few batches nearly all rows are, of many batches ever fewer: the share of
rows that go alone grows about in proportion to the batches, and is counted while they are planned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.options import Deadline, SolveOptions

__all__ = ["Budget", "Histories", "Pace"]

Ints = NDArray[np.int64]


_LEAST_SHARE = 0.01
"""Of the rows of a batch: how many go alone at least for each batch of the run. Click logs have about so many."""

_SHARE_OF_ONE = 0.5
"""Of the time that is left over: what one batch may take. A solver that is asked to end takes a moment."""

_REFINED = 1.5
"""So many times the rows that go alone when their batch is planned do so in the end: later batches distinguish them."""


@dataclass(frozen=True)
class Pace:
    """Seconds a batch: to look ahead; to plan with the quickest partition; to lower, replay and write; and what that
    takes more where every row goes alone.
    """

    read_s: float = 0.0
    plan_s: float = 0.0
    finish_s: float = 0.0
    alone_s: float = 0.0


class Budget:
    """The time of a run, from batch to batch. `asked`: the batches of the run, None where nobody knows."""

    def __init__(self, deadline: Deadline, pace: Pace, asked: int | None) -> None:
        self._deadline, self._pace, self._asked = deadline, pace, asked
        self._read = self._planned = 0
        self._is_read = False
        self._share, self._partition_s = _LEAST_SHARE, 0.0
        self._histories = Histories()

    def reads_on(self) -> bool:
        """Called for each batch that was read: whether there is time for another one."""
        self._read += 1
        self._is_read = not self._allows(self._left_s(self._read + 1))
        return not self._is_read

    def plans_on(self, rows: NDArray[np.int32], code: Callable[[], Ints], partition_s: float) -> bool:
        """Called for each batch that was planned: whether there is time for another one.

        `rows`: the cache row of each of its rows; `code()`: a number for all that happens to each. `partition_s`: what
        its partition took, if it is the one that was asked for, else 0.
        """
        self._planned += 1
        self._partition_s = partition_s or self._partition_s
        if self._pace.alone_s:
            share = _REFINED * self._histories.distinguish(rows, code()) / self._planned
            self._share = max(_LEAST_SHARE, share)
        total = self._planned + 1
        return self._allows(self._deadline.remaining_s - self._finish_s(total) - self._pace.plan_s)

    def partition_options(self) -> SolveOptions | None:
        """Under which the next batch may be partitioned; None where there is time for the quickest partition only."""
        total = self._read if self._is_read or self._asked is None else self._asked
        left_s = self._left_s(max(total, self._read))
        return self._deadline.stage(_SHARE_OF_ONE * left_s) if self._allows(left_s - self._partition_s) else None

    def _left_s(self, total: int) -> float:
        """What is left when as many batches are read, planned quickly from here on, and finished."""
        pace = self._pace
        rest_s = pace.read_s * (total - self._read) + pace.plan_s * (total - self._planned)
        return self._deadline.remaining_s - rest_s - self._finish_s(total)

    def _finish_s(self, total: int) -> float:
        return total * (self._pace.finish_s + self._pace.alone_s * min(1.0, self._share * total))

    def _allows(self, left_s: float) -> bool:
        if left_s <= 0 < self._deadline.remaining_s:
            self._deadline.strike()  # the clock decides, though it has not yet run out
        return left_s > 0


class Histories:
    """What has happened to each row since it came into the cache, as a number."""

    def __init__(self) -> None:
        self._label = np.zeros(1024, dtype=np.int64)
        self._labels = 1
        self._rows = self._alone = 0

    def distinguish(self, rows: NDArray[np.int32], code: Ints) -> float:
        """Note what a batch does to its rows; the share of rows of all batches so far that had a history of their own.

        Rows with one history count as one.
        """
        most = int(rows.max()) + 1
        if most > len(self._label):
            more = np.zeros(max(most, len(self._label)), dtype=np.int64)
            self._label = np.concatenate([self._label, more])
        past, same = np.unique(self._label[rows] * (int(code.max()) + 1) + code, return_inverse=True)
        self._label[rows] = self._labels + same
        self._labels += len(past)
        self._rows += len(rows)
        self._alone += len(past)
        return self._alone / self._rows
