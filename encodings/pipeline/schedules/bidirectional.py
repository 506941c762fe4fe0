"""Schedules of the field with two copies of the model, one down the ranks and one up."""

from __future__ import annotations

import numpy as np

from gapless.encodings.pipeline.order.orders import Order, number, plain
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.schedules.lines import Line, dual

__all__ = ["chimera", "dualpipe"]


def chimera(stages: Stages) -> Order:
    """Two 1F1B pipelines in units of P micro-batches, merged so that no two ops meet on a rank where a backward takes
    as long as a forward, and units one after the other (Li and Hoefler, "Chimera", 2021: direct concatenation).

    In such ops, a unit begins every 2 P; micro-batch m of a copy's unit comes to stage s at s + 2 m, and back to it at
    2 P - 1 - s + 2 m.
    """
    unit, turn = np.divmod(np.arange(stages.micro_batches), stages.ranks // 2)
    begin = 2 * stages.ranks * unit + 2 * turn
    sequences = []
    for rank in range(stages.ranks):
        at = []
        for stage in np.flatnonzero(stages.rank == rank).tolist():
            depth = stage % stages.depth
            for m, first in enumerate(begin.tolist()):
                at.append((first + depth, number(stages, Kind.FORWARD, stage, m)))
                at.append((first + 2 * stages.ranks - 1 - depth, number(stages, Kind.BACKWARD, stage, m)))
        sequences.append([op for _, op in sorted(at)])
    return plain(stages, sequences)


def dualpipe(stages: Stages) -> Order:
    """DualPipe (DeepSeek, 2024), for at least two micro-batches a rank: ranks are as deep as they are far from the
    nearer end."""
    sequences = []
    for rank in range(stages.ranks):
        here = sorted(np.flatnonzero(stages.rank == rank).tolist(), key=lambda stage: stage % stages.depth)
        sequences.append(dual(Line(stages, here), min(rank, stages.ranks - 1 - rank), stages.ranks // 2))
    return plain(stages, sequences)
