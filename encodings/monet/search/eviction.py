"""Greedy eviction: which tensors to recompute so that a step fits, cheapest first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.search.keepset import Keeper, KeepSet, Move, State
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["evicted"]


def evicted(keeper: Keeper, keep: KeepSet) -> KeepSet:
    """Drop what is cheapest to recompute per byte while the step runs that takes most memory, until all fits.

    What was kept is recomputed when it is wanted, what was recomputed is dropped over its longest gap, either once.
    Ends where nothing is left to drop. At each look, as much goes as half of what is too much: the prices of the rest
    have changed then.
    """
    state = best = keeper.state(keep)
    kept, whole = state.keep.kept.copy(), ~state.keep.dropped
    while state.outcome.overflow_bytes > 0:
        held = keeper.held_at_worst(state)
        candidates = np.flatnonzero(held & (kept | whole))
        if not len(candidates):
            break
        order = candidates[np.argsort(_price(keeper.graph, state)[candidates], kind="stable")]
        freed = np.cumsum(keeper.graph.output_bytes[order])
        gone = order[: 1 + int(np.searchsorted(freed, state.outcome.overflow_bytes / 2))]
        moves = Move(kept=tuple(gone[kept[gone]].tolist()), dropped=tuple(gone[~kept[gone]].tolist()))
        whole[gone] &= kept[gone]
        kept[gone] = False
        state = keeper.moved(state, moves)
        best = state if state.outcome.overflow_bytes < best.outcome.overflow_bytes else best
    return best.keep


def _price(graph: TrainingGraph, state: State) -> NDArray[np.float64]:
    """Seconds per byte of making each tensor again from what is kept, at most the whole forward pass."""
    kept, total_s = state.keep.kept, 0.0
    again_s = np.zeros(len(graph.forward))
    for number, node in enumerate(graph.forward):
        own_s = min(impl.duration_s for impl in (node.again or node.implementations))
        total_s += own_s
        again_s[number] = min(own_s + sum(again_s[k] for k in node.sources if not kept[k]), total_s)
    return np.asarray(again_s / np.maximum(graph.output_bytes, 1))
