"""What an optimiser holds beside a training step: its states all along, and gradients until it has applied them.

A state is as large as the gradient that it belongs to, of the same type, as in PyTorch's optimisers. Gradients that are
applied in the backward pass, each with the operator that makes it, are gone when that operator is over; nothing adds up
over several steps then, and nothing is clipped by the norm of all. The time of an update is left out: it is the same in
every plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.profiles.training.graph import BackwardNode, Implementation, TrainingGraph

__all__ = ["OPTIMIZERS", "Updates", "updates_of", "with_optimizer"]

OPTIMIZERS: Mapping[str, int] = {
    "sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "lion": 1, "adam": 2, "adamw": 2,
}  # fmt: skip
"""How many states an optimiser keeps of each parameter."""


@dataclass(frozen=True)
class Updates:
    """What an optimiser keeps and reads for each backward node that makes gradients of parameters.

    `states_bytes[b]`, `gradients_bytes[b]`: of backward node b, 0 where it makes none. `gradients`: "applied" if the
    update is part of the backward node; else all come when the backward pass is over, and gradients are "kept" until
    then, or may be "offloaded".
    """

    states_bytes: tuple[int, ...]
    gradients_bytes: tuple[int, ...]
    gradients: str = "kept"

    @property
    def are_applied(self) -> bool:
        """Whether each update is part of a backward node."""
        return self.gradients == "applied"

    @property
    def total_bytes(self) -> int:
        """All states together."""
        return sum(self.states_bytes)


def updates_of(graph: TrainingGraph, optimizer: str, gradients: str) -> Updates:
    """The updates of a step of a graph without an optimiser."""
    grown = _grown_bytes(graph)
    return Updates(tuple(OPTIMIZERS[optimizer] * size for size in grown), tuple(grown), gradients)


def with_optimizer(
    graph: TrainingGraph, optimizer: str, are_applied: bool = False, are_fixed: bool = True
) -> TrainingGraph:
    """The graph with the states of one of `OPTIMIZERS` among its fixed bytes.

    `are_applied`: parameter gradients are gone at the end of the backward node that makes them, so that they count as
    its workspace; else they stay until the step is over. `are_fixed`: states are on the device all the time; else they
    aren't counted here.
    """
    grown = _grown_bytes(graph)
    states_bytes = OPTIMIZERS[optimizer] * sum(grown) * are_fixed
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
