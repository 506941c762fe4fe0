"""Stretches: when each tensor of a keep-set is there. A keep-set that differs in little is derived from its neighbour.

All of a step lies on one line of moments: stage after stage (the forward pass is stage 0), in each stage the forward
nodes in their order and then the stage's backward node. What a tensor adds to a memory row is then found by comparing
moments: it is charged from the moment at which it is there until the one at which it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.training.graph import TrainingGraph

__all__ = ["RUNS", "THERE", "JustInTime", "KeepSet", "Move", "Stretches"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_GONE, THERE, RUNS, _TURN = 0, 1, 2, 3
"""A node's turn takes three moments: what was wanted up to the turn before is gone, its tensor is there, it runs."""
_NO_TENSOR = 1
"""A moment before all nodes: there is always something that came and went."""


@dataclass(frozen=True)
class KeepSet:
    """`kept[i]`: bool, x_i is kept after the forward pass. `dropped[i]`: bool, it is not held over its longest gap.

    `variant[b]`: int64, the implementation of backward node b. `lead[i]`: int64, by how many stages x_i is recomputed
    before it is wanted, 0 for just in time: an earlier stage may have room for what it takes to make it.
    `offloaded[i]`: bool, x_i, which is kept, spends the time between its last forward and its first backward use on the
    host; None where nothing does.
    """

    kept: Mask
    dropped: Mask
    variant: Ints
    lead: Ints
    offloaded: Mask | None = None

    @classmethod
    def just_in_time(cls, kept: Mask, variant: Ints) -> KeepSet:
        """Nothing is dropped that was kept or recomputed once, and all is recomputed when it is wanted."""
        return cls(kept, np.zeros_like(kept), variant, np.zeros(len(kept), dtype=np.int64))


@dataclass(frozen=True)
class Move:
    """How a keep-set differs from another: tensors that are kept or dropped where they were not, or the reverse.

    `variants`: backward nodes with their new variants. `leads`: tensors with their new leads. `offloaded`: tensors that
    are kept on the host where they were not, or the reverse.
    """

    kept: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    variants: tuple[tuple[int, int], ...] = ()
    leads: tuple[tuple[int, int], ...] = ()
    offloaded: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stretches:
    """A keep-set in its plainest form, and when each tensor is there. Its arrays and lists aren't to be changed.

    `needed[i]`: the stages whose backward nodes read x_i, ascending. `runs[i]`: the stages that recompute it, at most
    two. `moments`: int64, shape (4, nodes + 1): the moments at which each tensor is there for its first and its second
    stretch, then those at which it is gone, 0 for no stretch. The last column stands for no tensor.
    """

    keep: KeepSet
    needed: list[tuple[int, ...]]
    runs: list[tuple[int, ...]]
    moments: Ints


class JustInTime:
    """Recomputes what isn't kept when it is first wanted, or so much sooner, and holds everything up to its last use.

    `last_use[i]`: the last forward node that reads x_i, i itself if none does. `stage_length`: moments of a stage.
    """

    def __init__(self, graph: TrainingGraph) -> None:
        self._nodes = len(graph.forward)
        self._width = self._nodes + 1
        self.stage_length = _TURN * self._width
        self._made = [node.creator is not None for node in graph.forward]
        reads = [() if made else node.inputs for node, made in zip(graph.forward, self._made, strict=True)]
        self._inputs = [sum(1 << source for source in set(inputs)) for inputs in reads]
        self._users: list[list[int]] = [[] for _ in reads]
        for user, inputs in enumerate(reads):
            for source in set(inputs):
                self._users[source].append(user)
        self._plain = [not made and number != graph.loss for number, made in enumerate(self._made)]
        self._needs_of = [[variant.needs for variant in node.variants] for node in graph.backward]
        self.last_use = graph.last_reader.tolist()
        self._after_last_use = [_TURN * (node + 1) + _GONE for node in self.last_use]
        self._variant = b""
        self._needed: list[tuple[int, ...]] = []

    def moment(self, stage: Ints, node: int | Ints) -> Ints:
        """The moment at which a node runs at a stage; the stage's backward node is numbered after the forward ones."""
        return (stage * self._width + node) * _TURN + RUNS

    def moment_of(self, stage: int, node: int) -> int:
        """`moment` of plain numbers."""
        return (stage * self._width + node) * _TURN + RUNS

    def users(self, node: int) -> list[int]:
        """The forward nodes that read a node's output."""
        return self._users[node]

    def place(self, moments: Ints) -> tuple[Ints, Ints]:
        """The stage of each moment, and the node whose turn it is."""
        return np.divmod(moments // _TURN, self._width)

    def of(self, keep: KeepSet) -> Stretches:
        """The stretches of a keep-set.

        In its plainest form it is without tensors without a use, with exactly the intermediates that the variants
        read, with only those drops that have a gap to be dropped over, and with leads that don't pass what came before.
        """
        away = None if keep.offloaded is None else keep.offloaded.copy()
        keep = KeepSet(keep.kept & self._plain, keep.dropped & self._plain, keep.variant.copy(), keep.lead.copy(), away)
        moments = np.zeros((4, self._nodes + 1), dtype=np.int64)
        moments[:, self._nodes] = _NO_TENSOR
        stretches = Stretches(keep, self._needed_at(keep.variant).copy(), [()] * self._nodes, moments)
        self._settle(stretches, (1 << self._nodes) - 1)
        _only_kept(keep)
        return stretches

    def moved(self, origin: Stretches, move: Move) -> Stretches:
        """The stretches of a neighbour; `origin` itself if the move changes nothing."""
        kept, dropped, variant = origin.keep.kept.copy(), origin.keep.dropped.copy(), origin.keep.variant.copy()
        lead, before = origin.keep.lead.copy(), origin.keep.offloaded
        keep = KeepSet(kept, dropped, variant, lead, None if before is None else before.copy())
        stretches = Stretches(keep, origin.needed.copy(), origin.runs.copy(), origin.moments.copy())
        changed = self._choose_variants(stretches, move.variants)
        for node in move.kept:
            kept[node] = not kept[node]
            changed |= 1 << node
        for node in move.dropped:
            dropped[node] = not dropped[node]
            changed |= 1 << node
        for node, stages in move.leads:
            lead[node] = stages
            changed |= 1 << node
        changed |= _toggle_offloaded(keep, move.offloaded)
        differs = self._settle(stretches, changed)
        _only_kept(keep)
        differs |= before is not None and keep.offloaded is not None and bool((before != keep.offloaded).any())
        differs |= any(variant[number] != origin.keep.variant[number] for number, _ in move.variants)
        return stretches if differs else origin

    def _choose_variants(self, stretches: Stretches, variants: Iterable[tuple[int, int]]) -> int:
        """Other variants read other tensors; returns which tensors that concerns, a bit for each."""
        changed = 0
        for number, chosen in variants:
            needs_of, needed = self._needs_of[number], stretches.needed
            before, stage = needs_of[stretches.keep.variant[number]], number + 1
            for need in before:
                needed[need] = tuple(used for used in needed[need] if used != stage)
                changed |= 1 << need
            for need in needs_of[chosen]:
                needed[need] = tuple(sorted((*needed[need], stage)))
                changed |= 1 << need
            stretches.keep.variant[number] = chosen
        return changed

    def _needed_at(self, variant: Ints) -> list[tuple[int, ...]]:
        """The stages whose backward nodes read each tensor. Remembered: many keep-sets have the same variants."""
        key = variant.tobytes()
        if not self._needed or key != self._variant:
            needed: list[list[int]] = [[] for _ in range(self._nodes)]
            for number, chosen in enumerate(variant.tolist()):
                for need in self._needs_of[number][chosen]:
                    needed[need].append(number + 1)
            self._variant, self._needed = key, [tuple(stages) for stages in needed]
        return self._needed

    def _settle(self, stretches: Stretches, changed: int) -> bool:
        """Work out the tensors that have changed (a bit for each), and those that change with them; whether any did.

        From the last node to the first: a recomputation uses its inputs at its own stage.
        """
        needed, recomputed = stretches.needed, stretches.runs
        places: list[int] = []
        settled: list[tuple[int, int, int, int]] = []
        while changed:
            node = changed.bit_length() - 1
            changed ^= 1 << node
            uses = needed[node]
            for user in self._users[node]:
                uses += recomputed[user]
            moments, runs = self._settle_one(stretches, node, uses)
            places.append(node)
            settled.append(moments)
            if runs != recomputed[node]:
                recomputed[node] = runs
                changed |= self._inputs[node]
        after = np.array(settled, dtype=np.int64).T
        if (stretches.moments[:, places] == after).all():
            return False
        stretches.moments[:, places] = after
        return True

    def _settle_one(
        self, stretches: Stretches, node: int, uses: tuple[int, ...]
    ) -> tuple[tuple[int, int, int, int], tuple[int, ...]]:
        """The moments of one tensor with the given stages of use, and the stages that recompute it."""
        keep, a_stage = stretches.keep, self.stage_length
        kept, dropped, lead = keep.kept, keep.dropped, keep.lead
        ahead = int(lead[node])
        lead[node] = 0
        if not uses:
            kept[node] = dropped[node] = False
            return (0, 0, 0, 0), ()
        runs: tuple[int, ...] = ()
        first, own_turn = min(uses), _TURN * node + THERE
        if self._made[node]:
            kept[node] = True
        if kept[node]:
            there = self._after_last_use[node] + THERE
        else:
            run = max(first - ahead, 1)
            lead[node] = first - run
            there, runs = run * a_stage + own_turn, (run,)
        gone = self._gone(stretches, node, max(uses))
        if dropped[node]:
            gap = _longest_gap(uses)
            if gap is not None:
                run = max(gap[1] - ahead, gap[0] + 1)
                lead[node] = max(lead[node], gap[1] - run)
                return (there, run * a_stage + own_turn, self._gone(stretches, node, gap[0]), gone), (*runs, run)
            dropped[node] = False
        return (there, 0, gone, 0), runs

    def _gone(self, stretches: Stretches, node: int, last: int) -> int:
        """The moment after the last use: a tensor that only a recomputation used is gone when backward runs."""
        is_read = last in stretches.needed[node]
        return last * self.stage_length + (self.stage_length if is_read else self._after_last_use[node])


def _toggle_offloaded(keep: KeepSet, nodes: Iterable[int]) -> int:
    """Offload tensors, which are kept then, or don't; returns which have changed, a bit for each."""
    changed = 0
    offloaded = keep.offloaded
    if offloaded is None:
        return changed
    for node in nodes:
        offloaded[node] = not offloaded[node]
        if offloaded[node]:
            keep.kept[node], keep.dropped[node] = True, False
        changed |= 1 << node
    return changed


def _only_kept(keep: KeepSet) -> None:
    """Nothing is offloaded but what is kept all along."""
    if keep.offloaded is not None:
        np.logical_and(keep.offloaded, keep.kept & ~keep.dropped, out=keep.offloaded)


def _longest_gap(uses: Iterable[int]) -> tuple[int, int] | None:
    """The two stages around the longest gap between uses, None where there is none worth a name."""
    order = sorted(uses)
    longest, around, before = 1, None, order[0]
    for stage in order:
        if stage - before > longest:
            longest, around = stage - before, (before, stage)
        before = stage
    return around
