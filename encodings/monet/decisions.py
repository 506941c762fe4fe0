"""Decisions: what a MONeT plan decides, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.training.graph import Implementation, TrainingGraph

__all__ = ["Decisions", "implementations_of"]


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

    Raises `InputError` where a shape is wrong or an implementation doesn't exist.
    """

    stored: NDArray[np.bool_]
    recomputed: NDArray[np.bool_]
    in_place: NDArray[np.bool_]
    forward_implementation: NDArray[np.int64]
    variant: NDArray[np.int64]
    backward_implementation: NDArray[np.int64]

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

    def run(self, graph: TrainingGraph, stage: int, node: int) -> Implementation:
        """How a forward node runs in a stage."""
        choices = implementations_of(graph, node, stage, bool(self.in_place[stage, node]))
        return choices[int(self.forward_implementation[stage, node])]

    def backward_run(self, graph: TrainingGraph, number: int) -> Implementation:
        """How a backward node runs."""
        variant = graph.backward[number].variants[int(self.variant[number])]
        return variant.implementations[int(self.backward_implementation[number])]


def implementations_of(graph: TrainingGraph, node: int, stage: int, in_place: bool) -> tuple[Implementation, ...]:
    """What a run of a forward node may choose from: in place, again, or for the first time."""
    op = graph.forward[node]
    return op.in_place if in_place else (op.again if stage and op.again else op.implementations)
