"""How long exact boundaries take: for a gradient of 100 M entries on 64 ranks, and from step to step inside a training.

`pytest tests/benchmarks/test_oktopk_speed.py` prints times; the answers are asserted: the boundaries' load is what is
counted entry by entry, and (16 ranks) a load lower by one is impossible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gapless.encodings.oktopk.cuts.boundaries import Boundaries, averaged_cuts, exact_boundaries
from gapless.encodings.oktopk.cuts.loads import Loads, received_of, region_counts
from gapless.profiles.sparsity.index_sets import IndexSets


def clustered(elements: int, ranks: int, density: float) -> IndexSets:
    """Sets that thin out along the gradient: places are powers of uniform numbers."""
    random, count, sets = np.random.default_rng(0), round(density * elements), []
    for _ in range(ranks):
        places = np.unique((random.random(int(1.3 * count)) ** 3 * elements).astype(np.int32))
        sets.append(places[np.sort(random.permutation(len(places))[:count])])
    start = np.append(0, np.cumsum([len(held) for held in sets]))
    return IndexSets("clustered", elements, 1, ranks, start, np.concatenate(sets))


def plan_next_step(sets: IndexSets) -> Boundaries:
    """What a training does with the sets of a step, to have boundaries for the next."""
    return exact_boundaries(Loads.of(sets), np.arange(sets.ranks), start=averaged_cuts(sets, 0))


@pytest.mark.shortest("10000000-16")
@pytest.mark.parametrize(("elements", "ranks"), [(10**7, 16), (10**8, 64)])
def test_exact_boundaries(benchmark: Callable[..., Any], elements: int, ranks: int, sized: object) -> None:
    sets = clustered(sized(elements, 10**6), ranks, 0.01)  # type: ignore[operator]
    rounds = 10 if ranks == 16 else 1
    found: Boundaries = benchmark.pedantic(plan_next_step, args=(sets,), rounds=rounds)  # type: ignore[attr-defined]
    received = received_of(region_counts(sets, found.cuts), found.owners)[0]
    assert received.max() == found.cost
    ideal = sets.counts.mean() * (ranks - 1) / ranks
    assert found.cost <= 1.02 * ideal
    if elements > 10**7:
        return
    at = 0
    for rank in range(ranks):  # one pass, entry by entry, with a limit lower by one
        others = np.sort(np.concatenate([sets.of(0, other) for other in range(ranks) if other != rank]))
        last = int(np.searchsorted(others, at)) + int(found.cost) - 1
        at = int(others[last]) if last < len(others) else sets.elements
    assert at < sets.elements
