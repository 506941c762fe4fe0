"""Values in classes: numbers that lie close together, and ranks that are near each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

__all__ = ["classes_of", "joined", "near_groups"]

Floats = NDArray[np.float64]

_LEAST_GAP = 1.3
"""Ranks of one group are nearer to each other than to others by this factor at least, or there are no groups."""


def classes_of(values: Floats, gap: float) -> NDArray[np.int64]:
    """The class of each value, 0 for the smallest: neighbours that differ by more than a factor `gap` are apart."""
    order = np.argsort(values, kind="stable")
    above = np.maximum(values[order], 1e-300)
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.concatenate([[0], np.cumsum(above[1:] > gap * above[:-1])])
    return found


def joined(count: int, pairs: Iterable[Sequence[int]]) -> list[list[int]]:
    """The components of `count` things that pairs join, each sorted, in the order of their first."""
    graph = nx.empty_graph(count)
    graph.add_edges_from(pairs)
    return sorted(sorted(part) for part in nx.connected_components(graph))


def near_groups(cost: Floats, finest: bool) -> list[list[int]]:
    """Groups of ranks whose costs among themselves are all lower than those to others; one group if there are none.

    `cost`: of ordered pairs, float, shape (ranks, ranks); of a pair's two directions the cheaper counts. Of several
    divisions that costs allow, the one with the widest gap, or the `finest`.
    """
    ranks = len(cost)
    both = np.fmin(cost, cost.T)
    upper = np.triu_indices(ranks, 1)
    values = np.sort(both[upper])
    found: list[tuple[float, list[list[int]]]] = []
    for k in np.flatnonzero(values[1:] > _LEAST_GAP * values[:-1]):
        near = both <= values[k]
        groups = joined(ranks, np.argwhere(np.triu(near, 1)).tolist())
        if sum(len(group) * (len(group) - 1) // 2 for group in groups) == k + 1:  # all pairs inside are near
            found.append((values[k + 1] / values[k], groups))
    if not found:
        return [list(range(ranks))]
    return found[0][1] if finest else max(found, key=lambda each: each[0])[1]
