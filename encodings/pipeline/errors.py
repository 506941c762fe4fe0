"""What compression spoils, hop by hop and sum by sum, as a table of measurements says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.budget import is_within
from gapless.encodings.pipeline.building import Cut
from gapless.encodings.pipeline.order import Order
from gapless.encodings.pipeline.problem import Problem

__all__ = ["Spoiling", "spoiling_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spoiling:
    """Relative squared errors of the whole gradient; mode 0 is plain and spoils nothing.

    `hop[k, s]`: float, shape (modes, S - 1), of one micro-batch's gradient from stage s + 1 to s. `reduce[k, s]`:
    float, shape (modes, S), of the sum of stage s. `budget`: the most that all may be in sum.
    """

    hop: Floats
    reduce: Floats
    budget: float

    def allows(self, order: Order) -> bool:
        """Whether an order's modes stay within the budget, rounding errors of sums apart."""
        return is_within(self.total(order), self.budget)

    def total(self, order: Order) -> float:
        """What an order's modes spoil."""
        hops = np.arange(len(order.hop_modes))[:, None]
        stages = np.arange(len(order.reduce_modes))
        return float(self.hop[order.hop_modes, hops].sum() + self.reduce[order.reduce_modes, stages].sum())


def spoiling_of(problem: Problem, cut: Cut, crosses: NDArray[np.bool_]) -> Spoiling | None:
    """The errors of the cut's hops and stages, 0 for hops within a rank; None where nothing may be compressed."""
    table, layers = problem.compression, problem.profile.layer_count
    if table is None:
        return None
    firsts = np.array([0, *cut, layers])
    hop_depth = firsts[1:-1] / layers
    hop, reduce = np.zeros((1 + len(table.modes), len(cut))), np.zeros((1 + len(table.modes), len(cut) + 1))
    middles = (np.arange(layers) + 0.5) / layers
    for number in range(len(table.modes)):
        hop[1 + number] = np.where(crosses, table.hop_error(number, hop_depth) / problem.micro_batches, 0.0)
        reduce[1 + number] = np.add.reduceat(table.reduce_error(number, middles), firsts[:-1]) / layers
    return Spoiling(hop, reduce, problem.error_budget)
