"""Choices that no neighbour allows go; nodes with one choice left, or one for each of a neighbour's, go into it.

In instances of XLA most edges allow each choice of a node exactly one of its neighbour's. So nodes that must agree
become one node, and ten thousands of them hundreds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from gapless.encodings.sharding.presolve.factors import Costs, Factors

__all__ = ["Queue", "agree"]


class Queue:
    """Nodes to look at, each once, in the order in which they came."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = deque(nodes)
        self._waiting = set(self._nodes)

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def push(self, nodes: Iterable[int]) -> None:
        """Look at these again."""
        for node in nodes:
            if node not in self._waiting:
                self._waiting.add(node)
                self._nodes.append(node)

    def pop(self) -> int:
        """The next."""
        node = self._nodes.popleft()
        self._waiting.discard(node)
        return node


def agree(factors: Factors, nodes: Iterable[int] | None = None) -> bool:
    """Remove choices and merge nodes until nothing changes, from these nodes on, or from all. Returns whether each node
    has a choice left.
    """
    queue = Queue(list(factors.costs) if nodes is None else nodes)
    seen: dict[tuple[int, int], Costs] = {}
    while queue:
        factors.ask()
        node = queue.pop()
        if node not in factors.costs:
            continue
        tables = factors.tables[node]
        kept = factors.is_open(factors.costs[node])
        for other, table in tables.items():
            if seen.get((node, other)) is not table:  # its rows have changed since they were looked at
                seen[node, other] = table
                kept = kept & factors.is_open(table).any(axis=1)
        if not kept.any():
            return False
        if not kept.all():
            factors.restrict(node, np.flatnonzero(kept))
            queue.push([node, *tables])
        elif len(kept) == 1:
            queue.push(factors.detach(node))
        else:
            _merge_one(factors, node, queue)
    return True


def _merge_one(factors: Factors, node: int, queue: Queue) -> None:
    """Merge the node with a neighbour where they have no more open pairs than one of them has choices."""
    for other, table in factors.tables[node].items():
        if int(factors.is_open(table).sum()) <= max(table.shape):
            kept, gone = (node, other) if len(factors.tables[node]) >= len(factors.tables[other]) else (other, node)
            queue.push([*factors.merge(kept, gone), kept])
            return
