"""Recursive doubling: what a rank has doubles in every step. Backwards it is recursive halving."""

from __future__ import annotations

from gapless.encodings.taccl.baselines.cut import Cut
from gapless.encodings.taccl.baselines.transfers import Send

__all__ = ["doubling_allgather"]


def doubling_allgather(cut: Cut, far_first: bool) -> list[Send]:
    """ALLGATHER over any number n of ranks.

    n a power of two: ranks that differ in one bit exchange all they have, the lowest bit first, or with `far_first` the
    highest, so that few data go far. Else Bruck's algorithm, which needs ceil(log2 n) steps as well: in step s rank r
    sends to r - 2^s what it has, and in the last one what is still missing there.
    """
    count = len(cut.blocks)
    bits = (count - 1).bit_length()
    if count & (count - 1):
        return _bruck(cut, count, bits)
    sends = []
    has = [[rank] for rank in range(count)]
    for step, bit in enumerate(reversed(range(bits)) if far_first else range(bits)):
        for rank in range(count):
            sends += _parts(cut, step, rank, rank ^ (1 << bit), has[rank])
        has = [sorted(has[rank] + has[rank ^ (1 << bit)]) for rank in range(count)]
    return sends


def _bruck(cut: Cut, count: int, bits: int) -> list[Send]:
    sends = []
    for step in range(bits):
        length = min(1 << step, count - (1 << step))
        for rank in range(count):
            blocks = [(rank + k) % count for k in range(length)]
            sends += _parts(cut, step, rank, (rank - (1 << step)) % count, blocks)
    return sends


def _parts(cut: Cut, step: int, source: int, target: int, blocks: list[int]) -> list[Send]:
    return [
        Send(
            part, step, source, target, tuple(chunk for block in blocks for chunk in cut.part(cut.blocks[block], part))
        )
        for part in range(cut.parts)
    ]
