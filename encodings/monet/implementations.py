"""The options of an operator: those that can be best for some budget, faster ones with more workspace first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gapless.profiles.training.graph import BackwardNode, TrainingGraph

__all__ = ["Option", "again_options", "backward_options", "cheapest_again_s", "forward_options"]


@dataclass(frozen=True)
class Option:
    """A choice of implementation: its number, whether it is in place, and for backward nodes the variant."""

    duration_s: float
    workspace_bytes: int
    implementation: int
    in_place: bool = False
    variant: int = 0


def forward_options(graph: TrainingGraph, node: int) -> list[Option]:
    """The implementations of a forward node in the forward pass that no other beats in both time and workspace.

    In place and not are kept apart, since running in place loses the input.
    """
    its = graph.forward[node]
    impls = [Option(impl.duration_s, impl.workspace_bytes, k) for k, impl in enumerate(its.implementations)]
    in_place = [Option(impl.duration_s, impl.workspace_bytes, k, in_place=True) for k, impl in enumerate(its.in_place)]
    return [*_pareto(impls), *_pareto(in_place)]


def again_options(graph: TrainingGraph, node: int) -> list[Option]:
    """The same for a recomputation."""
    its = graph.forward[node]
    impls = [
        Option(impl.duration_s, impl.workspace_bytes, k) for k, impl in enumerate(its.again or its.implementations)
    ]
    in_place = [Option(impl.duration_s, impl.workspace_bytes, k, in_place=True) for k, impl in enumerate(its.in_place)]
    return [*_pareto(impls), *_pareto(in_place)]


def backward_options(node: BackwardNode) -> list[Option]:
    """The implementations of a backward node, best ones of each variant."""
    options: list[Option] = []
    for variant, its in enumerate(node.variants):
        impls = [
            Option(impl.duration_s, impl.workspace_bytes, k, variant=variant)
            for k, impl in enumerate(its.implementations)
        ]
        options += _pareto(impls)
    return options


def cheapest_again_s(graph: TrainingGraph, node: int) -> float:
    """The least time that recomputing a node can take."""
    return min(option.duration_s for option in again_options(graph, node))


def _pareto(options: Iterable[Option]) -> list[Option]:
    """Fastest first; each next one is slower and smaller."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda o: (o.duration_s, o.workspace_bytes, o.implementation)):
        if not kept or option.workspace_bytes < kept[-1].workspace_bytes:
            kept.append(option)
    return kept
