"""From what is kept after the forward pass to decisions: what a backward node misses is recomputed for it; and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions, implementations_of
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.search.stretches import KeepSet
from gapless.errors import InputError
from gapless.profiles.training.graph import Implementation, TrainingGraph

__all__ = [
    "Recomputation",
    "fit_implementations",
    "just_in_time",
    "keep_set_of",
    "last_needs",
    "recompute_on_need",
    "tightened",
]

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Recomputation:
    """What runs again in one stage: `needed` was missing, mostly for its backward node; `ran` (increasing) makes it.

    `available`: what was there when the stage began.
    """

    stage: int
    needed: tuple[int, ...]
    ran: tuple[int, ...]
    available: frozenset[int]


def just_in_time(graph: TrainingGraph, kept_after_forward: Mask, variants: Ints) -> Decisions:
    """Decisions that keep a set after the forward pass, recompute on the first need and keep to the last need.

    `kept_after_forward`: bool, shape (V,); `variants`: int64, shape (backward,). A missing tensor is recomputed from
    what is there in the stage that needs it first; all that runs for it is kept as long as backward nodes will need it.
    A kept tensor stays as long as anything reads it, and is not kept if nothing does. Intermediates are made whenever
    their creator runs and a backward node will need them. Operators run in place wherever nothing needs their input any
    more, each as by default (see `fit_implementations`). The decisions can be executed, whatever the set.
    """
    nodes, stages = len(graph.forward), len(graph.backward) + 1
    if kept_after_forward.shape != (nodes,) or variants.shape != (stages - 1,):
        raise InputError(f"retention: must have a kept flag for {nodes} nodes and a variant for {stages - 1}")
    last, kept = last_needs(graph, variants), dict.fromkeys(np.flatnonzero(kept_after_forward).tolist(), stages)
    return recompute_on_need(graph, kept, variants, lambda found: {node: last[node] for node in found.ran})


def recompute_on_need(
    graph: TrainingGraph,
    kept: Mapping[int, int],
    variants: Ints,
    retain: Callable[[Recomputation], Mapping[int, int]],
    beside_needs: Mapping[int, Iterable[int]] | None = None,
) -> Decisions:
    """As `just_in_time`, with another rule for what is kept and how long.

    `kept`: which nodes stay available after the forward pass, and up to which stage; `retain` says it of those that ran
    in a recomputation. They take memory only up to the last stage that reads them. `beside_needs`: what is to be there
    in a stage although its backward node doesn't read it.
    """
    nodes, stages = len(graph.forward), len(graph.backward) + 1
    last = last_needs(graph, variants)
    beside = np.array([node.creator is not None for node in graph.forward])
    runs = np.zeros((stages, nodes), dtype=np.bool_)
    runs[0] = ~beside
    runs[0, list(kept)] = True
    reads = np.zeros((stages, nodes), dtype=np.bool_)
    until = dict(kept)
    for stage in range(1, stages):
        needs = graph.backward[stage - 1].variants[int(variants[stage - 1])].needs
        reads[stage, list(needs)] = True
        aims = (*needs, *(beside_needs or {}).get(stage, ()))
        missing = tuple(aim for aim in dict.fromkeys(aims) if until.get(aim, -1) < stage)
        if missing:
            available = frozenset(node for node, end in until.items() if end >= stage)
            found = Recomputation(stage, missing, _to_run(graph, missing, available, stage, last), available)
            runs[stage, list(found.ran)] = True
            for node in found.ran:
                reads[stage, list(graph.forward[node].sources)] = True
            until.update(retain(found))
    stored = _stored_for(reads, runs)
    runs &= ~beside | stored[1:] | reads
    return Decisions(
        stored=stored,
        recomputed=runs,
        in_place=_in_place(graph, runs, stored, variants),
        forward_implementation=np.zeros((stages, nodes), dtype=np.int64),
        variant=variants.astype(np.int64),
        backward_implementation=np.zeros(stages - 1, dtype=np.int64),
    )


def _stored_for(reads: Mask, runs: Mask) -> Mask:
    """Where a tensor must be there when a stage begins: read in it or later, and not made anew before."""
    stored = np.zeros((len(runs) + 1, runs.shape[1]), dtype=np.bool_)
    for stage in range(len(runs) - 1, 0, -1):
        stored[stage] = (reads[stage] | stored[stage + 1]) & ~runs[stage]
    return stored


def tightened(graph: TrainingGraph, decisions: Decisions) -> Decisions:
    """The same, with each tensor kept only as long as it is still read, and the loss run once: as schedules are."""
    runs, reads = decisions.recomputed.copy(), np.zeros_like(decisions.recomputed)
    runs[1:, graph.loss] = False
    for stage, node in np.argwhere(runs).tolist():
        reads[stage, list(graph.forward[node].sources)] = True
    for stage, (backward, variant) in enumerate(zip(graph.backward, decisions.variant.tolist(), strict=True), 1):
        reads[stage, list(backward.variants[variant].needs)] = True
    implementation = decisions.forward_implementation
    if decisions.recomputed[1:, graph.loss].any():
        implementation = np.where(runs, implementation, 0)
    return replace(
        decisions, stored=_stored_for(reads, runs), recomputed=runs, in_place=decisions.in_place & runs,
        forward_implementation=implementation,
    )  # fmt: skip


def keep_set_of(graph: TrainingGraph, decisions: Decisions) -> KeepSet:
    """The keep-set that decisions follow, or come closest to: where another search can begin."""
    tight = tightened(graph, decisions)
    kept, again = tight.stored[1].copy(), tight.recomputed[1:].sum(axis=0)
    kept[graph.loss] = True  # its gradient follows
    lead, made_in = np.zeros(len(graph.forward), dtype=np.int64), dict[int, int]()  # and not read yet
    for stage, (backward, variant) in enumerate(zip(graph.backward, tight.variant.tolist(), strict=True), 1):
        for node in (*np.flatnonzero(tight.recomputed[stage]).tolist(), None):
            read = backward.variants[variant].needs if node is None else graph.forward[node].sources
            for tensor in made_in.keys() & read:
                lead[tensor] = max(lead[tensor], stage - made_in.pop(tensor))
            if node is not None:
                made_in[node] = stage
    offloaded = None
    if decisions.copies:
        offloaded = np.zeros(len(kept), dtype=np.bool_)
        offloaded[[copy.node for copy in decisions.copies if copy.node < len(kept)]] = True
    return KeepSet(kept, again > np.where(kept, 0, 1), tight.variant, lead, offloaded)


def last_needs(graph: TrainingGraph, variants: Ints) -> list[int]:
    """The last stage whose backward node needs each forward tensor, -1 where none does."""
    last = [-1] * len(graph.forward)
    for number, (node, variant) in enumerate(zip(graph.backward, variants.tolist(), strict=True)):
        for need in node.variants[variant].needs:
            last[need] = number + 1
    return last


def _to_run(
    graph: TrainingGraph, missing: Iterable[int], available: frozenset[int], stage: int, last: list[int]
) -> tuple[int, ...]:
    """The nodes that make what is missing from what is available, with the intermediates that will be needed."""
    ran: set[int] = set()
    open_nodes = list(missing)
    while open_nodes:
        node = open_nodes.pop()
        if node in ran:
            continue
        ran.add(node)
        creator = graph.forward[node].creator
        if creator is not None:
            open_nodes.append(creator)  # runs again even where its output is there
        else:
            open_nodes += [source for source in graph.forward[node].inputs if source not in available]
    for node, op in enumerate(graph.forward):
        if op.creator in ran and last[node] >= stage and node not in available:
            ran.add(node)
    return tuple(sorted(ran))


def _in_place(graph: TrainingGraph, runs: Mask, stored: Mask, variants: Ints) -> Mask:
    """Where a run may overwrite its input: it isn't kept, and no later run or backward node of the stage reads it."""
    in_place = np.zeros_like(runs)
    readers: list[list[int]] = [[] for _ in graph.forward]
    for node in range(len(graph.forward)):
        for source in graph.forward[node].sources:
            readers[source].append(node)
    needed = np.zeros_like(runs)
    for number, (backward, variant) in enumerate(zip(graph.backward, variants.tolist(), strict=True)):
        needed[number + 1, list(backward.variants[variant].needs)] = True
    for node, op in enumerate(graph.forward):
        if op.overwrites is None:
            continue
        if op.creator is not None:
            in_place[:, node] = runs[:, node] & in_place[:, op.creator]
            continue
        over = op.overwrites
        later = [reader for reader in readers[over] if reader > node]
        free = ~stored[1:, over] & ~needed[:, over] & ~runs[:, later].any(axis=1)
        in_place[:, node] = runs[:, node] & free
    return in_place


def fit_implementations(graph: TrainingGraph, decisions: Decisions, budget_bytes: int) -> Decisions:
    """The same decisions with the fastest implementation of every run that its memory row allows, else the smallest.

    An implementation changes no other row, so this is the best choice of implementations for these decisions.
    """
    found = evaluate(graph, decisions)
    forward_implementation, backward_implementation = (
        decisions.forward_implementation.copy(),
        decisions.backward_implementation.copy(),
    )
    for stage, node in np.argwhere(decisions.recomputed).tolist():
        choices = len(graph.forward[node].implementations)
        if choices > 1:
            in_place = bool(decisions.in_place[stage, node])
            impls = implementations_of(graph, node, stage, in_place)
            row_bytes = int(found.recompute_bytes[stage, node] if stage else found.forward_bytes[node])
            forward_implementation[stage, node] = _fitting(
                impls, int(forward_implementation[stage, node]), budget_bytes - row_bytes
            )
    for number, backward in enumerate(graph.backward):
        impls = backward.variants[int(decisions.variant[number])].implementations
        spare_bytes = budget_bytes - int(found.backward_bytes[number])
        backward_implementation[number] = _fitting(impls, int(backward_implementation[number]), spare_bytes)
    return replace(
        decisions, forward_implementation=forward_implementation, backward_implementation=backward_implementation
    )


def _fitting(impls: Iterable[Implementation], current: int, spare_bytes: int) -> int:
    """The fastest implementation that takes at most `spare_bytes` more than the current one, else the smallest."""
    impls = list(impls)
    limit = impls[current].workspace_bytes + spare_bytes
    fits = [number for number, impl in enumerate(impls) if impl.workspace_bytes <= limit]
    if fits:
        return min(fits, key=lambda number: (impls[number].duration_s, impls[number].workspace_bytes))
    return min(range(len(impls)), key=lambda number: (impls[number].workspace_bytes, impls[number].duration_s))
