"""What the relaxation is made of: its columns, and rows that are collected entry by entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.options import Option
from gapless.model import Model
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["Relaxation", "Rows"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Relaxation:
    """The model and where its variables are; costs are in units of `unit_s`, memory in units of `unit_bytes`.

    `budget`: the column of the budget where it is to be minimised, -1 where it is given.
    `cuts`: the stages at which windows begin, the first is 1. `stored[w, i]`, `again[w, i]`: columns, -1 where x_i
    can't matter. `forward[i]`, `backward[b]`: the options of each node, with their columns (-1: the only one).
    """

    milp: Model
    graph: TrainingGraph
    budget_bytes: int
    budget: int
    unit_s: float
    unit_bytes: float
    cuts: tuple[int, ...]
    stored: Ids
    again: Ids
    forward: tuple[tuple[tuple[Option, int], ...], ...]
    backward: tuple[tuple[tuple[Option, int], ...], ...]

    def span(self, window: int) -> tuple[int, int]:
        """The first and the last stage of a window."""
        is_last = window + 1 == len(self.cuts)
        return self.cuts[window], len(self.graph.backward) if is_last else self.cuts[window + 1] - 1

    def leaves(self, window: int, tensor: int) -> int:
        """The column that says whether the next window begins with x_i, -1 where it can't matter any more."""
        return int(self.stored[window + 1, tensor]) if window + 1 < len(self.cuts) else -1


class Rows:
    """Rows of coordinate entries, each at most its bound, which takes up what is constant: column -1 stands for 1."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []
        self.bound: list[float] = []

    def begin(self, bound: float) -> None:
        """Start a row."""
        self.bound.append(bound)

    def begin_memory(self, model: Relaxation, taken: float) -> None:
        """Start a row that keeps memory within the budget, `taken` of which is."""
        self.begin(model.budget_bytes / model.unit_bytes - taken)
        if model.budget >= 0:
            self.put(model.budget, -1.0)

    def put(self, column: int, value: float) -> None:
        """Add an entry to the current row."""
        if column < 0:
            self.bound[-1] -= value
        else:
            self.row.append(len(self.bound) - 1)
            self.column.append(column)
            self.value.append(value)

    def add_to(self, model: Model, family: str, cite: str = "", equal: bool = False) -> None:
        """Add the rows as `<= bound`, or as `= bound`."""
        bound = np.array(self.bound)
        lower = bound if equal else -np.inf
        model.add_sparse(family, len(bound), self.row, self.column, self.value, lower=lower, upper=bound, cite=cite)
