"""What an optimiser holds beside a training step: its states all along, and gradients until it has applied them.

A state is as large as the gradient that it belongs to, of the same type, as in PyTorch's optimisers. Gradients that are
applied in the backward pass, each with the operator that makes it, are gone when that operator is over; nothing adds up
over several steps then, and nothing is clipped by the norm of all. The time of an update is left out: it is the same in
every plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.profiles.training.graph import BackwardNode, Implementation, TrainingGraph

__all__ = ["OPTIMIZERS", "with_optimizer"]

OPTIMIZERS: Mapping[str, int] = {
    "sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "lion": 1, "adam": 2, "adamw": 2,
}  # fmt: skip
"""How many states an optimiser keeps of each parameter."""


def with_optimizer(graph: TrainingGraph, optimizer: str, are_applied: bool = False) -> TrainingGraph:
    """The graph with the states of one of `OPTIMIZERS` among its fixed bytes.

    `are_applied`: parameter gradients are gone at the end of the backward node that makes them, so that they count as
    its workspace; else they stay until the step is over.
    """
    grown = _grown_bytes(graph)
    states_bytes = OPTIMIZERS[optimizer] * sum(grown)
    gone_bytes = 0
    backward: list[BackwardNode] = []
    for node, its_bytes in zip(graph.backward, grown, strict=True):
        if are_applied:
            gone_bytes += its_bytes
            node = _with_workspace(node, its_bytes)
        backward.append(replace(node, fixed_bytes=node.fixed_bytes - gone_bytes + states_bytes))
    said = f"states of {optimizer}" + (", gradients applied as they are made" if are_applied else "")
    return replace(
        graph,
        backward=tuple(backward),
        fixed_bytes=graph.fixed_bytes + states_bytes,
        source=f"{graph.source}; {said}" if graph.source else said,
    )


def _grown_bytes(graph: TrainingGraph) -> list[int]:
    """The parameter gradients that each backward node makes."""
    grown, fixed_bytes = list[int](), graph.fixed_bytes
    for node in graph.backward:
        grown.append(max(node.fixed_bytes - fixed_bytes, 0))
        fixed_bytes = max(fixed_bytes, node.fixed_bytes)
    return grown


def _with_workspace(node: BackwardNode, more_bytes: int) -> BackwardNode:
    def enlarged(impl: Implementation) -> Implementation:
        return replace(impl, workspace_bytes=impl.workspace_bytes + more_bytes)

    variants = [
        replace(variant, implementations=tuple(map(enlarged, variant.implementations))) for variant in node.variants
    ]
    return replace(node, variants=tuple(variants))
