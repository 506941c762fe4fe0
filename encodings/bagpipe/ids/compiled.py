"""The loops that find distinct ids, the places of lookups and the rows of the cache, compiled.

Ids come table after table: those of table t are `flat[starts[t] : starts[t + 1]]`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints
from gapless.methods.compiled import compiled

__all__ = ["distinct_ids", "entered", "found_rows", "left", "places"]

Rows = NDArray[np.int32]

_BITS = 256
"""Ids below so many times the number of lookups are marked in bits, larger ones are sorted."""
_DENSE = 8
"""Ids below so many times the number of lookups have their place in an array, larger ones in a table of hashes."""
_DIGIT = 11
"""Bits that a pass of sorting goes by."""

_BLOCK = 256
"""Ids that are looked up at a time."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_OF = np.zeros(64, np.int64)
"""Which bit is set, by the upper 6 bits of its product with `_DE_BRUIJN`."""
for _bit in range(64):
    _BIT_OF[((int(_DE_BRUIJN) << _bit) & (2**64 - 1)) >> 58] = _bit


@compiled
def distinct_ids(flat: Ints, starts: Ints, shift: int) -> tuple[Ints, Ints]:
    """As `unique_ids`: the ids, each with its table from bit `shift` up, and where each table's start and end."""
    tables, most = len(starts) - 1, np.diff(starts).max()
    words = np.empty(4 * most + 1, np.uint64)
    kept, other, count = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(1 << _DIGIT, np.int64)
    ids = np.empty(len(flat), np.int64)
    bounds = np.zeros(tables + 1, np.int64)
    for table in range(tables):
        column = flat[starts[table] : starts[table + 1]]
        base, end = np.int64(table) << shift, bounds[table]
        largest = column.max() if len(column) else -1
        if largest < _BITS * len(column):
            end = _by_bits(column, largest, words, ids, end, base)
        else:
            end = _by_digits(column, largest, kept, other, count, ids, end, base)
        bounds[table + 1] = end
    return ids[: bounds[-1]].copy(), bounds


@compiled
def _by_bits(column: Ints, largest: int, words: NDArray[np.uint64], ids: Ints, end: int, base: np.int64) -> int:
    used = (largest >> 6) + 1
    words[:used] = 0
    for value in column:
        words[value >> 6] |= np.uint64(1) << np.uint64(value & 63)
    for place in range(used):
        word = words[place]
        while word:
            lowest = word & (~word + np.uint64(1))
            ids[end] = base + (place << 6) + _BIT_OF[(lowest * _DE_BRUIJN) >> np.uint64(58)]
            end += 1
            word ^= lowest
    return end


@compiled
def _by_digits(
    column: Ints, largest: int, kept: Ints, other: Ints, count: Ints, ids: Ints, end: int, base: np.int64
) -> int:  # fmt: skip
    size, shift = len(column), 0
    kept[:size] = column
    while largest >> shift:
        count[:] = 0
        for at in range(size):
            count[(kept[at] >> shift) & (len(count) - 1)] += 1
        before = 0
        for digit in range(len(count)):
            before, count[digit] = before + count[digit], before
        for at in range(size):
            digit = (kept[at] >> shift) & (len(count) - 1)
            other[count[digit]] = kept[at]
            count[digit] += 1
        kept, other = other, kept
        shift += _DIGIT
    for at in range(size):
        if at == 0 or kept[at] != kept[at - 1]:
            ids[end] = base + kept[at]
            end += 1
    return end


@compiled
def places(flat: Ints, starts: Ints, ids: Ints, bounds: Ints, shift: int) -> Rows:
    """As `positions`, table after table."""
    place_at = np.empty(len(flat), np.int32)
    place_of = np.empty(_DENSE * np.diff(starts).max() + 1, np.int32)
    for table in range(len(starts) - 1):
        first, last = bounds[table], bounds[table + 1]
        start, stop = starts[table], starts[table + 1]
        base = np.int64(table) << shift
        if start < stop and ids[last - 1] - base < _DENSE * (stop - start):
            for place in range(first, last):
                place_of[ids[place] - base] = place
            for at in range(start, stop):
                place_at[at] = place_of[flat[at]]
        elif start < stop:
            _hashed_places(flat[start:stop], ids, first, last, base, place_at[start:stop])
    return place_at


@compiled
def _hashed_places(column: Ints, ids: Ints, first: int, last: int, base: np.int64, place_at: Rows) -> None:
    bits = 1
    while (1 << bits) < 2 * (last - first):
        bits += 1
    place_in = np.full(1 << bits, -1, np.int32)
    shift, mask = np.uint64(64 - bits), (1 << bits) - 1
    for place in range(first, last):
        slot = np.int64((np.uint64(ids[place] - base) * _FACTOR) >> shift)
        while place_in[slot] >= 0:
            slot = (slot + 1) & mask
        place_in[slot] = place
    for at in range(len(column)):
        value = column[at]
        slot = np.int64((np.uint64(value) * _FACTOR) >> shift)
        while ids[place_in[slot]] != base + value:
            slot = (slot + 1) & mask
        place_at[at] = place_in[slot]


@compiled
def _hash_shift(slots: int) -> np.uint64:
    """How far to shift products so that they are below `slots`, a power of two."""
    shift = 64
    while slots > 1:
        slots, shift = slots >> 1, shift - 1
    return np.uint64(shift)


@compiled
def _first_slots(ids: Ints, row_in_slot: Rows, slots: Ints, rows: Rows) -> None:
    """The first slot of each id and what is in it: without a branch, so that memory is asked for many at a time."""
    shift = _hash_shift(len(row_in_slot))
    for at in range(len(ids)):
        slots[at] = np.int64((np.uint64(ids[at] ^ (ids[at] >> 22)) * _FACTOR) >> shift)
        rows[at] = row_in_slot[slots[at]]


@compiled
def found_rows(ids: Ints, row_in_slot: Rows, id_in_row: Ints) -> Rows:
    """As `RowMap.find`."""
    rows, mask = np.empty(len(ids), np.int32), len(row_in_slot) - 1
    slots, held = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
    for first in range(0, len(ids), _BLOCK):
        sought, here = ids[first : first + _BLOCK], rows[first : first + _BLOCK]
        _first_slots(sought, row_in_slot, slots, here)
        for at in range(len(here)):
            held[at] = id_in_row[here[at]]
        for at in range(len(here)):
            row, slot, probe = here[at], slots[at], 0
            if held[at] == sought[at]:
                continue
            while row != -1 and (row < 0 or id_in_row[row] != sought[at]):
                probe += 1
                slot = (slot + probe) & mask
                row = row_in_slot[slot]
            here[at] = row
    return rows


@compiled
def entered(ids: Ints, rows: Rows, row_in_slot: Rows, slot_of_row: Rows) -> int:
    """Enter rows into the table of slots, as `RowMap` does; how many of these were empty."""
    mask, taken = len(row_in_slot) - 1, 0
    slots, before = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int32)
    for first in range(0, len(ids), _BLOCK):
        _first_slots(ids[first : first + _BLOCK], row_in_slot, slots, before)
        for at, row in enumerate(rows[first : first + _BLOCK]):
            slot, probe = slots[at], 0
            while row_in_slot[slot] >= 0:
                probe += 1
                slot = (slot + probe) & mask
            taken += row_in_slot[slot] == -1
            row_in_slot[slot] = row
            slot_of_row[row] = slot
    return taken


@compiled
def left(
    rows: Rows, number: int, following: Rows, id_in_row: Ints, last_use: Rows, mark: Rows, row_in_slot: Rows,
    slot_of_row: Rows, free: Rows, count: int,
) -> tuple[Ints, Rows, NDArray[np.bool_], int]:  # fmt: skip
    """As `RowMap.leave`; last how many rows are held then."""
    for row in following:
        mark[row] = number + 1
    ids, last, in_next = np.empty(len(rows), np.int64), np.empty(len(rows), np.int32), np.empty(len(rows), np.bool_)
    for at in range(len(rows)):
        last[at] = last_use[rows[at]]
        count -= last[at] == number
        in_next[at] = mark[rows[at]] == number + 1
        ids[at] = id_in_row[rows[at]]
    freed = count
    for at in range(len(rows)):
        if last[at] == number:
            row_in_slot[slot_of_row[rows[at]]] = -2
            id_in_row[rows[at]] = -1
            free[freed] = rows[at]
            freed += 1
    return ids, last, in_next, count
