"""What training that follows a plan asks for in each step, or every so many; no search, the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.balancing import balancing_moves
from gapless.encodings.oktopk.boundaries import exact_boundaries
from gapless.encodings.oktopk.loads import Loads
from gapless.profiles.sparsity.index_sets import index_sets

__all__ = ["balancing_moves", "renewed_cuts"]


def renewed_cuts(places: Sequence[NDArray[np.int32]], elements: int, owners: Sequence[int]) -> NDArray[np.int64]:
    """Exact cuts for the next steps, int64 (P + 1,), from all ranks' places in one, ascending."""
    loads = Loads.of(index_sets([places], elements, "training"))
    return exact_boundaries(loads, np.asarray(owners, dtype=np.int64)).cuts
