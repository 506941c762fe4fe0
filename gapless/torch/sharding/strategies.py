"""Strategies of an op on a mesh: its rules of each axis, combined. Needs the extra `torch`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from gapless.profiles.layouts.layouts import is_partial, replicated
from gapless.torch.library import Node, torch
from gapless.torch.sharding.joint import tensor_arguments, tensors_of
from gapless.torch.sharding.placements import MASK, fits
from gapless.torch.sharding.rules import AxisRule, argument_metas, axis_rules

__all__ = ["Strategies", "Strategy", "signature_of"]


@dataclass(frozen=True)
class Strategy:
    """Layouts on the whole mesh: of an op's tensor arguments, and of what it returns (empty for what it leaves out).

    `is_copy`: a view of an argument whose layout is changed for it, so that it holds memory of its own.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    is_copy: bool = False


def signature_of(node: Node) -> Hashable:
    """Equal for nodes that have equal strategies, costs and sizes."""
    shapes = [(meta.shape, meta.dtype) for meta in argument_metas(node)]
    made = [None if value is None else (value.shape, value.dtype) for value in tensors_of(node)]
    places = itertools.count()
    static = torch.fx.node.map_arg((node.args, node.kwargs), lambda _: next(places))
    return str(node.target), str(static), str(shapes), str(made)


class Strategies:
    """The strategies of ops on a mesh. `without_rule`: how often ops were met that DTensor has no rule for; they run
    whole on every device."""

    def __init__(self, mesh: tuple[int, ...]) -> None:
        self.mesh = mesh
        self.without_rule: Counter[str] = Counter()
        self._known: dict[Hashable, tuple[Strategy, ...] | None] = {}

    def of(self, node: Node, signature: Hashable) -> tuple[Strategy, ...]:
        """All of a node's, whole on every device first."""
        if signature not in self._known:
            self._known[signature] = self._made(node)
        known = self._known[signature]
        if known is None:
            self.without_rule[str(node.target)] += 1
            known = (self._whole(node),)
        return known

    def _whole(self, node: Node) -> Strategy:
        whole = replicated(len(self.mesh))
        outputs = tuple("" if value is None else whole for value in tensors_of(node))
        return Strategy((whole,) * len(tensor_arguments(node)), outputs)

    def _made(self, node: Node) -> tuple[Strategy, ...] | None:
        rules = {devices: axis_rules(node, devices) for devices in set(self.mesh)}
        if None in rules.values():
            return None
        by_axis = [rules[devices] or [] for devices in self.mesh]
        if not all(by_axis):
            return (self._whole(node),)  # it takes no tensors
        shapes = (
            [meta.shape for meta in argument_metas(node)],
            [() if value is None else value.shape for value in tensors_of(node)],
        )
        made = (_combined(each) for each in itertools.product(*by_axis))
        return tuple(strategy for strategy in made if self._is_possible(strategy, *shapes))

    def _is_possible(
        self, strategy: Strategy, inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
    ) -> bool:
        """Whether shards are even, and sums of one kind: of an embedding's rows along one axis alone."""
        return all(
            not layout or (_is_one_sum(layout) and fits(layout, shape, self.mesh))
            for layouts, shapes in ((strategy.inputs, inputs), (strategy.outputs, outputs))
            for layout, shape in zip(layouts, shapes, strict=True)
        )


def _is_one_sum(layout: str) -> bool:
    sums = [part for part in layout.split(",") if is_partial(part)]
    return len(set(sums)) <= 1 and sums.count(MASK) <= 1


def _combined(rules: Sequence[AxisRule]) -> Strategy:
    inputs = zip(*(rule.inputs for rule in rules), strict=True)
    outputs = zip(*(rule.outputs for rule in rules), strict=True)
    return Strategy(
        tuple(",".join(parts) for parts in inputs),
        tuple(",".join(parts) if parts[0] else "" for parts in outputs),
    )
