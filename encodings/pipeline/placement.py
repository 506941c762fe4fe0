"""Placements: which rank runs which stage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["PLACEMENTS", "rank_of_stages"]

PLACEMENTS = ("linear", "looped", "v")
"""`linear`: one stage a rank. `looped`: around all ranks as often as there are chunks (interleaved stages). `v`: down
and up again, chunk after chunk, so that a rank that runs the first stage runs the last one too (of two chunks)."""


def rank_of_stages(placement: str, ranks: int, chunks: int) -> NDArray[np.int64]:
    """The rank of each stage, int64 of shape (ranks * chunks,)."""
    down = np.arange(ranks)
    if placement == "v":
        return np.concatenate([down[::-1] if chunk % 2 else down for chunk in range(chunks)])
    return np.tile(down, chunks)
