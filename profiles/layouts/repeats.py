"""Blocks that repeat one after the other: equal layers of a model, in its forward pass and in its backward pass."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

__all__ = ["earlier_equal"]


def earlier_equal(signatures: Sequence[Hashable], marks: Sequence[bool]) -> list[int | None]:
    """For each of a sequence, the place of its equal one block earlier; None for those in no block or the first.

    Equal places of a block have equal signatures. Blocks are found longest stretch first, at the shortest period; every
    block holds a mark, so that a few equal neighbours are no block.
    """
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(signature, len(numbers)) for signature in signatures], dtype=np.int64)
    earlier: list[int | None] = [None] * len(ids)
    marked = np.concatenate([[0], np.cumsum(np.array(marks, dtype=np.int64))])
    stretches = [(0, len(ids))]
    while stretches:
        first, end = stretches.pop()
        found = _longest(ids[first:end], marked[first : end + 1])
        if found is None:
            continue
        start, length, period = found
        for place in range(first + start + period, first + start + length):
            earlier[place] = place - period
        stretches += [(first, first + start), (first + start + length, end)]
    return earlier


def _longest(ids: np.ndarray, marked: np.ndarray) -> tuple[int, int, int] | None:
    """(start, length, period) of the longest stretch of at least two blocks."""
    best: tuple[int, int, int] | None = None
    for period in range(1, len(ids) // 2 + 1):
        equal = np.concatenate([[False], ids[:-period] == ids[period:], [False]])
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        starts, ends = edges[::2], edges[1::2]
        long = (ends - starts >= period) & (marked[np.minimum(starts + period, len(ids))] > marked[starts])
        if not long.any():
            continue
        lengths = np.where(long, ends - starts + period, 0)
        at = int(lengths.argmax())
        if best is None or lengths[at] > best[1]:
            best = int(starts[at]), int(lengths[at]), period
    return best
