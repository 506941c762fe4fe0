"""What presolve left, in the order in which searches read it: the edges of each node, the entries of each choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.presolve.reduced import Reduced
from gapless.methods.compiled import is_numba_here

__all__ = ["LEAST_WORK", "Arrays", "arrays_of", "ranges", "restricted"]

LEAST_WORK = 2**14
"""Entries of tables from which on it pays to load compiled loops, which takes about a second once a process."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Arrays:
    """Costs as floating-point numbers; whole numbers up to 2^53 are exact. What is forbidden costs `shut`, more than
    any plan that is allowed, so that moves find out of it.

    The neighbours of node v are slots `slot_starts[v]` to `slot_starts[v + 1]`: slot s has the neighbour `other[s]`,
    whose slot towards v is `back[s]`; choices k of v and j of the neighbour cost
    `tables[table[s] + k * own[s] + j * beside[s]]`. The usage of choice c is entries `entry_starts[c]` to
    `entry_starts[c + 1]` of `first`, `end`, `used`, as in `Points`. `is_compiled`: whether loops over them are.
    """

    starts: Ints
    sizes: Ints
    costs: Floats
    ends: Ints
    table_starts: Ints
    tables: Floats
    slot_starts: Ints
    other: Ints
    back: Ints
    table: Ints
    own: Ints
    beside: Ints
    room: Ints
    entry_starts: Ints
    first: Ints
    end: Ints
    used: Ints
    shut: float
    is_compiled: bool

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self.sizes)

    def cost(self, choices: Ints) -> float:
        """Of choices, the offset aside."""
        first, second = self.ends[:, 0], self.ends[:, 1]
        place = self.table_starts[:-1] + choices[first] * self.sizes[second] + choices[second]
        return float(self.costs[self.starts[:-1] + choices].sum() + self.tables[place].sum())

    def slack(self, choices: Ints) -> Ints:
        """The room that choices leave at each time point, int64, shape (points,)."""
        taken = self.starts[:-1] + choices
        counts = self.entry_starts[taken + 1] - self.entry_starts[taken]
        entries = np.repeat(self.entry_starts[taken], counts) + ranges(counts)
        points = len(self.room)
        begun = np.bincount(self.first[entries], self.used[entries], points + 1)
        ended = np.bincount(self.end[entries], self.used[entries], points + 1)
        left: Ints = self.room - (begun - ended).cumsum()[:-1].astype(np.int64)
        return left

    def priced(self, prices: Floats) -> Floats:
        """What each choice costs with its bytes, at a price at each time point, float, shape (points,)."""
        summed = np.concatenate([[0.0], prices.cumsum()])
        owner = np.repeat(np.arange(len(self.costs)), np.diff(self.entry_starts))
        paid = np.bincount(owner, (summed[self.end] - summed[self.first]) * self.used, len(self.costs))
        total: Floats = self.costs + np.rint(paid)
        return total


def ranges(counts: Ints) -> Ints:
    """0, 1, ... up to each count in turn, int64, shape (sum of counts,)."""
    return np.arange(int(counts.sum())) - np.repeat(counts.cumsum() - counts, counts)


def arrays_of(left: Reduced) -> Arrays:
    """The arrays of what presolve left."""
    points = left.points
    is_compiled = len(left.tables) >= LEAST_WORK and is_numba_here()
    costs, tables = left.factors.floats(left.costs), left.float_tables
    most = [np.where(np.isfinite(row), row, 0.0) for row in (costs, tables)]
    shut = 1.0 + sum(float(np.maximum.reduceat(row, starts[:-1]).sum()) for row, starts in zip(
        most, (left.starts, left.table_starts), strict=True) if len(row))  # fmt: skip
    costs, tables = (np.where(np.isfinite(row), row, shut) for row in (costs, tables))
    entries = (points.choice, points.first, points.end, points.used)
    return _arrays(left.sizes, costs, left.ends, tables, points.room, entries, shut, is_compiled)


def restricted(arrays: Arrays, is_kept: NDArray[np.bool_]) -> Arrays:
    """The same with some choices only, bool, shape (choices,), at least one a node; they are counted anew."""
    owner = np.repeat(np.arange(arrays.node_count), arrays.sizes)
    kept = np.flatnonzero(is_kept)
    sizes = np.bincount(owner[kept], minlength=arrays.node_count)
    local, firsts = kept - arrays.starts[owner[kept]], sizes.cumsum() - sizes
    first, second = arrays.ends[:, 0], arrays.ends[:, 1]
    cells = sizes[first] * sizes[second]
    edge, cell = np.repeat(np.arange(len(cells)), cells), ranges(cells)
    row = local[firsts[first][edge] + cell // sizes[second][edge]]
    column = local[firsts[second][edge] + cell % sizes[second][edge]]
    place = arrays.table_starts[edge] + row * arrays.sizes[second][edge] + column
    choice = np.repeat(np.arange(len(arrays.costs)), np.diff(arrays.entry_starts))
    own = is_kept[choice]
    number = is_kept.cumsum() - 1
    entries = (number[choice[own]], arrays.first[own], arrays.end[own], arrays.used[own])
    tables = arrays.tables[place]
    return _arrays(
        sizes, arrays.costs[kept], arrays.ends, tables, arrays.room, entries, arrays.shut, arrays.is_compiled
    )


def _arrays(
    sizes: Ints, costs: Floats, ends: Ints, tables: Floats, room: Ints, entries: tuple[Ints, Ints, Ints, Ints],
    shut: float, is_compiled: bool,
) -> Arrays:  # fmt: skip
    first, second = ends[:, 0], ends[:, 1]
    edges, nodes = len(ends), np.arange(len(sizes) + 1)
    table_starts = np.concatenate([[0], (sizes[first] * sizes[second]).cumsum()])
    node, other = np.concatenate([first, second]), np.concatenate([second, first])
    ones = np.ones(edges, dtype=np.int64)
    own, beside = np.concatenate([sizes[second], ones]), np.concatenate([ones, sizes[second]])
    order = np.argsort(node, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    back = np.concatenate([place[edges:], place[:edges]])[order]
    by_choice = np.argsort(entries[0], kind="stable")
    choice, begin, end, used = (each[by_choice] for each in entries)
    return Arrays(
        np.concatenate([[0], sizes.cumsum()]), sizes, costs, ends, table_starts, tables,
        np.searchsorted(node[order], nodes), other[order], back, np.concatenate([table_starts[:-1]] * 2)[order],
        own[order], beside[order], room, np.searchsorted(choice, np.arange(len(costs) + 1)), begin, end, used,
        shut, is_compiled,
    )  # fmt: skip
