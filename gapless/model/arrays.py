"""ModelArrays: a whole model in arrays, as solvers, writers and proofs read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Cumulative", "Disjunction", "Floats", "Ids", "ModelArrays"]

Ids: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Disjunction:
    """Activities of which no two overlap: activity k runs from column `starts[k]` for `durations[k]`; if at all, where
    `present[k]` is a binary column, which is 1 then, and always where that is -1.
    """

    family: str
    starts: Ids
    durations: Floats
    present: Ids

    def violation(self, values: Floats) -> float:
        """The most by which an activity starts before another one has ended, 0 where none does."""
        there = np.where(self.present < 0, 1.0, values[self.present]) > 0.5
        start, duration = values[self.starts][there], self.durations[there]
        order = np.lexsort((duration, start))  # what takes no time goes first
        start, duration = start[order], duration[order]
        return float((start[:-1] + duration[:-1] - start[1:]).max(initial=0.0))


@dataclass(frozen=True)
class Cumulative:
    """Activities that share a capacity: activity k holds `demands[k]` of it from the time of column `starts[k]` until
    that of column `ends[k]` plus `delays[k]`, which is no earlier; what ends at an instant ends before others start.
    """

    family: str
    starts: Ids
    ends: Ids
    delays: Floats
    demands: Floats
    capacity: float

    def violation(self, values: Floats) -> float:
        """The most by which an activity ends before it starts, or a share of the capacity lacks; 0 for neither."""
        start, end = values[self.starts], values[self.ends] + self.delays
        at = np.concatenate([start, end])
        change = np.concatenate([self.demands, -self.demands])
        lasts = np.tile(end > start, 2)
        held = np.cumsum(change[lasts][np.lexsort((change[lasts], at[lasts]))])
        excess = float(held.max(initial=0.0) - self.capacity) / max(self.capacity, 1.0)
        return max(excess, float((start - end).max(initial=0.0)), 0.0)


@dataclass(frozen=True)
class ModelArrays:
    """The model as a solver wants it.

    `cost`, `lower`, `upper`: float, one per column; `is_integer`: bool, one per column. Rows are in CSR form: row i has
    columns `index[start[i]:start[i + 1]]`, ascending, and coefficients `value[...]`, none zero, none repeated;
    `row_lower[i] <= row <= row_upper[i]`. The objective is `cost @ x + offset`, minimised unless `maximize`.

    Row i holds only where the binary column `only_if[i]` is 1, always where that is -1; `disjunctions` and
    `cumulatives` hold besides. `gapless.model.linearise` turns the first two into plain rows for the solvers that know
    nothing else.
    """

    cost: Floats
    offset: float
    maximize: bool
    lower: Floats
    upper: Floats
    is_integer: NDArray[np.bool_]
    row_lower: Floats
    row_upper: Floats
    start: Ids
    index: Ids
    value: Floats
    only_if: Ids
    disjunctions: tuple[Disjunction, ...] = ()
    cumulatives: tuple[Cumulative, ...] = ()

    @property
    def is_linear(self) -> bool:
        """Whether plain rows are all there is."""
        return not self.disjunctions and not self.cumulatives and bool((self.only_if < 0).all())

    @property
    def row_of_entry(self) -> Ids:
        """The row of each nonzero, int64, as long as `index`."""
        return np.repeat(np.arange(len(self.row_lower)), np.diff(self.start))

    def objective(self, values: ArrayLike) -> float:
        """The objective at `values` (one per column), offset included."""
        return float(self.cost @ np.asarray(values, dtype=np.float64)) + self.offset

    def activity(self, values: ArrayLike) -> Floats:
        """The value of each row at `values` (one per column)."""
        products = self.value * np.asarray(values, dtype=np.float64)[self.index]
        activity = np.zeros(len(self.row_lower))
        np.add.at(activity, self.row_of_entry, products)
        return activity

    def violation(self, values: ArrayLike) -> float:
        """How far `values` (one per column) are from feasible, 0 if they are.

        The largest distance of a row or column from its bounds (a row's relative to its largest bound or coefficient
        if that is above 1) and of an integer column from a whole number.
        """
        x = np.asarray(values, dtype=np.float64)
        if not np.isfinite(x).all():
            return float("inf")
        activity = self.activity(x)
        applies = np.where(self.only_if < 0, 1.0, x[np.maximum(self.only_if, 0)]) > 0.5 if len(x) else self.only_if < 0
        scale = np.ones(len(self.row_lower))
        np.maximum.at(scale, self.row_of_entry, np.abs(self.value))
        for bound in (self.row_lower, self.row_upper):
            scale = np.maximum(scale, np.where(np.isfinite(bound), np.abs(bound), 1.0))
        gaps = [
            (np.maximum(self.row_lower - activity, activity - self.row_upper) / scale)[applies],
            np.maximum(self.lower - x, x - self.upper),
            np.abs(x - np.round(x))[self.is_integer],
        ]
        gaps.append(np.array([disjunction.violation(x) for disjunction in self.disjunctions]))
        gaps.append(np.array([cumulative.violation(x) for cumulative in self.cumulatives]))
        return max(float(gap.max(initial=0.0)) for gap in gaps)
