"""The options of a run: the implementations that can be best for some budget, whatever else is decided.

A search and the relaxation compare time and workspace alone; the integer program compares what an option rules out as
well, since it chooses among all options of a node in one row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph

__all__ = [
    "Option",
    "again_options",
    "backward_choices",
    "backward_options",
    "byte_unit",
    "cost_unit",
    "forward_choices",
    "forward_options",
    "option_of",
]


@dataclass(frozen=True)
class Option:
    """A choice of implementation: its number, whether it is in place, and for backward nodes variant and needs."""

    duration_s: float
    workspace_bytes: int
    implementation: int
    in_place: bool = False
    variant: int = 0
    needs: frozenset[int] = frozenset()

    def beats(self, other: Option) -> bool:
        """Whether this one serves at least as well, whatever the budget and whatever else is decided."""
        return (
            self.duration_s <= other.duration_s
            and self.workspace_bytes <= other.workspace_bytes
            and self.in_place <= other.in_place
            and self.needs <= other.needs
        )


def forward_options(graph: TrainingGraph, node: int) -> list[Option]:
    """The implementations of a forward node in the forward pass that no other beats in both time and workspace.

    In place and not are kept apart, since running in place loses the input. Fastest first.
    """
    op = graph.forward[node]
    return [*_pareto(_options(op.implementations)), *_pareto(_options(op.in_place, in_place=True))]


def again_options(graph: TrainingGraph, node: int) -> list[Option]:
    """The same for a recomputation."""
    op = graph.forward[node]
    return [*_pareto(_options(op.again or op.implementations)), *_pareto(_options(op.in_place, in_place=True))]


def backward_options(node: BackwardNode) -> list[Option]:
    """The implementations of a backward node, best ones of each variant."""
    return [option for variant in range(len(node.variants)) for option in _pareto(_of_variant(node, variant))]


def forward_choices(node: ForwardNode, is_first: bool) -> tuple[Option, ...]:
    """The options of a forward node in the integer program, in the forward pass or when it runs again.

    The first is not in place.
    """
    choices = node.implementations if is_first or not node.again else node.again
    return _unbeaten([*_options(choices), *_options(node.in_place, in_place=True)])


def backward_choices(node: BackwardNode) -> tuple[Option, ...]:
    """The options of a backward node in the integer program, over all its variants."""
    return _unbeaten(option for variant in range(len(node.variants)) for option in _of_variant(node, variant))


def option_of(options: tuple[Option, ...], given: Option) -> int:
    """The number of the option that is at least as good as a given one; one always is."""
    return next(number for number, option in enumerate(options) if option.beats(given))


def cost_unit(total: float) -> float:
    """The power of ten that puts the cost of a whole step nearest to 100,000, to count costs in."""
    return 10.0 ** round(math.log10(total / 1e5)) if total > 0 else 1.0


def byte_unit(graph: TrainingGraph) -> float:
    """The power of two of bytes nearest to a typical output, to count memory in: solvers have absolute tolerances."""
    size = graph.output_bytes[graph.output_bytes > 0]
    return float(2.0 ** np.round(np.log2(size).mean())) if len(size) else 1.0


def _options(choices: Iterable[Implementation], in_place: bool = False) -> list[Option]:
    return [Option(impl.duration_s, impl.workspace_bytes, number, in_place) for number, impl in enumerate(choices)]


def _of_variant(node: BackwardNode, variant: int) -> list[Option]:
    chosen = node.variants[variant]
    needs = frozenset(chosen.needs)
    return [
        Option(impl.duration_s, impl.workspace_bytes, number, variant=variant, needs=needs)
        for number, impl in enumerate(chosen.implementations)
    ]


def _pareto(options: Iterable[Option]) -> list[Option]:
    """Fastest first; each next one is slower and smaller."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda o: (o.duration_s, o.workspace_bytes, o.implementation)):
        if not kept or option.workspace_bytes < kept[-1].workspace_bytes:
            kept.append(option)
    return kept


def _unbeaten(options: Iterable[Option]) -> tuple[Option, ...]:
    """Those that no other beats, the first of equals; not in place before in place, the smallest first."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda o: (o.in_place, o.duration_s, o.workspace_bytes, len(o.needs))):
        if not any(better.beats(option) for better in kept):
            kept.append(option)
    return tuple(sorted(kept, key=lambda o: (o.in_place, o.workspace_bytes)))
