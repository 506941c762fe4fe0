"""Parts of MONeT's choices: the same encoding on a graph that has lost some of its implementations (section 4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.errors import InputError
from gapless.profiles.training.graph import BackwardNode, ForwardNode, TrainingGraph, Variant

__all__ = ["ABLATIONS", "ablation", "carry_over", "restrict"]

ABLATIONS: Mapping[str, Mapping[str, bool]] = {
    "noop": {"conv": False, "output": False, "intermediate": False},
    "conv": {"conv": True, "output": False, "intermediate": False},
    "output": {"conv": False, "output": True, "intermediate": False},
    "intermediate": {"conv": False, "output": False, "intermediate": True},
}
"""What each ablation of the thesis may choose (Figures 4.5 and A.1); all of them may run in place."""


def ablation(graph: TrainingGraph, name: str) -> TrainingGraph:
    """The graph with the choices of one of `ABLATIONS`."""
    return restrict(graph, **ABLATIONS[name])


def restrict(
    graph: TrainingGraph, *, conv: bool = True, output: bool = True, intermediate: bool = True, in_place: bool = True
) -> TrainingGraph:
    """The graph without the choices that are False.

    `conv`: among the implementations of an operator; else each runs its first, the default. `output`: backward nodes
    that need their operator's output where the default needs its input. `intermediate`: backward nodes that need an
    intermediate; without them the intermediates are gone and the nodes are numbered anew. `in_place`: to run in place.
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


def carry_over(source: TrainingGraph, decisions: Decisions, target: TrainingGraph) -> Decisions:
    """The decisions of one graph on another of the same operators, each run in its first implementation.


    So plans that were made on measurements of their own, with fewer choices, are compared on one profile. Intermediates
    that only the target has are not made. Raises `InputError` where the operators differ, or where a backward node of
    the target has no variant with the needs that the decisions chose.
    """
    number = _same_nodes(source, target)
    stages = len(target.backward) + 1
    stored, recomputed, in_place = (
        np.zeros((rows, len(target.forward)), dtype=np.bool_) for rows in (stages + 1, stages, stages)
    )
    stored[:, number], recomputed[:, number] = decisions.stored, decisions.recomputed
    may = np.array([bool(node.in_place) for node in target.forward])
    in_place[:, number] = decisions.in_place & may[number]
    variant = np.array(
        [
            _same_variant(ours, chosen, theirs, number)
            for ours, chosen, theirs in zip(source.backward, decisions.variant.tolist(), target.backward, strict=True)
        ],
        dtype=np.int64,
    )
    impls = np.zeros_like(recomputed, dtype=np.int64)
    return Decisions(stored, recomputed, in_place, impls, variant, np.zeros_like(variant))


def _same_nodes(source: TrainingGraph, target: TrainingGraph) -> NDArray[np.int64]:
    """The target's node for each of the source: operators in their order, intermediates in that of their creator."""
    ours, theirs = _by_creator(source), _by_creator(target)
    number = dict(zip(ours[None], theirs[None], strict=False))
    for creator, sides in ours.items():
        if creator is not None:
            number.update(zip(sides, theirs.get(number.get(creator), []), strict=False))
    same = len(ours[None]) == len(theirs[None]) and len(source.backward) == len(target.backward)
    for k, node in enumerate(source.forward):
        if not same or k not in number or target.forward[number[k]].op != node.op:
            raise InputError(f"carry_over: {target.name!r} has no node like {k}, {node.name!r}, of {source.name!r}")
    return np.array([number[k] for k in range(len(source.forward))], dtype=np.int64)


def _by_creator(graph: TrainingGraph) -> dict[int | None, list[int]]:
    """The intermediates of each operator; under None, the operators."""
    found: dict[int | None, list[int]] = {None: []}
    for number, node in enumerate(graph.forward):
        found.setdefault(node.creator, []).append(number)
    return found


def _same_variant(ours: BackwardNode, chosen: int, theirs: BackwardNode, number: NDArray[np.int64]) -> int:
    """The variant of `theirs` that needs what variant `chosen` of `ours` does."""
    needs = {int(number[need]) for need in ours.variants[chosen].needs}
    for place, variant in enumerate(theirs.variants):
        if set(variant.needs) == needs:
            return place
    raise InputError(f"carry_over: backward node {theirs.name!r} has no variant that needs {sorted(needs)}")


def _forward(node: ForwardNode, number: Mapping[int, int], conv: bool, in_place: bool) -> ForwardNode:
    count = len(node.implementations) if conv else 1
    overwrites = node.overwrites if in_place else None
    return replace(
        node,
        inputs=tuple(number[k] for k in node.inputs),
        implementations=node.implementations[:count],
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
            implementations=variant.implementations if conv else variant.implementations[:1],
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
