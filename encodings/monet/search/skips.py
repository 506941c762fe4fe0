"""What the paper's rows charge a recomputation for tensors of the forward pass that aren't there, as if they were.

While node i runs again, (4.14) charges all of L_i: what is made before it and read by it or a later one. Most of L_i is
short-lived, and a table of a few columns a node looks it up. A tensor that lasts is in L_i of very many nodes: all
outputs of an unrolled cell are, up to a loss that reads them. Over all of these nodes it either is there at a stage or
isn't, so that stages are compared and no moments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.training.graph import TrainingGraph

__all__ = ["Skips"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_MOST_PAIRS = 1 << 20
"""Tensors times recomputations that are compared at once."""


class Skips:
    """The bytes of L_i that are charged although they aren't there, for many recomputations at once."""

    def __init__(self, graph: TrainingGraph, stage_length: int) -> None:
        self._stage_length = stage_length
        self._table = _short_lived(graph)
        self._table_bytes = np.append(graph.output_bytes.astype(np.float64), 0.0)[self._table]
        self._long = np.flatnonzero(graph.lasting)
        self._long_last = graph.last_reader[self._long]
        self._long_bytes = graph.output_bytes[self._long].astype(np.float64)

    def charged_bytes(self, moments: Ints, nodes: Ints, stage: Ints, run: Ints) -> Floats:
        """For each recomputation: `nodes` again at `stage`, at the moment `run`; `moments`: those of all stretches."""
        came_or_went = moments[:, self._table[:, nodes]] <= run
        is_there = np.bitwise_xor.reduce(came_or_went, axis=0)
        found = np.add.reduce(self._table_bytes[:, nodes] * ~is_there, axis=0)
        if len(self._long) and len(nodes):
            many = max(1, _MOST_PAIRS // len(nodes))
            for begin in range(0, len(self._long), many):
                found = found + self._lasting_bytes(slice(begin, begin + many), moments, nodes, stage)
        return np.asarray(found)

    def _lasting_bytes(self, part: slice, moments: Ints, nodes: Ints, stage: Ints) -> Floats:
        """The same of some of the tensors that last. What node i reads is there when it runs."""
        long = self._long[part, None]
        is_charged = (long < nodes) & (nodes <= self._long_last[part, None])
        there, gone = moments[:, self._long[part], None].reshape(2, 2, -1, 1)
        first, last = there // self._stage_length, (gone - 1) // self._stage_length
        for stretch in range(2):
            is_charged &= ~((first[stretch] <= stage) & (stage <= last[stretch]))
        return np.asarray(self._long_bytes[part] @ is_charged)


def _short_lived(graph: TrainingGraph) -> Ints:
    """What doesn't last of L_i that node i doesn't read: a column for each node, filled up with the number of none."""
    columns = [
        [j for j in alive[~graph.lasting[alive]].tolist() if j not in node.inputs]
        for alive, node in zip(graph.alive, graph.forward, strict=True)
    ]
    table = np.full((max(map(len, columns)), len(columns) + 1), len(columns))
    for node, column in enumerate(columns):
        table[: len(column), node] = column
    return table
