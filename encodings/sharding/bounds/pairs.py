"""Where the pairs of choices of all edges stand in arrays: each in a row of its first node, a column of its second.

A slot is an edge with one choice of one of its ends; messages are numbers, one a slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.presolve.reduced import Reduced

__all__ = ["Pairs", "pairs_of", "ranges"]


@dataclass(frozen=True, repr=False)
class Pairs:
    """The pairs in the order of `Reduced.tables`.

    `row`, `column`: int64, shape (pairs,), the slot of the pair's choice of the first and of the second node. Of the
    slots of first nodes, `row_choice` (int64, shape (rows,)) is the number of the choice, `row_start` the first pair,
    and `row_edge` the edge; of those of second nodes `column_choice` and `column_edge`.
    """

    row: Ints
    column: Ints
    row_choice: Ints
    row_start: Ints
    row_edge: Ints
    column_choice: Ints
    column_edge: Ints

    def row_least(self, values: NDArray[np.int64]) -> Ints:
        """The least of each row's values, one a pair; int64, shape (rows,)."""
        if not len(values):
            return np.zeros(0, dtype=np.int64)
        return np.minimum.reduceat(values, self.row_start)

    def column_least(self, values: NDArray[np.int64]) -> Ints:
        """The least of each column's; int64, shape (columns,)."""
        least = np.full(len(self.column_choice), np.iinfo(np.int64).max)
        np.minimum.at(least, self.column, values)
        return least


def ranges(counts: Ints) -> Ints:
    """0, 1, ... up to each count in turn, int64, shape (sum of counts,)."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def pairs_of(reduced: Reduced) -> Pairs:
    """The pairs of what is left of an instance."""
    first, second = reduced.ends[:, 0], reduced.ends[:, 1]
    rows, columns = reduced.sizes[first], reduced.sizes[second]
    row_edge = np.repeat(np.arange(len(first)), rows)
    width = columns[row_edge]
    row = np.repeat(np.arange(len(row_edge)), width)
    column_first = np.cumsum(columns) - columns
    return Pairs(
        row,
        column_first[row_edge[row]] + ranges(width),
        reduced.starts[first][row_edge] + ranges(rows),
        np.cumsum(width) - width,
        row_edge,
        np.repeat(reduced.starts[second], columns) + ranges(columns),
        np.repeat(np.arange(len(first)), columns),
    )
