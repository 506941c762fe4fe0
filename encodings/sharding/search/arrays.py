"""What presolve left, in the order in which searches read it: the edges of each node, the entries of each choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.compiled import is_numba_here
from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.presolve.reduced import Reduced

__all__ = ["LEAST_WORK", "Arrays", "arrays_of", "ranges"]

LEAST_WORK = 2**14
"""Entries of tables from which on it pays to load compiled loops, which takes about a second once a process."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Arrays:
    """Costs as floating-point numbers, infinite where forbidden; whole numbers up to 2^53 are exact.

    The neighbours of node v are slots `slot_starts[v]` to `slot_starts[v + 1]`: slot s has the neighbour `other[s]`,
    whose slot towards v is `back[s]`; choices k of v and j of the neighbour cost
    `tables[table[s] + k * own[s] + j * beside[s]]`. The usage of choice c is entries `entry_starts[c]` to
    `entry_starts[c + 1]` of `first`, `end`, `used`, as in `Points`. `is_compiled`: whether loops over them are.
    """

    left: Reduced
    starts: Ints
    sizes: Ints
    costs: Floats
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
    is_compiled: bool

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self.sizes)

    def cost(self, choices: Ints) -> float:
        """Of choices, the offset aside; infinite where one or a pair is forbidden."""
        first, second = self.left.ends[:, 0], self.left.ends[:, 1]
        place = self.left.table_starts[:-1] + choices[first] * self.sizes[second] + choices[second]
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
    sizes, edges = left.sizes, np.arange(len(left.ends))
    first, second = left.ends[:, 0], left.ends[:, 1]
    node, other = np.concatenate([first, second]), np.concatenate([second, first])
    ones = np.ones(len(edges), dtype=np.int64)
    own, beside = np.concatenate([sizes[second], ones]), np.concatenate([ones, sizes[second]])
    order = np.argsort(node, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    back = np.concatenate([place[len(edges) :], place[: len(edges)]])[order]
    points = left.points
    by_choice = np.argsort(points.choice, kind="stable")
    return Arrays(
        left,
        left.starts,
        sizes,
        left.factors.floats(left.costs),
        left.float_tables,
        np.searchsorted(node[order], np.arange(left.node_count + 1)),
        other[order],
        back,
        np.concatenate([left.table_starts[:-1]] * 2)[order],
        own[order],
        beside[order],
        points.room,
        np.searchsorted(points.choice[by_choice], np.arange(len(left.costs) + 1)),
        points.first[by_choice],
        points.end[by_choice],
        points.used[by_choice],
        len(left.tables) >= LEAST_WORK and is_numba_here(),
    )
