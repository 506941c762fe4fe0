"""The options of an operator: its implementations that no other one beats in both cost and workspace."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gapless.profiles.training.graph import BackwardNode, ForwardNode

__all__ = ["Option", "backward_choices", "cost_unit", "forward_choices", "option_of"]


@dataclass(frozen=True)
class Option:
    """One way to run a node: its cost in seconds, and its number; `needs` are a backward node's forward tensors."""

    cost: float
    workspace_bytes: int
    implementation: int
    in_place: bool = False
    variant: int = 0
    needs: frozenset[int] = frozenset()

    def beats(self, other: Option) -> bool:
        """Whether this one serves at least as well, whatever the budget and whatever else is decided."""
        return (
            self.cost <= other.cost
            and self.workspace_bytes <= other.workspace_bytes
            and self.in_place <= other.in_place
            and self.needs <= other.needs
        )


def forward_choices(node: ForwardNode, is_first: bool) -> tuple[Option, ...]:
    """The options of a forward node, in the forward pass or when it runs again; the first is not in place."""
    impls = node.implementations if is_first or not node.again else node.again
    options = [Option(impl.duration_s, impl.workspace_bytes, k) for k, impl in enumerate(impls)]
    options += [Option(impl.duration_s, impl.workspace_bytes, k, in_place=True) for k, impl in enumerate(node.in_place)]
    return _unbeaten(options)


def backward_choices(node: BackwardNode) -> tuple[Option, ...]:
    """The options of a backward node over all its variants."""
    return _unbeaten(
        Option(
            impl.duration_s, impl.workspace_bytes, implementation=number, variant=variant, needs=frozenset(its.needs)
        )
        for variant, its in enumerate(node.variants)
        for number, impl in enumerate(its.implementations)
    )


def option_of(options: tuple[Option, ...], given: Option) -> int:
    """The number of the option that is at least as good as a given way to run; one always is."""
    return next(number for number, option in enumerate(options) if option.beats(given))


def cost_unit(total: float) -> float:
    """The power of ten that puts the cost of a whole step nearest to 100,000, to count costs in."""
    return 10.0 ** round(math.log10(total / 1e5)) if total > 0 else 1.0


def _unbeaten(options: Iterable[Option]) -> tuple[Option, ...]:
    """Those that no other beats, the first of equals; not in place before in place, the smallest first."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda o: (o.in_place, o.cost, o.workspace_bytes, len(o.needs))):
        if not any(better.beats(option) for better in kept):
            kept.append(option)
    return tuple(sorted(kept, key=lambda o: (o.in_place, o.workspace_bytes)))
