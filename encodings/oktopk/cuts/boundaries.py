"""Boundaries: the cuts with the least received load for an order of owners, the owners with the least for some cuts.

Exact cuts, over one step or several: whether any with a load of at most L exist is found by one pass, in which each
region ends as late as L allows in every step. If any cuts do, these do, since by induction none of them lies before the
other's. A binary search over L gives the least; its end is exact, for loads are multiples of what an entry costs.

Owners are a bottleneck assignment: for a cost L, a region may go to the ranks that receive it for at most L; whether
every region finds one is a matching. A binary search over the costs that occur gives the least L.

Without an optimiser: even regions, and Ok-Topk's averaged boundaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.cuts.loads import Loads
from gapless.profiles.sparsity.index_sets import IndexSets, index_sets

__all__ = [
    "Boundaries", "averaged_cuts", "even_cuts", "exact_boundaries", "matched_owners", "owner_costs", "renewed_cuts",
]  # fmt: skip

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Boundaries:
    """Cuts, int64 (P + 1,), from 0 to n, the owner of each region, and the largest cost of what an owner receives."""

    cuts: Ints
    owners: Ints
    cost: float


def exact_boundaries(
    loads: Loads, owners: Ints, entry_cost: Floats | None = None, start: Ints | None = None
) -> Boundaries:
    """The cuts whose largest received load is least, over all steps.

    `entry_cost`: what an entry costs each rank that receives it, float (P,), all above 0; one each if None. `start`:
    cuts to begin with, even ones if None.
    """
    costs = (np.ones(loads.ranks) if entry_cost is None else entry_cost)[owners]
    cuts = even_cuts(loads.elements, loads.ranks) if start is None else start
    received = loads.received(cuts, owners) * costs
    best, failed, tried = float(received.max()), -float(costs.min()), float(received.mean(axis=1).max())
    while True:
        next_below = float((costs * (np.ceil(best / costs * (1 - 1e-12)) - 1)).max())
        if next_below <= failed * (1 + 1e-12) or best <= 0:
            return Boundaries(cuts, owners, best)
        tried = max(0.0, min(tried, next_below))
        found = _packed(loads, owners, np.floor(tried / costs * (1 + 1e-12)).astype(np.int64))
        if found is None:
            failed = tried
        else:
            cuts, best = found, float((loads.received(found, owners) * costs).max())
        tried = (failed + best) / 2


def renewed_cuts(places: Sequence[NDArray[np.int32]], elements: int, owners: Sequence[int]) -> NDArray[np.int64]:
    """Exact cuts for the next steps, int64 (P + 1,), from all ranks' places in one, ascending."""
    loads = Loads.of(index_sets([places], elements, "training"))
    return exact_boundaries(loads, np.asarray(owners, dtype=np.int64)).cuts


def even_cuts(elements: int, regions: int) -> Ints:
    """Regions of equally many elements."""
    return np.arange(regions + 1, dtype=np.int64) * elements // regions


def _packed(loads: Loads, owners: Ints, limits: Ints) -> Ints | None:
    """Regions that end as late as their limits allow; None where they don't reach the end."""
    cuts = np.zeros(loads.ranks + 1, dtype=np.int64)
    for region, (rank, limit) in enumerate(zip(owners.tolist(), limits.tolist(), strict=True)):
        cuts[region + 1] = loads.furthest(int(cuts[region]), rank, limit)
    return cuts if cuts[-1] == loads.elements else None


def averaged_cuts(sets: IndexSets, step: int) -> Ints:
    """Ok-Topk, section 3.1.1: each rank cuts its own set into equal parts; the ranks' boundaries are averaged."""
    regions, total = sets.ranks, np.zeros(sets.ranks - 1)
    for rank in range(sets.ranks):
        held = sets.of(step, rank)
        places = np.arange(1, regions) * len(held) // regions
        total += held[places] if len(held) else even_cuts(sets.elements, regions)[1:-1]
    inner = np.rint(total / regions).astype(np.int64)
    return np.concatenate([[0], inner, [sets.elements]])


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
