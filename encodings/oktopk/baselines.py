"""What is done without an optimiser: even regions, and Ok-Topk's averaged boundaries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.boundaries import even_cuts
from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = ["averaged_cuts", "even_cuts"]

Ints = NDArray[np.int64]


def averaged_cuts(sets: IndexSets, step: int) -> Ints:
    """Ok-Topk, section 3.1.1: each rank cuts its own set into equal parts; the ranks' boundaries are averaged."""
    regions, total = sets.ranks, np.zeros(sets.ranks - 1)
    for rank in range(sets.ranks):
        held = sets.of(step, rank)
        places = np.arange(1, regions) * len(held) // regions
        total += held[places] if len(held) else even_cuts(sets.elements, regions)[1:-1]
    inner = np.rint(total / regions).astype(np.int64)
    return np.concatenate([[0], inner, [sets.elements]])
