"""Schedules of the field that go down and up the ranks again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.encodings.pipeline.order.orders import Order, plain
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.zero_bubble import Rules, list_schedule
from gapless.encodings.pipeline.schedules.lines import Line, dual
from gapless.encodings.pipeline.schedules.rules.slots import V_HALF, V_MIN, SlotBlock, block_peaks, in_slots

__all__ = ["dualpipe_v", "hanayo", "v_half", "v_min", "zb_v"]

F, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT  # noqa: E741, the field's letters


def zb_v(stages: Stages) -> Order:
    """Two chunks a rank in a V, as much memory as 1F1B, hardly a bubble (ZB-V)."""
    sequences = []
    for rank in range(stages.ranks):
        line = Line(stages, np.flatnonzero(stages.rank == rank).tolist())
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
    return _of_block(stages, V_MIN)


def v_half(stages: Stages) -> Order:
    """A building block that goes down in every second slot: half of what 1F1B keeps, and one micro-batch (V-Half)."""
    return _of_block(stages, V_HALF)


def _of_block(stages: Stages, block: SlotBlock) -> Order:
    """In the memory that the repeated block keeps: each rank as many micro-batches as the fullest one."""
    each_bytes = np.maximum(np.bincount(stages.rank, weights=stages.full_bytes, minlength=stages.ranks), 1.0)
    peaks = block_peaks(stages, block)
    room_bytes = np.maximum(peaks, (peaks / each_bytes).max() * each_bytes)
    state_bytes = np.bincount(stages.rank, weights=stages.state_bytes, minlength=stages.ranks)
    sequences = in_slots(stages.with_room(room_bytes + state_bytes), block)
    assert sequences is not None, "a block has room in what it keeps"
    return plain(stages, sequences)


def dualpipe_v(stages: Stages) -> Order:
    """DualPipe cut in half (DeepSeek, 2025); what it overlaps in a cell runs one after the other here, the forward
    first. It is for at least two micro-batches a rank."""
    lines = [Line(stages, np.flatnonzero(stages.rank == rank).tolist()) for rank in range(stages.ranks)]
    return plain(stages, [dual(line, rank, stages.ranks) for rank, line in enumerate(lines)])


def hanayo(stages: Stages) -> Order:
    """Waves (Liu et al., 2023): a backward as soon as it can go, else the forward of the latest stage, while no rank
    keeps more than one micro-batch for each rank."""
    each_bytes = np.bincount(stages.rank, weights=stages.full_bytes + stages.state_bytes / stages.ranks)
    memory_bytes = (stages.ranks * each_bytes).astype(np.float64)
    free = np.zeros_like(stages.message_bytes)
    room = replace(stages, memory_bytes=memory_bytes, message_bytes=free)
    return list_schedule(room, Rules(False, True, float("inf"), 1.0, 1.0, False))
