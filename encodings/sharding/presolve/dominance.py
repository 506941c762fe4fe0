"""Choices that another of their node can always replace; tables that are sums of their nodes'; leaves without memory.

A choice goes if another uses at most as much memory at each time point, and costs at most as much beside every choice
of all neighbours. A leaf that no time point holds goes into its neighbour, with the best of its choices for each there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.presolve.factors import Factors, Ints
from gapless.encodings.sharding.presolve.points import Points

__all__ = ["lean"]

_MOST_WORK = 2**24
"""Differences of costs that are looked at for one node: one with hundreds of choices would take seconds."""
_NONE = -(2**51)
"""What a pair costs more than one that is forbidden: less than any real difference that matters."""


def lean(factors: Factors, points: Points) -> list[int]:
    """Take out what is said above, once. Returns the nodes that have changed or have new neighbours."""
    if factors.is_wide:
        return []
    usages = _usages(factors, points)
    touched = _split(factors)
    for node in factors.asking(sorted(factors.costs)):
        if len(factors.costs[node]) > 1:
            kept = _undominated(factors, node, usages.get(node))
            if len(kept) < len(factors.costs[node]):
                touched += [node, *factors.tables[node]]
                factors.restrict(node, kept)
                if node in usages:
                    usages[node] = usages[node][kept]
    for node in sorted(factors.costs):
        if node not in usages and len(factors.tables[node]) == 1:
            other = next(iter(factors.tables[node]))
            factors.absorb(other, node)
            touched.append(other)
    return sorted({node for node in touched if node in factors.costs})


def _usages(factors: Factors, points: Points) -> dict[int, Ints]:
    """What the choices of nodes use between changes, int64, shape (choices, spans), for the nodes that use any."""
    nodes = [node for node in sorted(factors.costs) if len(factors.costs[node]) > 1]
    sizes = np.array([len(factors.costs[node]) for node in nodes], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    place = np.searchsorted(starts, points.choice, side="right") - 1
    order = np.argsort(place, kind="stable")
    found = {}
    for part in np.split(order, np.flatnonzero(np.diff(place[order])) + 1) if len(order) else []:
        number = place[part[0]]
        breaks = np.unique(np.concatenate([points.first[part], points.end[part]]))
        change = np.zeros((sizes[number], len(breaks)), dtype=np.int64)
        choice = points.choice[part] - starts[number]
        np.add.at(change, (choice, np.searchsorted(breaks, points.first[part])), points.used[part])
        np.subtract.at(change, (choice, np.searchsorted(breaks, points.end[part])), points.used[part])
        found[nodes[number]] = change.cumsum(axis=1)[:, :-1]
    return found


def _split(factors: Factors) -> list[int]:
    """Let nodes pay for tables that are a sum of a number of each end's choice. Returns the ends."""
    touched = []
    for first in factors.asking(sorted(factors.costs)):
        for second, table in list(factors.tables[first].items()):
            if first < second and factors.is_open(table).all():
                row, column = table[:, 0], table[0] - table[0, 0]
                if (table == row[:, None] + column).all():
                    factors.part(first, second, row, column)
                    touched += [first, second]
    return touched


def _undominated(factors: Factors, node: int, usage: Ints | None) -> Ints:
    """The choices that stay, ascending."""
    cost, tables = factors.costs[node], list(factors.tables[node].values())
    size = len(cost)
    if size * size * (1 + sum(table.shape[1] for table in tables)) > _MOST_WORK:
        return np.arange(size)
    is_less = ~np.eye(size, dtype=bool)
    if usage is not None:
        for span in usage.T:
            is_less &= span[:, None] <= span
    better, worse = np.nonzero(is_less)
    above, never = cost[better] - cost[worse], np.zeros(len(better), dtype=bool)
    for table in tables:
        is_open = factors.is_open(table)
        difference = np.where(is_open[worse], table[better] - table[worse], _NONE)
        never |= (is_open[worse] & ~is_open[better]).any(axis=1)
        above = above + difference.max(axis=1)
    is_found = (above <= 0) & ~never
    better, worse = better[is_found], worse[is_found]
    goes: NDArray[np.bool_] = np.zeros(size, dtype=bool)
    for one, other in zip(better.tolist(), worse.tolist(), strict=True):
        if not goes[one]:
            goes[other] = True
    return np.flatnonzero(~goes)
