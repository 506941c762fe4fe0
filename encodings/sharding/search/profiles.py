"""What each choice of a node uses between the time points where that changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.search.arrays import Arrays

__all__ = ["Profiles", "profiles_of"]


@dataclass(frozen=True, repr=False)
class Profiles:
    """Between points `breaks[i]` and `breaks[i + 1]`, i from `break_starts[v]` on, each choice of node v uses the same.
    `usage[usage_starts[v] :]` has it, a row for each choice, a column for each span.
    """

    break_starts: Ints
    breaks: Ints
    usage_starts: Ints
    usage: Ints

    def of(self, node: int, size: int) -> tuple[Ints, Ints]:
        """The breaks of a node, and what its choices use, int64, shape (choices, spans)."""
        breaks = self.breaks[self.break_starts[node] : self.break_starts[node + 1]]
        used = self.usage[self.usage_starts[node] : self.usage_starts[node + 1]]
        return breaks, used.reshape(size, -1) if len(used) else np.zeros((size, 0), dtype=np.int64)


def profiles_of(arrays: Arrays) -> Profiles:
    """The profiles of all nodes."""
    points = len(arrays.room) + 1
    choice = np.repeat(np.arange(len(arrays.costs)), np.diff(arrays.entry_starts))
    owner = np.repeat(np.arange(arrays.node_count), arrays.sizes)[choice]
    keys = np.unique(np.concatenate([owner * points + arrays.first, owner * points + arrays.end]))
    node, breaks = keys // points, keys % points
    break_starts = np.searchsorted(node, np.arange(arrays.node_count + 1))
    spans = np.maximum(np.diff(break_starts) - 1, 0)
    usage_starts = np.concatenate([[0], (spans * arrays.sizes).cumsum()])
    change = np.zeros(int(usage_starts[-1]) + 1, dtype=np.int64)
    row = usage_starts[owner] + (choice - arrays.starts[owner]) * spans[owner]
    first = np.searchsorted(keys, owner * points + arrays.first) - break_starts[owner]
    end = np.searchsorted(keys, owner * points + arrays.end) - break_starts[owner]
    np.add.at(change, row + first, arrays.used)
    is_inside = end < spans[owner]
    np.subtract.at(change, (row + end)[is_inside], arrays.used[is_inside])
    return Profiles(break_starts, breaks, usage_starts, _summed_rows(change[:-1], np.repeat(spans, arrays.sizes)))


def _summed_rows(change: Ints, widths: Ints) -> Ints:
    """Cumulative sums within rows of these widths."""
    summed = change.cumsum()
    starts = widths.cumsum() - widths
    before = np.concatenate([[0], summed])[starts]
    row = np.repeat(np.arange(len(widths)), widths)
    rows: Ints = summed - before[row]
    return rows
