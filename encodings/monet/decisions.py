"""Decisions: what a MONeT plan decides, stage by stage; as arrays on a graph, and as plan files have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from gapless.decision import Decision
from gapless.encodings.monet.offload.copies import Copy
from gapless.errors import InputError
from gapless.io.typed import Stored
from gapless.profiles.training.graph import Implementation, TrainingGraph

__all__ = ["Decisions", "StepDecision", "implementations_of"]


@dataclass(frozen=True)
class Decisions:
    """Which outputs are kept and recomputed, and how every operator runs (MONeT, Table 4.1).

    Stage 0 is the forward pass; stage t > 0 recomputes and then runs backward node t - 1. With V forward nodes and T
    stages (one more than backward nodes):

    `stored[t, i]`: bool, shape (T + 1, V), s in the paper: x_i is there when stage t begins, so row 0 is empty; row
    t + 1 is what is left of it when stage t's backward node runs, in so far as it is still wanted.
    `recomputed[t, i]`: bool, shape (T, V), r: node i runs in stage t; row 0 holds the whole forward pass, with the
    intermediates that are made.
    `in_place[t, i]`: bool, shape (T, V), q: that run overwrites the node's input.
    `forward_implementation[t, i]`: int64, shape (T, V), delta: how that run is done, 0 where there
    is none.
    `variant[b]`, `backward_implementation[b]`: int64, shape (T - 1,), delta-hat: how backward
    node b runs.
    `copies`: the tensors that travel to the host and back meanwhile, in the order in which they leave; `stored` says of
    them what it would say if they stayed. States of an optimiser that aren't among them stay on the device.

    Raises `InputError` where a shape is wrong or an implementation doesn't exist.
    """

    stored: NDArray[np.bool_]
    recomputed: NDArray[np.bool_]
    in_place: NDArray[np.bool_]
    forward_implementation: NDArray[np.int64]
    variant: NDArray[np.int64]
    backward_implementation: NDArray[np.int64]
    copies: tuple[Copy, ...] = ()

    def check_against(self, graph: TrainingGraph) -> None:
        """Raise `InputError` unless shapes, implementations and variants are those of the graph."""
        nodes, stages = len(graph.forward), len(graph.backward) + 1
        shapes = {
            "stored": (stages + 1, nodes),
            "recomputed": (stages, nodes),
            "in_place": (stages, nodes),
            "forward_implementation": (stages, nodes),
            "variant": (stages - 1,),
            "backward_implementation": (stages - 1,),
        }
        for title, shape in shapes.items():
            if getattr(self, title).shape != shape:
                raise InputError(f"decisions: {title} must have shape {shape}, got {getattr(self, title).shape}")
        most = np.array([len(node.implementations) for node in graph.forward])
        if (self.forward_implementation < 0).any() or (self.forward_implementation >= most).any():
            raise InputError("decisions: forward_implementation names an implementation that its node doesn't have")
        for number, node in enumerate(graph.backward):
            variant = int(self.variant[number])
            if not 0 <= variant < len(node.variants):
                raise InputError(f"backward node {node.name!r}: has no variant {variant}")
            if not 0 <= self.backward_implementation[number] < len(node.variants[variant].implementations):
                raise InputError(
                    f"backward node {node.name!r}: has no implementation {self.backward_implementation[number]}"
                )
        cannot = np.array([not node.in_place for node in graph.forward])
        if (self.in_place & cannot).any() or (self.in_place & ~self.recomputed).any():
            raise InputError("decisions: in_place is set for a node that can't or doesn't run in place")
        for copy in self.copies:
            copy.check(graph.loss, int(self.recomputed.sum()) + stages - 1, len(graph.backward))

    def run(self, graph: TrainingGraph, stage: int, node: int) -> Implementation:
        """How a forward node runs in a stage."""
        choices = implementations_of(graph, node, stage, bool(self.in_place[stage, node]))
        return choices[int(self.forward_implementation[stage, node])]

    def backward_run(self, graph: TrainingGraph, number: int) -> Implementation:
        """How a backward node runs."""
        variant = graph.backward[number].variants[int(self.variant[number])]
        return variant.implementations[int(self.backward_implementation[number])]

    @property
    def decision(self) -> StepDecision:
        """For the plan file."""
        there = np.pad(self.stored.astype(np.int8), ((1, 1), (0, 0)))
        node, first = np.nonzero(np.diff(there, axis=0).T > 0)
        last = np.nonzero(np.diff(there, axis=0).T < 0)[1] - 1
        stage, place = np.nonzero(self.recomputed)
        kept = np.stack([node, first, last], axis=1).tolist()
        implementation, in_place = self.forward_implementation[stage, place], self.in_place[stage, place]
        runs = np.stack([stage, place, implementation, in_place], axis=1).tolist()
        backward = zip(self.variant.tolist(), self.backward_implementation.tolist(), strict=True)
        copies = tuple((c.node, c.out_after, c.gone_by, c.back_after, c.needed_by) for c in self.copies)
        return StepDecision(tuple(map(tuple, kept)), tuple(map(tuple, runs)), tuple(backward), copies)


_Rows = Annotated[tuple[tuple[int, int, int], ...], Stored(each="[node, first stage, last stage] in whole numbers")]
_Runs = Annotated[
    tuple[tuple[int, int, int, int], ...], Stored(each="[stage, node, implementation, in place] in whole numbers")
]
_Copies = Annotated[
    tuple[tuple[int, int, int, int, int], ...],
    Stored(each="[node, out after, gone by, back after, needed by] in whole numbers"),
]
_Backward = Annotated[tuple[tuple[int, int], ...], Stored(each="[variant, implementation] in whole numbers")]


@dataclass(frozen=True)
class StepDecision(Decision):
    """`Decisions` in plain numbers: nodes by number, stage 0 is the forward pass, stage t > 0 ends with backward t - 1.

    `kept`: node, first and last stage, of each stretch of stages at whose beginnings a node's output is there.
    `runs`: stage, node, implementation, and 1 if in place, of each run of a forward node. `backward`: variant and
    implementation of each backward node. `copies`: what is offloaded, in the order in which it leaves: the node, or
    what of an optimiser it is, then the runs between which it travels, forward and backward ones counted from 0 in
    their order (`Copy`).
    """

    kept: _Rows
    runs: _Runs
    backward: _Backward
    copies: _Copies = ()

    def on(self, graph: TrainingGraph) -> Decisions:
        """The same on its graph. Raises `InputError` where the graph has no such nodes, stages or implementations."""
        nodes, stages = len(graph.forward), len(graph.backward) + 1
        if len(self.backward) != stages - 1:
            raise InputError(f"decision: backward must have {stages - 1} nodes, got {len(self.backward)}")
        stored = np.zeros((stages + 1, nodes), dtype=np.bool_)
        for node, first, last in self.kept:
            if not (0 <= node < nodes and 0 < first <= last <= stages):
                raise InputError(f"decision: kept: the graph has no [{node}, {first}, {last}]")
            stored[first : last + 1, node] = True
        runs = np.zeros((2, stages, nodes), dtype=np.bool_)
        forward_implementation = np.zeros((stages, nodes), dtype=np.int64)
        for stage, node, implementation, in_place in self.runs:
            if not (0 <= node < nodes and 0 <= stage < stages and 0 <= in_place <= 1):
                raise InputError(f"decision: runs: the graph has no [{stage}, {node}, {implementation}, {in_place}]")
            runs[:, stage, node] = True, in_place
            forward_implementation[stage, node] = implementation
        variant, backward_implementation = np.array(self.backward, dtype=np.int64).reshape(-1, 2).T
        copies = tuple(Copy(*copy) for copy in self.copies)
        found = Decisions(stored, runs[0], runs[1], forward_implementation, variant, backward_implementation, copies)
        found.check_against(graph)
        return found


def implementations_of(graph: TrainingGraph, node: int, stage: int, in_place: bool) -> tuple[Implementation, ...]:
    """What a run of a forward node may choose from: in place, again, or for the first time."""
    op = graph.forward[node]
    return op.in_place if in_place else (op.again if stage and op.again else op.implementations)
