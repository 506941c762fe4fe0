"""Drift: how the load of boundaries grows with their age, and how often it pays to make new ones.

New boundaries cost an allreduce of a histogram of the index sets, in bins enough for cuts to within a percent. They are
used for so many steps that this cost and the extra load of old boundaries are least in the mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.allreduce.network import ENTRY_BYTES, Network
from gapless.encodings.oktopk.cuts.boundaries import averaged_cuts, exact_boundaries
from gapless.encodings.oktopk.cuts.loads import Loads, received_of, region_counts
from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = ["drift_of", "over_ideal", "renewal_steps"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BINS_A_RANK = 100
"""Bins of the histogram for each region, so that a cut is off by a percent of a region at most."""


def drift_of(sets: IndexSets, network: Network) -> dict[str, Any]:
    """Load over the ideal by the boundaries' age in steps, of exact and of averaged ones, and how often to renew them.

    `exact`, `averaged`: lists by age, from 0, the mean over all steps that are so much older than the boundaries.
    `renewal_steps`: 0 where a single step was recorded.
    """
    owners = np.arange(sets.ranks)
    ideal = sets.counts.mean(axis=1) * (sets.ranks - 1) / sets.ranks
    sums = {name: np.zeros(sets.steps) for name in ("exact", "averaged")}
    for step in range(sets.steps):
        averaged = averaged_cuts(sets, step)
        exact = exact_boundaries(Loads.of(sets, [[step]]), owners, start=averaged).cuts
        for name, cuts in (("exact", exact), ("averaged", averaged)):
            ratios = over_ideal(sets, cuts, owners)
            sums[name][: sets.steps - step] += ratios[step:]
    by_age = {name: (total / np.arange(sets.steps, 0, -1)).tolist() for name, total in sums.items()}
    words = _BINS_A_RANK * sets.ranks
    steps, alpha_s = 2 * (sets.ranks - 1), float(network.topology.alpha_s.max())
    cost_s = steps * (alpha_s + 4 * words / sets.ranks * float(network.receiving_s_per_byte.max()))
    entry_s = ENTRY_BYTES * float(ideal.mean()) * float(network.receiving_s_per_byte.max())
    renewal = renewal_steps(by_age["exact"], cost_s / entry_s) if sets.steps > 1 and entry_s > 0 else 0
    return {**by_age, "renewal_s": cost_s, "renewal_steps": renewal}


def over_ideal(sets: IndexSets, cuts: Ints, owners: Ints) -> Floats:
    """What the busiest owner receives of each step over the ideal k (P - 1) / P; 1 where nothing is selected."""
    ideal = sets.counts.mean(axis=1) * (sets.ranks - 1) / sets.ranks
    received = received_of(region_counts(sets, cuts), owners).max(axis=1)
    ratios: Floats = np.divide(received, ideal, out=np.ones(sets.steps), where=ideal > 0)
    return ratios


def renewal_steps(ratio_by_age: list[float], cost: float) -> int:
    """For how many steps boundaries are best used: the least mean of their cost and of what the steps take.

    `cost`: of new boundaries, in the unit of the ratios. At most as many steps as there are ages.

    >>> renewal_steps([1.0, 1.1, 1.2, 1.9], 0.3)
    3
    """
    totals = cost + np.cumsum(ratio_by_age)
    return int(np.argmin(totals / np.arange(1, len(totals) + 1))) + 1
