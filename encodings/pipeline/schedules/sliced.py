"""Schedules of micro-batches that are cut into slices of their sequence, with one stage a rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from gapless.encodings.pipeline.order.orders import Order, number, plain
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["sequence_one_f_one_b", "sliced_orders"]


def sequence_one_f_one_b(stages: Stages) -> Order:
    """1F1B of slices: so many forwards first that a micro-batch's last slice can come back, one for each rank below
    besides; then a backward for each forward, of the latest slice first (Sun et al., "Seq1F1B", 2024).
    """
    return _warm_then_alternate(stages, lambda below: below)


def sliced_orders(stages: Stages) -> Iterator[Order]:
    """Those with more forwards ahead that fit into memory, and with fewer."""
    yield sequence_one_f_one_b(stages)
    yield _warm_then_alternate(stages, lambda below: 2 * below)
    for most in range(stages.ranks - 2, -1, -1):
        yield _warm_then_alternate(stages, partial(min, most))
    yield _warm_then_alternate(stages, lambda below: stages.slices * stages.micro_batches)


def _warm_then_alternate(stages: Stages, ahead: Callable[[int], int]) -> Order:
    """`ahead`: forwards before the first backward besides those of one micro-batch, by the number of ranks below."""
    slices, micro_batches, sequences = stages.slices, stages.micro_batches, []
    for rank in range(stages.ranks):
        here = np.flatnonzero(stages.rank == rank).tolist()  # a stage for each slice
        forth = [number(stages, Kind.FORWARD, stage, m) for m in range(micro_batches) for stage in here]
        back = [number(stages, Kind.BACKWARD, stage, m) for m in range(micro_batches) for stage in reversed(here)]
        first = min(slices - 1 + ahead(stages.ranks - 1 - rank), len(forth))
        ops = forth[:first]
        for turn, op in enumerate(back):
            ops += [*forth[first + turn : first + turn + 1], op]
        sequences.append(ops)
    return plain(stages, sequences)
