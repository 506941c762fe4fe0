"""Decisions: what a MONeT plan decides, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["Decisions"]


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
    `forward_way[t, i]`: int64, shape (T, V), delta: the way of that run, 0 where the node doesn't run.
    `variant[b]`, `backward_way[b]`: int64, shape (T - 1,), delta-hat: implementation and way of backward node b.

    Raises `InputError` where a shape is wrong or a way doesn't exist.
    """

    stored: NDArray[np.bool_]
    recomputed: NDArray[np.bool_]
    in_place: NDArray[np.bool_]
    forward_way: NDArray[np.int64]
    variant: NDArray[np.int64]
    backward_way: NDArray[np.int64]

    def check_against(self, graph: TrainingGraph) -> None:
        """Raise `InputError` unless shapes, ways and variants are those of the graph."""
        nodes, stages = len(graph.forward), len(graph.backward) + 1
        shapes = {
            "stored": (stages + 1, nodes),
            "recomputed": (stages, nodes),
            "in_place": (stages, nodes),
            "forward_way": (stages, nodes),
            "variant": (stages - 1,),
            "backward_way": (stages - 1,),
        }
        for title, shape in shapes.items():
            if getattr(self, title).shape != shape:
                raise InputError(f"decisions: {title} must have shape {shape}, got {getattr(self, title).shape}")
        most = np.array([len(node.ways) for node in graph.forward])
        if (self.forward_way < 0).any() or (self.forward_way >= most).any():
            raise InputError("decisions: forward_way names a way that its node doesn't have")
        for number, node in enumerate(graph.backward):
            variant = int(self.variant[number])
            if not 0 <= variant < len(node.variants):
                raise InputError(f"backward node {node.name!r}: has no variant {variant}")
            if not 0 <= self.backward_way[number] < len(node.variants[variant].ways):
                raise InputError(f"backward node {node.name!r}: has no way {self.backward_way[number]}")
        cannot = np.array([not node.in_place for node in graph.forward])
        if (self.in_place & cannot).any() or (self.in_place & ~self.recomputed).any():
            raise InputError("decisions: in_place is set for a node that can't or doesn't run in place")
