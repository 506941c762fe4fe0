"""Rows that no other beats in all of several columns."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right

import numpy as np

from gapless.array_types import Floats, Ints

__all__ = ["front_of_four", "front_of_three", "front_of_two"]

_AT_ONCE = 256
"""Rows that are compared with all that are kept at once."""


def front_of_four(*columns: Floats) -> Ints:
    """The rows that no other beats in all four, sorted by the first: each block against those kept, then in itself."""
    order = np.lexsort(columns[::-1])
    rows = np.stack(columns[1:], axis=1)[order]  # a row is beaten by none that comes later
    kept, at = np.zeros((0, rows.shape[1])), list[Ints]()
    for first in range(0, len(rows), _AT_ONCE):
        block = rows[first : first + _AT_ONCE]
        earlier = np.tri(len(block), k=-1, dtype=np.bool_)
        among = np.all(block[np.newaxis] <= block[:, np.newaxis], axis=2) & earlier
        beaten = np.any(np.all(kept[np.newaxis] <= block[:, np.newaxis], axis=2), axis=1) | np.any(among, axis=1)
        kept = np.concatenate([kept, block[~beaten]])
        at.append(first + np.flatnonzero(~beaten))
    return np.asarray(order[np.concatenate([np.zeros(0, np.int64), *at])])


def front_of_three(first: Floats, second: Floats, third: Floats) -> Ints:
    """The rows that no other beats in all three, sorted by the first."""
    order = np.lexsort((third, second, first))
    # The staircase of those before, which all have less of the first: seconds that rise, thirds that fall.
    seconds, thirds, kept = [-math.inf], [math.inf], []
    columns = (order.tolist(), second[order].tolist(), third[order].tolist())
    for row, second_at, third_at in zip(*columns, strict=True):
        if thirds[bisect_right(seconds, second_at) - 1] <= third_at:
            continue
        kept.append(row)
        begin = end = bisect_left(seconds, second_at)
        while end < len(seconds) and thirds[end] >= third_at:
            end += 1
        seconds[begin:end], thirds[begin:end] = [second_at], [third_at]
    return np.array(kept, dtype=np.int64)


def front_of_two(first: Floats, second: Floats) -> Ints:
    """The rows that no other beats in both: sorted by the first, each with less of the second than all before it."""
    order = np.lexsort((second, first))
    least = np.minimum.accumulate(second[order])
    better = np.ones(len(order), dtype=np.bool_)
    better[1:] = least[1:] < least[:-1]
    return np.asarray(order[better])
