"""When the tensors of a joint graph are there: positions of its nodes in order. Needs the extra `torch`."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.torch.capture.storages import Storages, find_storages
from gapless.torch.joint_graph import JointGraph
from gapless.torch.library import Node
from gapless.torch.sharding.joint import is_getitem

__all__ = ["Lifetimes", "find_lifetimes", "producer_of"]


def producer_of(node: Node) -> tuple[Node, int]:
    """The node that computes a value, and which of its outputs it is."""
    if is_getitem(node):
        return node.args[0], int(node.args[1])
    return node, 0


@dataclass(frozen=True)
class Lifetimes:
    """`position[node]`: of each node in the order of the graph; those that pick an output count as its producer.

    `last[node]`: position of the last node that reads it, or a view of it. `base[node]`: of a view, which of its tensor
    arguments it looks at. `end`: one after the position at which the
    optimiser steps.
    """

    position: dict[Node, int]
    last: dict[Node, int]
    base: dict[Node, int]
    end: int


def find_lifetimes(joint: JointGraph, kept: set[Node]) -> Lifetimes:
    """`kept`: nodes whose values stay until the end, beside what a step is given."""
    storages = find_storages(joint)
    nodes = [node for node in joint.module.graph.nodes if node.op != "output" and not is_getitem(node)]
    position = {node: number for number, node in enumerate(nodes)}
    base = {node: found for node in nodes if (found := _base(node, storages)) is not None}
    last = dict(position)
    for node in reversed(nodes):
        if node in kept:
            last[node] = len(nodes)
        for argument in node.all_input_nodes:
            producer, _ = producer_of(argument)
            reads = last[node] if node in base and _looked_at(node, base[node]) is producer else position[node]
            last[producer] = max(last[producer], reads)
    return Lifetimes(position, last, base, len(nodes) + 1)


def _looked_at(node: Node, number: int) -> Node:
    return producer_of(node.all_input_nodes[number])[0]


def _base(node: Node, storages: Storages) -> int | None:
    if node.op != "call_function" or not storages.is_view(node):
        return None
    own = set(storages.of[node])
    held = [number for number, read in enumerate(node.all_input_nodes) if own & set(storages.of[read])]
    return held[0] if held else None
