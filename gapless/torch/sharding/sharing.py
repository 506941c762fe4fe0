"""Equal layers are laid out alike: nodes that share a choice. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.layouts.repeats import earlier_equal
from gapless.profiles.layouts.tables import FORBIDDEN
from gapless.torch.library import Node
from gapless.torch.sharding.builder import TablesBuilder
from gapless.torch.sharding.joint import tensor_arguments
from gapless.torch.sharding.lifetimes import producer_of

__all__ = ["tie_equal_layers"]

Ints = NDArray[np.int64]


def tie_equal_layers(builder: TablesBuilder) -> int:
    """Add edges that let equal layers have equal choices only; returns how many nodes share that of another."""
    ops = list(builder.signatures)
    marks = [any(_is_parameter(argument, builder) for argument in tensor_arguments(op)) for op in ops]
    earlier = earlier_equal([builder.signatures[op] for op in ops], marks)
    first = list(range(len(builder.variables)))
    for place, equal in enumerate(earlier):
        if equal is not None:
            _join(ops[place], ops[equal], first, builder)
    for parameter, gradient in builder.gradients.items():
        owner = first[builder.number[parameter]]
        if owner != builder.number[parameter]:
            first[gradient] = builder.gradients[builder.variables[owner].node]
    tables: dict[Hashable, Ints | None] = {}
    tied = 0
    for number, other in enumerate(first):
        choices, those = builder.variables[number].choices, builder.variables[other].choices
        if other == number:
            continue
        key = those, choices
        if key not in tables:
            tables[key] = _equal_only(*key)
        table = tables[key]
        if table is not None:
            builder.add_edge(other, number, table)
            tied += 1
    return tied


def _is_parameter(node: Node, builder: TablesBuilder) -> bool:
    """Whether a value is a parameter, or a view of one."""
    producer, _ = producer_of(node)
    while producer in builder.lives.base:
        producer, _ = producer_of(tensor_arguments(producer)[builder.lives.base[producer]])
    return producer in builder.gradients


def _join(op: Node, equal: Node, first: list[int], builder: TablesBuilder) -> None:
    """An op with its equal one block earlier, and the parameters that they take."""
    first[builder.number[op]] = first[builder.number[equal]]
    for one, other in zip(tensor_arguments(op), tensor_arguments(equal), strict=True):
        if one in builder.gradients and other in builder.gradients and one is not other:
            ends = sorted((builder.number[one], builder.number[other]))
            first[ends[1]] = first[ends[0]]


def _equal_only(choices: tuple[object, ...], others: tuple[object, ...]) -> Ints | None:
    """A table with costs of 0 where both are the same; None where none can be."""
    places = {choice: place for place, choice in enumerate(others)}
    table = np.full((len(choices), len(others)), FORBIDDEN, dtype=np.int64)
    for row, choice in enumerate(choices):
        if choice in places:
            table[row, places[choice]] = 0
    return table if not table.all() else None
