"""Loads: how many entries each owner receives, and each rank sends, when the gradient is cut into regions.

Region r is [cuts[r], cuts[r + 1]), reduced by rank owners[r]. In a step, the owner receives the entries that all other
ranks selected there; a rank sends all of its entries but those in its own region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = ["Loads", "region_counts"]

Ints = NDArray[np.int64]

_MOST_BINS = 65536
_ENTRIES_A_BIN = 256
_MOST_KEPT = 20_000
"""Bins whose entries are kept in order; about 100 MB at most."""


def region_counts(sets: IndexSets, cuts: Ints) -> Ints:
    """Entries of each rank in each region, int64 (steps, ranks, regions)."""
    below = np.empty((sets.steps, sets.ranks, len(cuts)), dtype=np.int64)
    for step in range(sets.steps):
        for rank in range(sets.ranks):
            below[step, rank] = np.searchsorted(sets.of(step, rank), cuts)
    return np.diff(below, axis=2)


@dataclass(frozen=True, eq=False)
class Loads:
    """Entries below the edges of bins, so that cuts are found without merging the sets.

    `groups`: the index sets of each step, or of several steps whose loads are added up; `groups[t][i]` are the arrays
    of rank i, each ascending. `edges`: int64 (bins + 1,), from 0 to n. `others`: int64 (steps, ranks, bins + 1), the
    entries of all ranks but this one below each edge. `places`: for each step, int64 (arrays, bins + 1): entries of
    each array below each edge.
    """

    elements: int
    groups: tuple[tuple[tuple[NDArray[np.int32], ...], ...], ...]
    edges: Ints
    others: Ints
    places: tuple[Ints, ...]
    _kept: dict[tuple[int, int], tuple[NDArray[np.int32], Ints]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, sets: IndexSets, windows: Sequence[Sequence[int]] | None = None) -> Loads:
        """The loads of each step; with `windows`, of the sums over the steps of each."""
        windows = [[step] for step in range(sets.steps)] if windows is None else windows
        groups = tuple(
            tuple(tuple(sets.of(step, rank) for step in window) for rank in range(sets.ranks)) for window in windows
        )
        edges = _edges(groups, sets.elements)
        places, others = [], np.empty((len(groups), sets.ranks, len(edges)), dtype=np.int64)
        for number, group in enumerate(groups):
            below = np.stack([np.searchsorted(held, edges) for parts in group for held in parts])
            by_rank = below.reshape(sets.ranks, -1, len(edges)).sum(axis=1)
            others[number] = by_rank.sum(axis=0) - by_rank
            places.append(below)
        return cls(sets.elements, groups, edges, others, tuple(places))

    @property
    def steps(self) -> int:
        """How many steps, or sums over steps."""
        return len(self.groups)

    @property
    def ranks(self) -> int:
        """P."""
        return int(self.others.shape[1])

    def counts(self, cuts: Ints) -> Ints:
        """Entries of each rank in each region, int64 (steps, ranks, regions)."""
        below = [[sum(np.searchsorted(held, cuts) for held in parts) for parts in group] for group in self.groups]
        return np.asarray(np.diff(np.array(below, dtype=np.int64), axis=2))

    def received(self, cuts: Ints, owners: Ints) -> Ints:
        """Entries that the owner of each region receives, int64 (steps, regions)."""
        return received_of(self.counts(cuts), owners)

    def furthest(self, first: int, rank: int, limit: int) -> int:
        """The largest end of a region from `first` in which the others hold at most `limit` entries, in every step."""
        last = self.elements
        begins = int(np.searchsorted(self.edges, first, side="right")) - 1
        for step in range(self.steps):
            column = self.others[step, rank]
            most = limit
            if begins < len(self.edges) - 1:
                held, ranks = self._entries(step, begins)
                most += int(column[begins]) + int(np.count_nonzero(ranks[: np.searchsorted(held, first)] != rank))
            else:
                most += int(column[-1])
            if column[-1] <= most:
                continue
            number = int(np.searchsorted(column, most, side="right")) - 1
            if self.edges[number] < last:
                held, ranks = self._entries(step, number)
                last = min(last, int(held[ranks != rank][most - int(column[number])]))  # the first that is too many
        return last

    def _entries(self, step: int, number: int) -> tuple[NDArray[np.int32], Ints]:
        """The entries of a bin, ascending, and whose they are; kept, for searches come back to the same bins."""
        found = self._kept.get((step, number))
        if found is None:
            places, group = self.places[step], self.groups[step]
            each = len(group[0])
            below, above = places[:, number], places[:, number + 1]
            starts, stops = below.tolist(), above.tolist()
            held = np.concatenate([group[k // each][k % each][starts[k] : stops[k]] for k in range(len(starts))])
            ranks = np.repeat(np.arange(len(starts)) // each, above - below)
            order = np.argsort(held, kind="stable")
            if len(self._kept) > _MOST_KEPT:
                self._kept.clear()
            found = self._kept[step, number] = (held[order], ranks[order])
        return found


def received_of(counts: Ints, owners: Ints) -> Ints:
    """Entries that each region's owner receives, int64 (steps, regions), from (steps, ranks, regions)."""
    own = np.take_along_axis(counts, owners[None, None, :], axis=1)[:, 0, :]
    return cast("Ints", counts.sum(axis=1) - own)


def sent_of(counts: Ints, owners: Ints) -> Ints:
    """Entries that each region's owner sends to others, int64 (steps, regions), from (steps, ranks, regions)."""
    own = np.take_along_axis(counts, owners[None, None, :], axis=1)[:, 0, :]
    return cast("Ints", counts.sum(axis=2)[:, owners] - own)


def _edges(groups: tuple[tuple[tuple[NDArray[np.int32], ...], ...], ...], elements: int) -> Ints:
    """Edges between which the steps have about equally many entries: evenly spaced ones of each array."""
    arrays = [held for group in groups for parts in group for held in parts]
    entries = sum(map(len, arrays)) // len(groups)
    bins = min(_MOST_BINS, max(16, entries // _ENTRIES_A_BIN))
    each = max(1, bins // len(arrays))
    sampled = [held[len(held) // (2 * each) :: max(1, len(held) // each)] for held in arrays]
    inner = np.unique(np.concatenate([*sampled, np.empty(0, dtype=np.int32)])).astype(np.int64)
    return np.concatenate([[0], inner[inner > 0], [elements]]).astype(np.int64)
