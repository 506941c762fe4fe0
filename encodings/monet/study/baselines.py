"""Baselines: decisions by simple rules, to start a search from and to compare plans with."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.search.keepset import Keeper, KeepSet, Move, State
from gapless.encodings.monet.search.retention import (
    Recomputation,
    fit_implementations,
    just_in_time,
    last_needs,
    recompute_on_need,
)
from gapless.errors import InputError
from gapless.profiles.training.baseline import default_variants
from gapless.profiles.training.graph import TrainingGraph, Variant

__all__ = [
    "checkpoints_kept",
    "eager",
    "evicted",
    "greedy_eviction",
    "just_in_time",
    "lean",
    "lean_variants",
    "revolve",
    "sqrt_checkpoints",
    "store_all",
]


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


Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]


def store_all(graph: TrainingGraph, variants: Ints | None = None) -> Decisions:
    """Keeps all that the backward pass needs; default implementations unless `variants` says otherwise."""
    variants = _defaults(graph) if variants is None else variants
    return just_in_time(graph, np.ones(len(graph.forward), dtype=np.bool_), variants)


def eager(graph: TrainingGraph, capacity_bytes: int) -> Decisions:
    """What a framework does by itself: keeps all that its default backward pass needs, and chooses no operators.

    As `profiles.baseline.peak_without_saving_bytes` counts it, but with the fastest implementations that a device of
    `capacity_bytes` has room for, as a framework picks that tries its algorithms out.
    """
    chosen = default_variants(graph)
    variants = [node.variants.index(variant) for node, variant in zip(graph.backward, chosen, strict=True)]
    return fit_implementations(graph, store_all(graph, np.array(variants, dtype=np.int64)), capacity_bytes)


def lean(graph: TrainingGraph) -> Decisions:
    """Operator choices only, no recomputation."""
    return store_all(graph, lean_variants(graph))


def lean_variants(graph: TrainingGraph) -> Ints:
    """Variants that need few bytes of the forward pass; int64, shape (backward,).

    Each backward node takes the one that adds the fewest bytes to what is kept: the input or the output where that is
    kept anyway, else an encoded intermediate. Of equals, one that lets another operator run in place, then the faster
    one. Operators without a choice decide first.
    """
    variants = _defaults(graph)
    overwritten = {node.overwrites for node in graph.forward}
    kept: set[int] = set()
    for number in sorted(range(len(graph.backward)), key=lambda number: (len(graph.backward[number].variants), number)):
        choices = graph.backward[number].variants

        def burden(variant: Variant) -> tuple[int, int, float]:
            added = [need for need in variant.needs if need not in kept]
            size_bytes = sum(graph.forward[need].output_bytes for need in added)
            return (
                size_bytes,
                len(overwritten.intersection(added)),
                min(impl.duration_s for impl in variant.implementations),
            )

        best = min(choices, key=burden)
        variants[number] = choices.index(best)
        kept.update(best.needs)
    return variants


def sqrt_checkpoints(graph: TrainingGraph) -> Decisions:
    """Chen's rule with default implementations."""
    return just_in_time(graph, checkpoints_kept(graph), _defaults(graph))


def checkpoints_kept(graph: TrainingGraph) -> Mask:
    """Chen's rule: about sqrt(n) segments, of which only the borders and the last one are kept (arXiv 1604.06174).

    bool, shape (forward,). A border is what passes from the nodes before it to those after it: one tensor where there
    are enough such places, else as many as it takes.
    """
    nodes = [number for number, node in enumerate(graph.forward[: graph.loss]) if node.creator is None]
    passing = [np.flatnonzero(graph.local[number + 1]) for number in nodes[:-1]]
    narrow = [place for place, border in enumerate(passing) if len(border) == 1]
    places = narrow if len(narrow) >= math.isqrt(len(nodes)) else list(range(len(passing)))
    step = max(1, round(math.sqrt(len(places))))
    borders = places[step - 1 :: step]
    kept = np.zeros(len(graph.forward), dtype=np.bool_)
    for place in borders:
        kept[passing[place]] = True
    kept[nodes[borders[-1]] + 1 if borders else 0 :] = True
    return kept


def revolve(graph: TrainingGraph, checkpoints: int | None = None) -> Decisions:
    """Griewank's binomial checkpointing of a chain: the fewest recomputations with that many checkpoints.

    `checkpoints`: outputs held at a time, besides the one that a backward node needs; by default log2 of the chain's
    length. Steps count alike, whatever they take. Raises `InputError` where the graph is not a chain.
    """
    chain = _chain(graph)
    slots = max(1, math.ceil(math.log2(len(chain) + 1))) if checkpoints is None else checkpoints
    if slots < 0:
        raise InputError(f"revolve: checkpoints must be >= 0, got {slots}")
    splits = _splits(len(chain) + 1, slots)
    place = {node: number for number, node in enumerate(chain)}
    variants = _defaults(graph)
    last = last_needs(graph, variants)

    def retain(found: Recomputation) -> dict[int, int]:
        ran = [place[node] for node in found.ran if node in place]
        held = sum(place.get(node, len(chain)) < ran[0] for node in found.available)
        chosen = _checkpoints(splits, ran[0] - 1, ran[-1], max(0, slots - held))
        stays = {node: last[node] for node in found.ran if node in found.needed or node not in place}
        return stays | {chain[number]: len(graph.backward) for number in chosen}

    needed = max((place[node] for node in chain if last[node] >= 0), default=-1)
    kept = [chain[number] for number in (*_checkpoints(splits, -1, needed, slots), *([needed] * (needed >= 0)))]
    return recompute_on_need(graph, dict.fromkeys(kept, len(graph.backward) + 1), variants, retain)


def _chain(graph: TrainingGraph) -> list[int]:
    """The nodes of a graph that is a chain, without intermediates and the loss."""
    nodes = [number for number, node in enumerate(graph.forward) if node.creator is None]
    for before, number in zip([-1, *nodes], nodes, strict=False):
        inputs = graph.forward[number].inputs
        if inputs != (() if before < 0 else (before,)):
            name, reads = graph.forward[number].name, ", ".join(graph.forward[k].name for k in inputs) or "nothing"
            raise InputError(f"revolve: every node must read the one before it, but {name!r} reads {reads}")
    return nodes[:-1]


def _splits(longest: int, slots: int) -> Ints:
    """`splits[s, l]`: how far the next checkpoint is when l steps are to be reversed with s free ones; 0 for none.

    The least number of steps to run again is cost[s, l] = min over j of j + cost[s - 1, l - j] + cost[s, j].
    """
    steps = np.arange(longest + 1)
    cost = np.zeros((slots + 1, longest + 1), dtype=np.int64)
    splits = np.zeros_like(cost)
    cost[0] = steps * (steps - 1) // 2
    for free in range(1, slots + 1):
        for length in range(2, longest + 1):
            first = steps[1:length]
            total = first + cost[free - 1, length - first] + cost[free, first]
            best = int(total.argmin())
            splits[free, length], cost[free, length] = best + 1, total[best]
    return splits


def _checkpoints(splits: Ints, start: int, needed: int, slots: int) -> list[int]:
    """The places that are kept between place `start`, which is there, and place `needed`."""
    chosen = []
    while slots and (step := int(splits[slots, needed + 1 - start])):
        start += step
        slots -= 1
        chosen.append(start)
    return chosen


def greedy_eviction(graph: TrainingGraph, budget_bytes: int) -> Decisions | None:
    """Starts from `store_all` and drops what is cheapest to recompute per byte, until all fits; None if it can't.

    Every run takes the fastest implementation that fits; the variants are those of `lean_variants`.
    """
    keeper = Keeper(graph, budget_bytes)
    everything = np.ones(len(graph.forward), dtype=np.bool_)
    keep = evicted(keeper, KeepSet.just_in_time(everything, lean_variants(graph)))
    return None if keeper.state(keep).outcome.overflow_bytes > 0 else keeper.decide(keep)


def _defaults(graph: TrainingGraph) -> Ints:
    return np.zeros(len(graph.backward), dtype=np.int64)
