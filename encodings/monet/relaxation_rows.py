"""Rows of the relaxation: entries collected one by one, with a bound that takes up what is constant."""

from __future__ import annotations

import numpy as np

from gapless.model import Model

__all__ = ["BYTES_PER_UNIT", "Rows"]

BYTES_PER_UNIT = 2.0**20
"""Memory rows are in MiB: solvers work to absolute tolerances."""


class Rows:
    """Rows of coordinate entries, each at most its bound. Column -1 stands for the constant 1."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []
        self.bound: list[float] = []

    def begin(self, bound: float) -> None:
        """Start a row."""
        self.bound.append(bound)

    def begin_memory(self, budget_bytes: int, budget: int, taken: float) -> None:
        """Start a row that keeps memory within the budget, `taken` of which is; `budget`: its column, or -1."""
        self.begin(budget_bytes / BYTES_PER_UNIT - taken)
        if budget >= 0:
            self.put(budget, -1.0)

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
