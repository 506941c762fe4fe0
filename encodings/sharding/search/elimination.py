"""Elimination: nodes beside fixed others, set at once to what costs least together.

A node goes into a table over its neighbours that says the least that it and those before it cost (min-sum bucket
elimination, Dechter 1999). The node with the smallest table goes next; where even that is too large, a node of it is
fixed at its choice. So the tables bound the work, and most nodes of a graph are set exactly given a few hubs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.search.arrays import Arrays

__all__ = ["Elimination", "elimination_of"]

_LOG_UNIT = 2**20
"""Of logarithms of numbers of choices, as whole numbers: their sums don't depend on the order."""


@dataclass(frozen=True, repr=False)
class Elimination:
    """Steps, one a node, in flat arrays that `kernels.eliminate` runs; other nodes keep their choices.

    Step i sets `node[i]` given the nodes `dims[dim_starts[i] : dim_starts[i + 1]]`. It adds the tables of factors
    `factor_starts[i]` to `factor_starts[i + 1]`: from `offset[f]` of the instance's tables, or, where that is
    negative, from `-offset[f] - 1` of tables made by earlier steps; `strides[stride_starts[f] :]` are those of the
    dims, and of the node itself. What it makes goes to `out[i]`, the choices to `taken_starts[i]`.
    `fixed_slots`: slots of nodes here whose neighbours aren't.
    """

    node: Ints
    dim_starts: Ints
    dims: Ints
    factor_starts: Ints
    offset: Ints
    stride_starts: Ints
    strides: Ints
    out: Ints
    taken_starts: Ints
    fixed_slots: Ints
    cells: int
    made: int
    most: int


def elimination_of(arrays: Arrays, free: Iterable[int], entries: int, random: np.random.Generator) -> Elimination:
    """Steps for nodes, none with a table of more than so many entries; `random` says which nodes are fixed instead."""
    graph = _Graph(arrays, free)
    order = graph.order(entries, random)
    return _steps(arrays, order)


class _Graph:
    """The neighbours of each node that isn't eliminated yet."""

    def __init__(self, arrays: Arrays, free: Iterable[int]) -> None:
        kept = set(free)
        starts, other = arrays.slot_starts.tolist(), arrays.other.tolist()
        self.beside = {v: {w for w in other[starts[v] : starts[v + 1]] if w in kept} for v in sorted(kept)}
        self._log = np.rint(np.log(arrays.sizes) * _LOG_UNIT).astype(np.int64).tolist()

    def order(self, entries: int, random: np.random.Generator) -> list[int]:
        """Nodes in the order of elimination, with tables of at most so many entries."""
        log, most = self._log, math.log(entries) * _LOG_UNIT
        sizes = {v: log[v] + sum(log[w] for w in near) for v, near in self.beside.items()}
        queue = [(size, v) for v, size in sizes.items()]
        heapq.heapify(queue)
        order = []
        while queue:
            size, node = heapq.heappop(queue)
            if sizes.get(node) != size:
                continue
            beside = self.beside[node]
            if size > most:
                node = self._hub([node, *sorted(beside)], random)
                beside = self.beside[node]
                for other in beside:
                    self.beside[other].discard(node)
                    sizes[other] -= log[node]
            else:
                order.append(node)
                for other in beside:
                    mine = self.beside[other]
                    new = beside - mine
                    new.discard(other)
                    mine |= new
                    mine.discard(node)
                    sizes[other] += sum(log[w] for w in new) - log[node]
            del sizes[node], self.beside[node]
            for other in beside:
                heapq.heappush(queue, (sizes[other], other))
        return order

    def _hub(self, nodes: list[int], random: np.random.Generator) -> int:
        weights = [self._log[node] * len(self.beside[node]) for node in nodes]
        place = np.searchsorted(np.cumsum(weights), random.random() * sum(weights), side="right")
        return nodes[min(int(place), len(nodes) - 1)]


@dataclass
class _Table:
    """A factor over nodes: where it is, and the stride of each."""

    offset: int
    strides: dict[int, int]


def _steps(arrays: Arrays, order: list[int]) -> Elimination:
    rank = {node: place for place, node in enumerate(order)}
    sizes, starts, other = arrays.sizes.tolist(), arrays.slot_starts.tolist(), arrays.other.tolist()
    table, own, beside = arrays.table.tolist(), arrays.own.tolist(), arrays.beside.tolist()
    buckets: list[list[_Table]] = [[] for _ in order]
    fixed = []
    for place, node in enumerate(order):
        for slot in range(starts[node], starts[node + 1]):
            if other[slot] not in rank:
                fixed.append(slot)
            elif rank[other[slot]] > place:
                buckets[place].append(_Table(table[slot], {node: own[slot], other[slot]: beside[slot]}))
    dims: list[int] = []
    rows: list[tuple[int, ...]] = []  # of steps: dims, factors, out, taken
    offsets: list[int] = []
    strides: list[int] = []
    stride_starts: list[int] = []
    made = taken = most = 0
    for place, node in enumerate(order):
        scope = sorted({each for known in buckets[place] for each in known.strides} - {node}, key=rank.__getitem__)
        cells = math.prod(sizes[each] for each in scope)
        rows.append((len(dims), len(offsets), made, taken))
        for known in buckets[place]:
            offsets.append(known.offset)
            stride_starts.append(len(strides))
            strides += [known.strides.get(each, 0) for each in [*scope, node]]
        if len(scope) > 1:
            steps, stride = {}, 1
            for each in reversed(scope):
                steps[each] = stride
                stride *= sizes[each]
            buckets[rank[scope[0]]].append(_Table(-made - 1, steps))
            made += cells
        dims += scope
        taken, most = taken + cells, max(most, cells * sizes[node])
    columns = np.array([*rows, (len(dims), len(offsets), made, taken)], dtype=np.int64).T.copy()
    whole = (np.array(each, dtype=np.int64) for each in (order, dims, offsets, stride_starts, strides, fixed))
    node_, dims_, offsets_, stride_starts_, strides_, fixed_ = whole
    return Elimination(
        node_, columns[0], dims_, columns[1], offsets_, stride_starts_, strides_, columns[2], columns[3], fixed_,
        taken, made, most,
    )  # fmt: skip
