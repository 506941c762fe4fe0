"""Exact boundaries: the cuts with the least received load, for a fixed order of owners, over one step or several.

Whether cuts with a load of at most L exist is found by one pass: each region ends as late as L allows in every step.
If any cuts do, these do, since by induction none of them lies before the other's. A binary search over L gives the
least; its end is exact, for loads are multiples of what an entry costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.loads import Loads

__all__ = ["Boundaries", "exact_boundaries"]

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


def even_cuts(elements: int, regions: int) -> Ints:
    """Regions of equally many elements."""
    return np.arange(regions + 1, dtype=np.int64) * elements // regions


def _packed(loads: Loads, owners: Ints, limits: Ints) -> Ints | None:
    """Regions that end as late as their limits allow; None where they don't reach the end."""
    cuts = np.zeros(loads.ranks + 1, dtype=np.int64)
    for region, (rank, limit) in enumerate(zip(owners.tolist(), limits.tolist(), strict=True)):
        cuts[region + 1] = loads.furthest(int(cuts[region]), rank, limit)
    return cuts if cuts[-1] == loads.elements else None
