"""Fewer queries than heads of kept key heads: with grouped queries, heads that share scores share the query too.

Each layer's used heads are chosen among those whose keys are kept, by exchanges, for every count; counts over layers by
the exact choice within the heads that may be used in all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.head_map import HeadMap
from gapless.methods.medians import guessed
from gapless.model.knapsack import Items, front

__all__ = ["fewer_queries", "using"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def fewer_queries(chosen: HeadMap, distance: Floats, key_heads: int, most_used: int, most_work: int) -> HeadMap:
    """The map with the attention of at most so many heads in all layers together, one in each at least.

    `distance`: float, shape (layers, heads, heads). `most_work`: of the choice over layers. Key heads that no used head
    needs are kept no more.
    """
    group = distance.shape[1] // key_heads
    offered = [_offered(kept, group) for kept in chosen.kept]
    medians = [guessed(apart[:, heads]) for apart, heads in zip(distance, offered, strict=True)]
    most = max(map(len, offered))
    errors = np.full((len(medians), most), np.inf)
    for layer, each in enumerate(medians):
        errors[layer, : len(each.errors)] = each.errors
    counts = np.broadcast_to(np.arange(1.0, most + 1), errors.shape)
    best = front(Items(counts, errors), most_work).at(max(most_used, len(medians)))
    assert best is not None, "one head a layer is within the budget"
    used = [heads[list(each.kept[mode])] for heads, each, mode in zip(offered, medians, best.modes, strict=True)]
    kept = tuple(tuple(np.unique(heads // group).tolist()) for heads in used)
    return HeadMap(kept, np.array([_rows(apart, heads) for apart, heads in zip(distance, used, strict=True)]))


def using(chosen: HeadMap, distance: Floats, key_heads: int, counts: Sequence[int]) -> HeadMap:
    """The map with the attention of `counts[l]` heads in layer l, by exchanges; all kept keys stay."""
    group, rows = distance.shape[1] // key_heads, list(chosen.representative)
    for layer, (apart, kept, count) in enumerate(zip(distance, chosen.kept, counts, strict=True)):
        offered = _offered(kept, group)
        if count < len(np.unique(rows[layer])):
            rows[layer] = _rows(apart, offered[list(guessed(apart[:, offered]).kept[count - 1])])
    return HeadMap(chosen.kept, np.array(rows, dtype=np.int64))


def _offered(kept: Sequence[int], group: int) -> Ints:
    """The heads of these key heads."""
    return np.asarray((np.array(kept, dtype=np.int64)[:, None] * group + np.arange(group)).ravel())


def _rows(apart: Floats, used: Ints) -> Ints:
    """Each head to the nearest used one, a used one to itself."""
    rows = used[apart[:, used].argmin(axis=1)]
    rows[used] = used
    return np.asarray(rows)
