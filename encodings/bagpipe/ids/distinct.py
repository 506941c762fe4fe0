"""The distinct ids of a batch, and the place of each lookup among them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.ids.loops import ids_loops
from gapless.encodings.bagpipe.ids.row_map import hashed_slots
from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags, Lookups, by_table
from gapless.profiles.traces.trace import MOST_IDS, TABLE_SHIFT, Block

__all__ = ["distinct", "numbered", "positions", "unique_ids"]

Whole = TypeVar("Whole", bound=np.integer)

_DENSE = 8
"""Ids below so many times the number of examples are marked in an array; sparser ones are sorted. Measured."""


def unique_ids(batch: Block) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Global ids, ascending, and the bounds of each table in them, shape (tables + 1,).

    Equal to `np.unique(global_ids(batch))`, several times faster. Raises `InputError` for ids that are out of range.
    """
    flat, starts, _ = _by_table(batch)
    least, most = flat.min(initial=0), flat.max(initial=0)
    if least < 0 or most >= MOST_IDS:
        raise InputError(f"batch: ids must be in 0..{MOST_IDS - 1}, got {least if least < 0 else most}")
    if (compiled := ids_loops(batch.size)) is not None:
        compiled_ids: tuple[NDArray[np.int64], NDArray[np.int64]] = compiled.distinct_ids(flat, starts, TABLE_SHIFT)
        return compiled_ids
    parts = [_unique(column) for column in np.split(flat, starts[1:-1])]
    bounds = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=bounds[1:])
    ids = np.empty(bounds[-1], dtype=np.int64)
    for table, part in enumerate(parts):
        np.add(part, table << TABLE_SHIFT, out=ids[bounds[table] : bounds[table + 1]], dtype=np.int64)
    return ids, bounds


def _unique(column: NDArray[np.int64]) -> NDArray[np.integer]:
    largest = column.max(initial=0)
    if largest < _DENSE * len(column):
        seen = np.zeros(largest + 1, dtype=np.bool_)
        seen[column] = True
        return np.flatnonzero(seen)
    # Sorting half as wide numbers takes half the time.
    return distinct(column.astype(np.int32) if largest < 2**31 else column)


def distinct(values: NDArray[Whole]) -> NDArray[Whole]:
    """The distinct values, ascending, as `np.unique` gives them, whose table of hashes is several times slower."""
    ordered = np.sort(values)
    first = np.empty(len(ordered), dtype=np.bool_)
    first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    values_once: NDArray[Whole] = ordered[first]
    return values_once


def numbered(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Where each value (>= 0) stands among the distinct ones, ascending, and how many those are.

    Equal to the inverse of `np.unique`; small values are marked in an array, not sorted.
    """
    largest = int(values.max(initial=0))
    if largest >= _DENSE * len(values):
        ordered, inverse = np.unique(values, return_inverse=True)
        return inverse.reshape(-1), len(ordered)
    seen = np.zeros(largest + 1, dtype=np.bool_)
    seen[values] = True
    which = np.flatnonzero(seen)
    number = np.empty(largest + 1, dtype=np.int64)
    number[which] = np.arange(len(which))
    return number[values], len(which)


def positions(ids: NDArray[np.int64], bounds: NDArray[np.int64], batch: Block) -> Lookups:
    """Where each id of a batch stands among its distinct ids: `ids[positions]` are the batch's global ids.

    `ids`, `bounds`: as `unique_ids(batch)` gave them. Shape (examples, tables).
    """
    flat, starts, order = _by_table(batch)
    if (compiled := ids_loops(batch.size)) is not None:
        places: NDArray[np.int32] = compiled.places(flat, starts, ids, bounds, TABLE_SHIFT)
    else:
        places = np.empty(len(flat), dtype=np.int32)
        for table, column in enumerate(np.split(flat, starts[1:-1])):
            if len(column):
                own = ids[bounds[table] : bounds[table + 1]] - (table << TABLE_SHIFT)
                places[starts[table] : starts[table + 1]] = _places(own, column) + bounds[table]
    if not isinstance(batch, Bags):
        return places.reshape(batch.shape[::-1]).T
    by_example = np.empty_like(places)
    by_example[order] = places
    return Bags(by_example, batch.lengths)


def _by_table(batch: Block) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]:
    """All ids, table after table; where each table's start, and the last's end; of bags also where each was before."""
    if not isinstance(batch, Bags):
        return np.ascontiguousarray(batch.T).reshape(-1), np.arange(batch.shape[1] + 1) * len(batch), None
    columns, order = by_table(batch)
    starts = np.zeros(len(columns) + 1, dtype=np.int64)
    np.cumsum([len(column) for column in columns], out=starts[1:])
    return np.concatenate(columns), starts, order


def _places(own: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int32]:
    """Where each entry of a column stands in the ascending ids that occur in it."""
    numbers = np.arange(len(own), dtype=np.int32)
    if own[-1] < _DENSE * len(column):
        place_of = np.empty(own[-1] + 1, dtype=np.int32)
        place_of[own] = numbers
        return place_of.take(column)
    # Most ids have a slot of their own in a table eight times as large; the others are searched for.
    bits = (8 * len(own)).bit_length()
    place_in = np.empty(1 << bits, dtype=np.int32)
    place_in[hashed_slots(own, bits)] = numbers
    places = place_in.take(hashed_slots(column, bits))
    wrong = np.flatnonzero(own.take(places) != column)
    places[wrong] = np.searchsorted(own, column[wrong])
    return places
