"""Parts of MONeT's choices: the same encoding on a graph that has lost some of its implementations (section 4.6)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from planwright.encodings.monet.decisions import Decisions
from planwright.encodings.monet.retention import fit_ways
from planwright.errors import InputError
from planwright.profiles.training_graph import BackwardNode, ForwardNode, TrainingGraph, Variant

__all__ = ["ABLATIONS", "ablation", "greedy_ways", "restrict"]

ABLATIONS: Mapping[str, Mapping[str, bool]] = {
    "monet": {"conv": True, "output": True, "intermediate": True},
    "monet-noop": {"conv": False, "output": False, "intermediate": False},
    "conv": {"conv": True, "output": False, "intermediate": False},
    "output": {"conv": False, "output": True, "intermediate": False},
    "intermediate": {"conv": False, "output": False, "intermediate": True},
}
"""What each ablation of the thesis may choose; all of them may run in place."""


def ablation(graph: TrainingGraph, name: str) -> TrainingGraph:
    """The graph with the choices of one of `ABLATIONS`; raises `InputError` for another name."""
    if name not in ABLATIONS:
        close = difflib.get_close_matches(name, ABLATIONS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"ablation must be one of {', '.join(ABLATIONS)}, got {name!r}{hint}")
    return restrict(graph, **ABLATIONS[name])


def restrict(
    graph: TrainingGraph, *, conv: bool = True, output: bool = True, intermediate: bool = True, in_place: bool = True
) -> TrainingGraph:
    """The graph without the choices that are False.

    `conv`: among the ways of an operator; else each runs its first, the default. `output`: backward nodes that need
    their operator's output where the default needs its input. `intermediate`: backward nodes that need an intermediate;
    without them the intermediates are gone and the nodes are numbered anew. `in_place`: to run in place.
    """
    kept = [k for k, node in enumerate(graph.forward) if intermediate or node.creator is None]
    lost = len(graph.forward) - len(kept)
    number = {k: new for new, k in enumerate(kept)}
    number.update({k: k - lost for k in range(len(graph.forward), len(graph.forward) + len(graph.backward))})
    return replace(
        graph,
        forward=tuple(_forward(graph.forward[k], number, conv, in_place) for k in kept),
        backward=tuple(_backward(graph, node, number, conv, output, intermediate) for node in graph.backward),
    )


def greedy_ways(graph: TrainingGraph, decisions: Decisions, budget_bytes: int) -> Decisions:
    """Each run in the fastest way that fits, given all else: the thesis's convolution-optimised baselines.

    `graph` is the restriction that the decisions were made on, but with `conv=True`, which numbers its nodes alike.
    """
    return fit_ways(graph, decisions, budget_bytes)


def _forward(node: ForwardNode, number: Mapping[int, int], conv: bool, in_place: bool) -> ForwardNode:
    count = len(node.ways) if conv else 1
    overwrites = node.overwrites if in_place else None
    return replace(
        node,
        inputs=tuple(number[k] for k in node.inputs),
        ways=node.ways[:count],
        again=node.again[:count],
        overwrites=None if overwrites is None else number[overwrites],
        in_place=() if overwrites is None else node.in_place[:count],
        creator=None if node.creator is None else number[node.creator],
    )


def _backward(
    graph: TrainingGraph, node: BackwardNode, number: Mapping[int, int], conv: bool, output: bool, intermediate: bool
) -> BackwardNode:
    may = {"default": True, "output": output, "intermediate": intermediate}
    variants = [
        replace(
            variant,
            needs=tuple(number[k] for k in variant.needs),
            ways=variant.ways if conv else variant.ways[:1],
        )
        for variant in node.variants
        if may[_kind(graph, node, variant)]
    ]
    if not variants:
        raise InputError(f"backward node {node.name!r}: every variant needs an intermediate, so none is left without")
    return replace(
        node,
        forward=number[node.forward],
        gradients=tuple(number[k] for k in node.gradients),
        variants=tuple(variants),
    )


def _kind(graph: TrainingGraph, node: BackwardNode, variant: Variant) -> str:
    """Whether a variant is activated by an intermediate, by its operator's output, or is as the framework does it."""
    if any(graph.forward[need].creator is not None for need in variant.needs):
        return "intermediate"
    if node.forward in variant.needs and node.forward not in node.variants[0].needs:
        return "output"
    return "default"
