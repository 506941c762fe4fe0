"""The time-indexed relaxation of a rank alone, or of two links: how often each activity has begun by points in time.

A step of T is refuted where no such counts keep to heads and tails, lags, machines and memory. Counts may be fractions,
so that is a linear program; that it has no solution is proven in whole numbers by what the solver answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.bounds.activities import Activities
from gapless.encodings.pipeline.bounds.refutation import refutes
from gapless.model import Model
from gapless.options import Deadline
from gapless.solution import Status
from gapless.solvers.registry import solve_model

__all__ = ["is_refuted", "points_of"]

_ENDS = 0.7
"""Of the points in time, the share that goes to the step's begin and end, where ranks wait."""
_REACH = 1.3
"""How far begin and end reach, in the time until every activity can have begun, and that which all take to finish."""
_PART = 2.0**20
"""Bounds on work are whole multiples of an op's 2^-20th part, so that they are exact numbers."""


def points_of(activities: Activities, step: float, most: int) -> Ints:
    """Points in time, whole numbers from 0 to `step`: all of them, or about `most`, more of them near both ends."""
    if step <= most:
        return np.arange(step + 1).astype(np.int64)
    begin = min(_REACH * float(activities.head[:, 0].max()), step / 2)
    end = min(_REACH * float(activities.rest[:, -1].max()), step / 2)
    middle = step - begin - end
    count = most * _ENDS if middle > (1 - _ENDS) * step else most * (begin + end) / step
    each = int(count / 2)
    parts = (np.linspace(0.0, begin, each), np.linspace(begin, step - end, most - 2 * each + 2),
             step - np.linspace(0.0, end, each))  # fmt: skip
    return np.unique(np.floor(np.concatenate([*parts, [step]]))).astype(np.int64)


def is_refuted(activities: Activities, step: float, most: int, deadline: Deadline) -> bool:
    """Whether it is proven that no order ends within `step`, a whole number, as all times of the activities are.

    `most`: of points in time. Something is always left open where the deadline strikes.
    """
    counted = _Counted(activities, step, points_of(activities, step, most))
    if (counted.least > counted.greatest).any():
        return True
    model = counted.model()
    options = replace(deadline.stage(), threads=1, presolve=False, on_progress=None, on_plan=None)
    claimed = solve_model(model, options)
    if claimed.status is not Status.INFEASIBLE or claimed.row_prices is None:
        return False
    return refutes(model.arrays(), claimed.row_prices)


@dataclass(frozen=True)
class _Counted:
    """How often each activity has begun by each of some times: shapes (K, times)."""

    activities: Activities
    step: float
    times: Ints

    @property
    def greatest(self) -> Floats:
        """By heads, and by lags none before the first can be."""
        return _counts(self.activities.head, self.times)

    @property
    def least(self) -> Floats:
        """By tails."""
        return _counts(self.step - self.activities.rest, self.times)

    @property
    def is_fine(self) -> bool:
        """Whether times are even, and every activity holds its machine for a whole number of intervals."""
        interval = self.times[1] - self.times[0]
        return bool((np.diff(self.times) == interval).all() and (self.activities.hold % interval == 0).all())

    def model(self) -> Model:
        """Columns: the counts, then 0 and M, which stand for what was before the first time and after the last."""
        model, shape = Model("time_indexed"), self.least.shape
        most = float(self.activities.head.shape[1])
        begun = model.continuous("begun", shape, lower=self.least, upper=self.greatest)
        none, every = model.continuous("ends", 2, lower=[0.0, most], upper=[0.0, most])
        ends = [np.full((shape[0], 1), column, dtype=np.int64) for column in (none, every)]
        columns = np.concatenate([ends[0], begun, ends[1]], axis=1)
        model.add("grow", (np.array([1.0, -1.0]), np.stack([begun[:, :-1], begun[:, 1:]], axis=-1)), upper=0.0)
        self._follow(model, columns)
        self._take_turns(model, columns)
        self._keep(model, columns)
        if not self.is_fine:
            self._work(model, columns)
        return model

    def _by(self, columns: Ints, activity: int, late: float) -> Ints:
        """A column for each time, of a count that is no less than that so much earlier."""
        then = self.times - late
        return np.asarray(columns[activity, np.where(then < 0, 0, np.searchsorted(self.times, then) + 1)])

    def _done(self, columns: Ints, activity: int) -> Ints:
        """A column for each time, of a count that is no more than that of what has ended by then."""
        last = np.searchsorted(self.times, self.times - self.activities.hold[activity], side="right")
        return np.asarray(columns[activity, last])

    def _follow(self, model: Model, columns: Ints) -> None:
        """What follows has begun no more often than what it follows, a lag earlier."""
        pairs = [np.stack([columns[lag.after, 1:-1], self._by(columns, lag.before, lag.by)], axis=-1)
                 for lag in self.activities.lags]  # fmt: skip
        if pairs:
            model.add("follow", (np.array([1.0, -1.0]), np.concatenate(pairs)), upper=0.0)

    def _take_turns(self, model: Model, columns: Ints) -> None:
        """A machine does one thing at a time: at any time, of what began within its duration, one."""
        for number, own in enumerate(self.activities.machines):
            begun = columns[own, 1:-1].T
            done = np.stack([self._by(columns, k, self.activities.hold[k]) for k in own.tolist()], axis=-1)
            model.add(f"one_at_a_time_{number}", (1.0, begun), (-1.0, done), upper=1.0)

    def _keep(self, model: Model, columns: Ints) -> None:
        """What has begun to be kept and is not yet given up fits into memory, at any time."""
        memory = self.activities.memory
        if memory is None:
            return
        begun = columns[memory.begins, 1:-1].T
        ended = np.stack([self._by(columns, k, self.activities.hold[k]) for k in memory.ends.tolist()], axis=-1)
        sizes = memory.sizes.astype(np.float64)
        model.add("memory", (sizes, begun), (-sizes, ended), upper=float(memory.room))

    def _work(self, model: Model, columns: Ints) -> None:
        """More columns, where intervals are coarse: how much of each activity is done by each time, in ops; between two
        times machines do no more than they have time for.
        """
        hold, head, rest = self.activities.hold, self.activities.head, self.activities.rest
        most = (np.ceil(_PART * _progress(head, hold, self.times)) + 1) / _PART  # rounding errors are less than a part
        least = (np.floor(_PART * _progress(self.step - rest, hold, self.times)) - 1) / _PART
        work = model.continuous("work", most.shape, lower=np.clip(least, 0.0, most), upper=most)
        model.add("work_grows", (np.array([1.0, -1.0]), np.stack([work[:, :-1], work[:, 1:]], axis=-1)), upper=0.0)
        model.add("work_of_begun", (np.array([1.0, -1.0]), np.stack([work, columns[:, 1:-1]], axis=-1)), upper=0.0)
        done = np.stack([self._done(columns, k) for k in range(len(hold))])
        model.add("work_of_done", (np.array([1.0, -1.0]), np.stack([done, work], axis=-1)), upper=0.0)
        for number, own in enumerate(self.activities.machines):
            terms = (hold[own], work[own, 1:].T), (-hold[own], work[own, :-1].T)
            model.add(f"work_takes_time_{number}", *terms, upper=np.diff(self.times).astype(np.float64))


def _counts(moments: Floats, times: Ints) -> Floats:
    """How many of each row's moments, which grow, are at most each time."""
    return np.stack([np.searchsorted(row, times, side="right") for row in moments]).astype(np.float64)


def _progress(starts: Floats, hold: Floats, times: Ints) -> Floats:
    """How many ops of each row are done by each time, and what share of those that run, where they start so."""
    found = np.zeros((len(starts), len(times)))
    for own, (row, duration) in enumerate(zip(starts, hold.tolist(), strict=True)):
        if not duration:
            found[own] = np.searchsorted(row, times, side="right")
            continue
        found[own] = np.clip((times - row[:, None]) / duration, 0.0, 1.0).sum(axis=0)
    return found
