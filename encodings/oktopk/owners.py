"""Owners: which rank reduces which region, so that the largest cost of what an owner receives is least.

A bottleneck assignment: for a cost L, a region may go to the ranks that receive it for at most L; whether every region
finds one is a matching. A binary search over the costs that occur gives the least L.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
from numpy.typing import NDArray

__all__ = ["matched_owners", "owner_costs"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def owner_costs(counts: Ints, receiving: Floats, sending: Floats | None = None) -> Floats:
    """What each region costs each rank as its owner, the most over the steps, float (regions, ranks).

    `counts`: int64 (steps, ranks, regions). `receiving`, `sending`: what an entry costs each rank, float (P,); without
    `sending` it is not counted.
    """
    received = counts.sum(axis=1)[:, :, None] - counts.transpose(0, 2, 1)
    costs = received * receiving
    if sending is not None:
        sent = counts.sum(axis=2)[:, None, :] - counts.transpose(0, 2, 1)
        costs = np.maximum(costs, sent * sending)
    return np.asarray(costs.max(axis=0))


def matched_owners(costs: Floats, known: Ints) -> Ints:
    """The owner of each region, int64 (regions,), with the least largest cost; `known` where none has less."""
    best = costs[np.arange(len(known)), known].max()
    values = np.unique(costs[costs < best])
    owners, low, high = known, 0, len(values)  # values[high] can be kept, values[low - 1] can't
    while low < high:
        middle = (low + high) // 2
        found = _matching(costs <= values[middle])
        if found is None:
            low = middle + 1
        else:
            owners, high = found, middle
    return owners


def _matching(allowed: NDArray[np.bool_]) -> Ints | None:
    """An allowed rank for each region, each its own; None where there is none."""
    count = len(allowed)
    if not (allowed.any(axis=0).all() and allowed.any(axis=1).all()):
        return None
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(2 * count))
    graph.add_edges_from((region, count + rank) for region, rank in np.argwhere(allowed).tolist())
    found = nx.bipartite.hopcroft_karp_matching(graph, range(count))
    if len(found) < 2 * count:
        return None
    return np.array([found[region] - count for region in range(count)], dtype=np.int64)
