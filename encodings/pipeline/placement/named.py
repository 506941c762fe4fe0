"""Placements by their names: which rank runs which stage."""

from __future__ import annotations

import numpy as np

from gapless.array_types import Floats, Ints

__all__ = ["PLACEMENTS", "Placement", "copies_of", "each_rank", "rank_of_stages"]

PLACEMENTS = ("linear", "looped", "v", "bidirectional")
"""`linear`: one stage a rank. `looped`: around all ranks as often as there are chunks (interleaved stages). `v`: down
and up again, chunk after chunk, so that a rank that runs the first stage runs the last one too (of two chunks).
`bidirectional`: two copies of the model, one down the ranks for half of the micro-batches, one up for the others."""

Placement = str | tuple[int, ...]
"""One by name, or the rank of each stage."""


def rank_of_stages(placement: Placement, ranks: int, chunks: int) -> Ints:
    """The rank of each stage, int64 of shape (ranks * chunks,)."""
    down = np.arange(ranks)
    if not isinstance(placement, str):
        return np.array(placement, dtype=np.int64)
    if placement == "bidirectional":
        return np.concatenate([down, down[::-1]])
    if placement == "v":
        return np.concatenate([down[::-1] if chunk % 2 else down for chunk in range(chunks)])
    return np.tile(down, chunks)


def copies_of(placement: object) -> int:
    """Copies of the model, each a chain of stages for its own share of the micro-batches."""
    return 2 if placement == "bidirectional" else 1


def each_rank(rank: Ints, sizes: Ints | Floats, ranks: int, copies: int) -> Floats:
    """What a micro-batch has of sizes of stages on each rank, float of shape (P,): of the copy that has most there."""
    parts = zip(np.split(rank, copies), np.split(sizes, copies), strict=True)
    found = [np.bincount(own, weights=size, minlength=ranks) for own, size in parts]
    return np.asarray(np.max(found, axis=0), dtype=np.float64)
