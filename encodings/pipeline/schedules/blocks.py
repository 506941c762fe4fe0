"""Building blocks: one micro-batch's ops at fixed times on each stage, repeated every interval, then squeezed.

What a rank keeps is the time between a micro-batch's forward and its weight gradient, as a share of the interval. So
the offsets between neighbouring stages decide memory: in a V as short as can be, a third of what 1F1B keeps; longer,
half of it, or all of it (Qi et al., "Pipeline parallelism with controllable memory", 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.schedules.squeeze import kept_peaks

__all__ = ["Block", "all_blocks", "repeated", "stretched"]

_STRETCHES, _LEAST_STRETCH = 8, 1.05
"""How often a block is repeated less often, and by how much at least, until it fits into memory."""


@dataclass(frozen=True)
class Block:
    """What is waited between neighbouring stages, besides op and message, in mean ops.

    `forward`, `backward`: within a pass over the ranks; each pair has that of even and of odd passes. `at_turn`:
    between two passes forward; `at_end`: between the last forward and its backward.
    """

    forward: tuple[float, float] = (0.0, 0.0)
    backward: tuple[float, float] = (0.0, 0.0)
    at_turn: float = 0.0
    at_end: float = 0.0


def all_blocks(stages: Stages) -> Iterator[Block]:
    """Blocks in the order in which they are tried, those that win most often first."""
    is_chunked = stages.depth > stages.ranks
    forwards = ((0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (2.0, 1.0), (0.0, 1.0), (2.0, 2.0), (3.0, 2.0))
    backwards = ((0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0))
    waits = ((0.0, 2.0), (0.0, 0.0), (1.0, 0.0), (0.0, 3.0))
    for backward, forward, (at_turn, at_end) in product(backwards, forwards, waits):
        if is_chunked or (forward[0] == forward[1] and backward[0] == backward[1] and not at_turn):
            yield Block(forward, backward, at_turn, at_end)


def repeated(stages: Stages, block: Block, stretch: float = 1.0) -> list[list[int]]:
    """The numbers of the ops of each rank, by when the repeated block starts them: each time after as long as the
    fullest rank computes for a micro-batch, `stretch` times that."""
    start_s, interval_s = _starts(stages, block), stretch * float(stages.compute_s.max())
    each_s = start_s[:, :, None] + interval_s * np.arange(stages.micro_batches)
    times_s, ranks = each_s.reshape(-1), np.tile(np.repeat(stages.rank, stages.micro_batches), len(start_s))
    by_time = np.argsort(times_s, kind="stable")
    return [by_time[ranks[by_time] == rank].tolist() for rank in range(stages.ranks)]


def stretched(stages: Stages, block: Block) -> list[list[int]] | None:
    """The block repeated so seldom that memory has room for it; None where it hasn't even for one micro-batch."""
    stretch, room_bytes = 1.0, np.maximum(stages.room_bytes, 0.0)
    for _ in range(_STRETCHES):
        sequences = repeated(stages, block, stretch)
        peaks = kept_peaks(stages, sequences)
        if (peaks <= room_bytes).all():
            return sequences
        if not room_bytes.all():
            return None
        stretch *= max(float((peaks / room_bytes).max()), _LEAST_STRETCH)
    return None


def _starts(stages: Stages, block: Block) -> Floats:
    """When the first micro-batch's ops start, float of shape (kinds, S); those of a second copy of the model half an
    interval later."""
    shift_s = float(stages.compute_s.max()) / stages.copies
    parts = [_chain_starts(stages, block, chain) + turn * shift_s for turn, chain in enumerate(stages.chains)]
    return np.concatenate(parts, axis=1)


def _chain_starts(stages: Stages, block: Block, chain: slice) -> Floats:
    """Those of one copy of the model."""
    hops, passes, kinds = slice(chain.start, chain.stop - 1), _passes(stages.rank[chain]), 3 if stages.splits else 2
    unit_s = float(stages.compute_s.max()) * stages.ranks / (kinds * stages.count)
    own_s, back_s = stages.forward_s[chain], stages.backward_s[chain]
    turns = passes[1:] != passes[:-1]
    waits = np.where(turns, block.at_turn, np.take(block.forward, passes[:-1] % 2))
    forward_s = np.concatenate([[0.0], np.cumsum(own_s[:-1] + stages.forward_hop_s[hops] + unit_s * waits)])
    end_s = forward_s[-1] + own_s[-1] + unit_s * block.at_end
    waits = np.where(turns, 0.0, np.take(block.backward, passes[1:] % 2))
    late_s = (back_s[1:] + stages.hop_s[0, hops] + unit_s * waits)[::-1]
    backward_s = end_s + np.concatenate([[0.0], np.cumsum(late_s)])[::-1]
    return np.stack([forward_s, backward_s, backward_s + back_s][:kinds])


def _passes(rank: Ints) -> Ints:
    """The pass over the ranks in which each stage is, int64 of shape (S,): one ends where a rank comes again."""
    seen: set[int] = set()
    passes, number = np.zeros(len(rank), dtype=np.int64), 0
    for stage, here in enumerate(rank.tolist()):
        if here in seen:
            number, seen = number + 1, set()
        seen.add(here)
        passes[stage] = number
    return passes
