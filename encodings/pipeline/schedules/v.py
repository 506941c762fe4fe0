"""Schedules of the field that go down and up the ranks again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import Order, number, plain
from gapless.encodings.pipeline.order.zero_bubble import Rules, list_schedule
from gapless.encodings.pipeline.schedules.blocks import Block, repeated
from gapless.encodings.pipeline.schedules.squeeze import kept_peaks, squeezed

__all__ = ["dualpipe_v", "hanayo", "v_half", "v_min", "zb_v"]

F, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT  # noqa: E741, the field's letters


def zb_v(stages: Stages) -> Order:
    """Two chunks a rank in a V, as much memory as 1F1B, hardly a bubble (ZB-V)."""
    sequences = []
    for rank in range(stages.ranks):
        line = _Line(stages, rank)
        for _ in range(2 * (stages.ranks - rank) - 1):
            line.run(F, 0)
        for _ in range(rank):
            line.run(F, 1)
            line.run(F, 0)
        for _ in range(stages.ranks - rank):
            line.run(F, 1)
            line.run(I, 1)
            line.run(W, 1)
        while line.done[F, 1] < line.done[F, 0] or line.done[F, 0] < stages.micro_batches:
            line.run(F, 0)
            line.run(I, 0)
            line.run(W, 0)
            line.run(F, 1)
            line.run(I, 1)
            line.run(W, 1)
        for _ in range(rank):
            line.run(I, 0)
            line.run(I, 1)
        for _ in range(stages.ranks - rank):
            line.run(I, 0)
            line.run(W, 0)
        for chunk in (1, 0):
            while line.done[W, chunk] < stages.micro_batches:
                line.run(I, chunk)
                line.run(W, chunk)
        sequences.append(line.ops)
    return plain(stages, sequences)


def v_min(stages: Stages) -> Order:
    """A building block as short as can be: a third of what 1F1B keeps, and one micro-batch (Qi et al., 2024, V-Min)."""
    return _of_block(stages, Block(at_end=2.0))


def v_half(stages: Stages) -> Order:
    """A building block that waits for an op at each hop of a forward: half of what 1F1B keeps, and one micro-batch
    (V-Half)."""
    return _of_block(stages, Block(forward=(1.0, 1.0), at_end=2.0))


def _of_block(stages: Stages, block: Block) -> Order:
    """Squeezed into what the repeated block keeps itself: each rank as many micro-batches as the fullest one."""
    sequences = repeated(stages, block)
    each_bytes = np.maximum(np.bincount(stages.rank, weights=stages.full_bytes, minlength=stages.ranks), 1.0)
    peaks = kept_peaks(stages, sequences)
    order = squeezed(stages, sequences, True, np.maximum(peaks, (peaks / each_bytes).max() * each_bytes))
    assert order is not None, "a block's own times are those of an order"
    return order


def dualpipe_v(stages: Stages) -> Order:
    """DualPipe cut in half (DeepSeek, 2025); what it overlaps in a cell runs one after the other here, the forward
    first. It is for at least two micro-batches a rank."""
    sequences = []
    for rank in range(stages.ranks):
        line, below = _Line(stages, rank), stages.ranks - 1 - rank
        for _ in range(2 * below):
            line.run(F, 0)
        for _ in range(rank + 1):
            line.each((F, 0), (F, 1))
        for _ in range(below):
            line.each((I, 1), (W, 1), (F, 1))
        for _ in range(stages.micro_batches - 2 * stages.ranks + rank + 1):
            line.each((F, 0), (I, 1), (W, 1), (F, 1), (I, 0), (W, 0))
        for _ in range(below):
            line.each((I, 1), (W, 1), (F, 1), (I, 0), (W, 0))
        late: list[int] = []  # chunks whose weight gradients wait, in the second half of what is left
        for turn in range(2 * (rank + 1)):
            chunk = 1 - turn % 2
            line.run(I, chunk)
            if turn > rank:
                late.append(chunk)
            else:
                line.run(W, chunk)
        for _ in range(below):
            line.each((W, late.pop(0)), (I, 0))
            late.append(0)
        line.each(*((W, chunk) for chunk in late))
        sequences.append(line.ops)
    return plain(stages, sequences)


def hanayo(stages: Stages) -> Order:
    """Waves (Liu et al., 2023): a backward as soon as it can go, else the forward of the latest stage, while no rank
    keeps more than one micro-batch for each rank."""
    each_bytes = np.bincount(stages.rank, weights=stages.full_bytes + stages.state_bytes / stages.ranks)
    memory_bytes = (stages.ranks * each_bytes).astype(np.float64)
    free = np.zeros_like(stages.message_bytes)
    room = replace(stages, memory_bytes=memory_bytes, message_bytes=free)
    return list_schedule(room, Rules(False, True, float("inf"), 1.0, 1.0, False))


class _Line:
    """A rank's ops in the making: the next micro-batch of a kind and chunk, if there is one left."""

    def __init__(self, stages: Stages, rank: int) -> None:
        self.stages, self.ops = stages, list[int]()
        self.stage = np.flatnonzero(stages.rank == rank).tolist()
        self.done = dict.fromkeys([(kind, chunk) for kind in (F, I, W) for chunk in range(len(self.stage))], 0)

    def run(self, kind: Kind, chunk: int) -> None:
        m = self.done[kind, chunk]
        if m < self.stages.micro_batches and (kind is not W or m < self.done[I, chunk]):
            self.ops.append(number(self.stages, kind, self.stage[chunk], m))
            self.done[kind, chunk] += 1

    def each(self, *ops: tuple[Kind, int]) -> None:
        for kind, chunk in ops:
            self.run(kind, chunk)
