"""Keep-sets: plans in which tensors are kept from the forward pass or recomputed, just in time.

A keep-set fixes a whole plan. What isn't kept is recomputed at the first stage that wants it, for a backward node or
for another recomputation, and stays until its last use; a tensor that is `dropped` doesn't stay over the longest gap
between two uses, and is recomputed after it. Operators run in place where nobody wants their input any more, and each
runs in the fastest way for which the budget leaves room. Evaluating a keep-set costs array operations on a few hundred
tensors, so that a search can look at a thousand a second and more; `Keeper.decide` spells one out as `Decisions`, for
`evaluate` and the replay to judge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planwright.encodings.monet.decisions import Decisions
from planwright.encodings.monet.menus import Choice, Menu, best_of, menus_of
from planwright.encodings.monet.ways import again_options, backward_options, forward_options
from planwright.profiles.training_graph import TrainingGraph

__all__ = ["KeepSet", "Keeper", "Outcome"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NEVER = 1 << 30


@dataclass(frozen=True)
class KeepSet:
    """`kept[i]`: bool, x_i is kept after the forward pass. `dropped[i]`: bool, it is not held over its longest gap.

    `variant[b]`: int64, the implementation of backward node b.
    """

    kept: Mask
    dropped: Mask
    variant: Ints


@dataclass(frozen=True)
class Outcome:
    """What a keep-set comes to: the step's cost, and by how much its worst operator passes the budget (0: fits)."""

    cost_s: float
    overflow_bytes: float


@dataclass(frozen=True)
class _Stretch:
    """When each tensor is there, once; int64 per forward node, NEVER and 0 where it isn't.

    `run[i]`: the stage at which x_i is recomputed, NEVER if it is kept from the forward pass. `start[i]`, `last[i]`:
    the first and the last stage at which it is there.
    """

    run: Ints
    start: Ints
    last: Ints


@dataclass(frozen=True)
class _Steps:
    """Steps of one kind: the node that runs, its stage, the best choice of a way, and the bytes that it lacks."""

    node: Ints
    stage: Ints
    choice: Choice


class Keeper:
    """Evaluates keep-sets of one graph under one budget."""

    def __init__(self, graph: TrainingGraph, budget_bytes: int) -> None:
        self.graph = graph
        self.budget_bytes = float(budget_bytes)
        nodes, stages = len(graph.forward), len(graph.backward) + 1
        self._nodes, self._stages = nodes, stages
        self._size = graph.output_bytes.astype(np.float64)
        self._inputs = [node.inputs for node in graph.forward]
        self._plain = np.array([node.creator is None for node in graph.forward])
        self._plain[graph.loss] = False
        self._run_nodes = np.append(np.flatnonzero(self._plain), graph.loss)
        self._made_nodes = np.flatnonzero([node.creator is not None for node in graph.forward])
        self._local = graph.local
        self._forward_base = graph.fixed_bytes + self._size + self._local @ self._size
        self._last_use = np.array([self._local[:, node].nonzero()[0].max(initial=node) for node in range(nodes)])
        fixed = graph.gradient_bytes + np.array([float(node.fixed_bytes) for node in graph.backward])
        self._recompute_base = fixed
        self._backward_base = fixed + np.array([node.output_bytes for node in graph.backward])
        self._over = np.array([_overwrites(graph, node, self._last_use) for node in range(nodes)])
        self._first = menus_of([forward_options(graph, node) for node in range(nodes)])
        self._again = menus_of([again_options(graph, node) for node in range(nodes)])
        self._backward = _backward_menus(graph)
        self._read_table = _read_table(graph)
        self._needs_of = [[variant.needs for variant in node.variants] for node in graph.backward]
        self._needed_key, self._needed = b"", [[0]]

    # -- the public door ----------------------------------------------------------------------------------------------

    def assess(self, keep: KeepSet) -> tuple[KeepSet, Outcome]:
        """The keep-set in its plainest form, and what it comes to.

        Plain: without tensors that nobody wants, with exactly the intermediates that the variants read, and with only
        those drops that have a gap to be dropped over.
        """
        reads = self._reads(keep.variant)
        kept = np.where(self._plain, keep.kept, reads.any(axis=0))
        kept[self.graph.loss] = False
        stretches = self._stretches(kept, keep.dropped & self._plain, keep.variant)
        once, twice = stretches
        plain = KeepSet(kept & (once.last > 0), twice.last > 0, keep.variant)
        steps = self._steps(plain, stretches, reads)
        cost_s = sum(float(its.choice.duration_s.sum()) for its in steps)
        overflow_bytes = max(float(its.choice.lack.max(initial=0.0)) for its in steps)
        return plain, Outcome(cost_s, overflow_bytes)

    def decide(self, keep: KeepSet) -> Decisions:
        """The plan of a keep-set in its plainest form, spelled out."""
        stretches = self._stretches(keep.kept, keep.dropped, keep.variant)
        once, twice = stretches
        forward, made, again, backward = self._steps(keep, stretches, self._reads(keep.variant))
        shape = (self._stages, self._nodes)
        recomputed, in_place = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
        forward_way = np.zeros(shape, dtype=np.int64)
        for its, menus in ((forward, self._first), (made, self._first), (again, self._again)):
            recomputed[its.stage, its.node] = True
            in_place[its.stage, its.node] = its.choice.in_place
            forward_way[its.stage, its.node] = its.choice.ways(menus, its.node)
        stage = np.arange(self._stages + 1)[:, None]
        stored = np.zeros((self._stages + 1, self._nodes), dtype=np.bool_)
        for stretch in (once, twice):
            since = np.where(stretch.run == NEVER, stretch.start, stretch.run + 1)
            stored |= (stage >= since) & (stage <= stretch.last)
        backward_way = np.array(
            [
                self._backward[variant].options[number][pick].way
                for number, (variant, pick) in enumerate(
                    zip(keep.variant.tolist(), backward.choice.pick.tolist(), strict=True)
                )
            ],
            dtype=np.int64,
        )
        return Decisions(stored, recomputed, in_place, forward_way, keep.variant, backward_way)

    # -- when ---------------------------------------------------------------------------------------------------------

    def _stretches(self, kept: Mask, dropped: Mask, variant: Ints) -> tuple[_Stretch, _Stretch]:
        """From the last node to the first: a recomputation uses its inputs at its own stage."""
        needed = self._needed_at(variant)
        first = [stages[0] if stages else NEVER for stages in needed]
        last = [stages[-1] if stages else 0 for stages in needed]
        uses = {node: list(needed[node]) for node in np.flatnonzero(dropped).tolist()}
        is_kept = kept.tolist()
        split: dict[int, tuple[int, int]] = {}
        for node in range(self._nodes - 1, -1, -1):
            if first[node] == NEVER:
                continue
            runs = [] if is_kept[node] else [first[node]]
            if node in uses:
                gap = _longest_gap(uses[node])
                if gap is not None:
                    split[node] = gap
                    runs.append(gap[1])
            for run in runs:
                for source in self._inputs[node]:
                    if run < first[source]:
                        first[source] = run
                    if run > last[source]:
                        last[source] = run
                    if source in uses:
                        uses[source].append(run)
        return _as_stretches(kept, np.array(first), np.array(last), split)

    def _needed_at(self, variant: Ints) -> list[list[int]]:
        """The stages whose backward nodes read each tensor, ascending. Most moves of a search don't change them."""
        key = variant.tobytes()
        if key != self._needed_key:
            needed: list[list[int]] = [[] for _ in range(self._nodes)]
            for number, chosen in enumerate(variant.tolist()):
                for need in self._needs_of[number][chosen]:
                    needed[need].append(number + 1)
            self._needed_key, self._needed = key, needed
        return self._needed

    def _reads(self, variant: Ints) -> Mask:
        """Which tensors each backward node reads; bool, (backward, nodes)."""
        return np.asarray(self._read_table[np.arange(self._stages - 1), variant])

    # -- the steps ----------------------------------------------------------------------------------------------------

    def _steps(
        self, keep: KeepSet, stretches: tuple[_Stretch, _Stretch], reads: Mask
    ) -> tuple[_Steps, _Steps, _Steps, _Steps]:
        """The forward pass, the intermediates that it makes, the recomputations, the backward pass."""
        forward, made = self._forward_pass(keep)
        return forward, made, self._recomputations(stretches, reads), self._backward_pass(keep, stretches, reads)

    def _forward_pass(self, keep: KeepSet) -> tuple[_Steps, _Steps]:
        """Every node once, in place where its input is not kept; an intermediate runs as its creator does."""
        held = np.bincount(self._last_use[keep.kept], weights=self._size[keep.kept], minlength=self._nodes)
        memory = self._forward_base + np.concatenate([[0.0], held.cumsum()[: self._nodes - 1]])
        room = self.budget_bytes - memory
        nodes = self._run_nodes
        choice = best_of(self._first, nodes, room[nodes], (self._over[nodes] >= 0) & ~keep.kept[self._over[nodes]])
        runs_in_place = np.zeros(self._nodes, dtype=np.bool_)
        runs_in_place[nodes] = choice.in_place
        made = self._made_nodes[keep.kept[self._made_nodes]]
        creators = np.array([self.graph.forward[node].creator for node in made.tolist()], dtype=np.int64)
        may = runs_in_place[creators] & (self._over[made] >= 0)
        # The measured workspace in place gives back an input that the row doesn't hold any more: not a second time.
        room_made = room[made] - np.where(may, self._size[self._over[made]], 0.0)
        making = best_of(self._first, made, room_made, may, must=True)
        forward = _Steps(nodes, np.zeros(len(nodes), dtype=np.int64), choice)
        return forward, _Steps(made, np.zeros(len(made), dtype=np.int64), making)

    def _recomputations(self, stretches: tuple[_Stretch, _Stretch], reads: Mask) -> _Steps:
        """Every recomputed node at its stage, in place where this is its input's last use."""
        nodes = np.concatenate([np.flatnonzero((its.run != NEVER) & self._plain) for its in stretches])
        stage = np.concatenate([its.run[(its.run != NEVER) & self._plain] for its in stretches])
        if not len(nodes):
            return _Steps(nodes, stage, best_of(self._again, nodes, np.empty(0), np.empty(0, dtype=np.bool_)))
        at = stage[:, None]
        later = np.zeros((len(nodes), self._nodes), dtype=np.bool_)  # there, and wanted after this stage
        there = later.copy()
        before = later.copy()  # there when the stage begins
        for its in stretches:
            started = its.start <= at
            later |= started & (its.last > at)
            there |= started & (its.last >= at)
            before |= (its.start + (its.run != NEVER) <= at) & (its.last >= at)
        after = later | (there & reads[stage - 1])
        row = np.arange(len(nodes))
        held = np.where(np.arange(self._nodes) < nodes[:, None], after | self._local[nodes], before)
        held[row, nodes] = True
        memory = self._recompute_base[stage - 1] + held @ self._size
        over = self._over[nodes]
        choice = best_of(self._again, nodes, self.budget_bytes - memory, (over >= 0) & ~after[row, over])
        return _Steps(nodes, stage, choice)

    def _backward_pass(self, keep: KeepSet, stretches: tuple[_Stretch, _Stretch], reads: Mask) -> _Steps:
        """Every backward node, with what is held for it and for later ones."""
        change = np.zeros(self._stages + 2)
        for its in stretches:
            used = np.flatnonzero(its.last > 0)
            start, last = its.start[used], its.last[used]
            end = last - ~reads[last - 1, used]  # a tensor that only a recomputation used is gone when backward runs
            change += np.bincount(start, weights=self._size[used], minlength=self._stages + 2)
            change -= np.bincount(end + 1, weights=self._size[used], minlength=self._stages + 2)
        room = self.budget_bytes - self._backward_base - change.cumsum()[1 : self._stages]
        numbers = np.arange(self._stages - 1)
        choice = Choice.empty(len(numbers))
        for variant, menu in enumerate(self._backward):
            rows = np.flatnonzero(keep.variant == variant)
            choice.put(rows, menu.choose(rows, room[rows]))
        return _Steps(numbers, numbers + 1, choice)


def _longest_gap(uses: list[int]) -> tuple[int, int] | None:
    """The two stages around the longest gap between uses, None where there is none worth a name."""
    longest, around, before = 1, None, min(uses)
    for stage in sorted(uses):
        if stage - before > longest:
            longest, around = stage - before, (before, stage)
        before = stage
    return around


def _overwrites(graph: TrainingGraph, node: int, last_use: Ints) -> int:
    """The input that a node may run in place over, -1 if none: nobody may want it after the node."""
    over = graph.forward[node].overwrites
    user = node if graph.forward[node].creator is None else graph.forward[node].creator
    return -1 if over is None or last_use[over] != user else over


def _as_stretches(kept: Mask, first: Ints, last: Ints, split: dict[int, tuple[int, int]]) -> tuple[_Stretch, _Stretch]:
    """The stretch of each tensor, in two where it is dropped over a gap."""
    run = np.where(kept, NEVER, first)
    start = np.where(kept & (last > 0), 1, first)
    run_again = np.full(len(first), NEVER)
    last_again = np.zeros(len(first), dtype=np.int64)
    upto = last.copy()
    for node, (before, after) in split.items():
        run_again[node], last_again[node], upto[node] = after, last[node], before
    return _Stretch(run, start, upto), _Stretch(run_again, run_again, last_again)


def _backward_menus(graph: TrainingGraph) -> list[Menu]:
    """A menu for each variant number; nodes without that variant get their first, which is never asked for."""
    options = [backward_options(node) for node in graph.backward]
    most = max(len(node.variants) for node in graph.backward)
    return [
        Menu.of([[option for option in its if option.variant == variant] or its[:1] for its in options])
        for variant in range(most)
    ]


def _read_table(graph: TrainingGraph) -> Mask:
    """`table[b, v, i]`: whether variant v of backward node b reads x_i."""
    most = max(len(node.variants) for node in graph.backward)
    table = np.zeros((len(graph.backward), most, len(graph.forward)), dtype=np.bool_)
    for number, node in enumerate(graph.backward):
        for variant, its in enumerate(node.variants):
            table[number, variant, list(its.needs)] = True
    return table
