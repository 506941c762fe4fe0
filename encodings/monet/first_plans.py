"""Plans by simple rules, in a time that hardly grows with the graph: what a search begins with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gapless.encodings.monet.search.eviction import evicted
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.encodings.monet.study.baselines import checkpoints_kept, lean_variants

__all__ = ["first_plans"]


def first_plans(keeper: Keeper) -> Iterator[KeepSet]:
    """Keep all; greedy eviction; Chen's checkpoints with eviction; keep nothing. Mostly, the later the less memory."""
    graph = keeper.graph
    variants = [lean_variants(graph), np.zeros(len(graph.backward), dtype=np.int64)]
    everything = np.ones(len(graph.forward), dtype=np.bool_)
    for variant in variants:
        yield KeepSet.just_in_time(everything, variant)
    for kept in (everything, checkpoints_kept(graph)):
        for variant in variants:
            yield evicted(keeper, KeepSet.just_in_time(kept, variant))
    yield KeepSet.just_in_time(~everything, variants[0])
