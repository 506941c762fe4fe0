"""Choices made one node after the other, each at least cost to those before it: how baselines are completed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.layouts.tables import FORBIDDEN, ChoiceTables

__all__ = ["AVOIDED", "Support", "completed"]

Ints = NDArray[np.int64]
Masks = NDArray[np.bool_]
AVOIDED = 10**15
"""Above all times of a step, below what is forbidden."""


class Support:
    """The choices that are left of each node: those that have a partner along every edge (arc consistency).

    `left[v]`: bool, shape (choices of v,).
    """

    def __init__(self, tables: ChoiceTables, allowed: Sequence[Masks]) -> None:
        self.left = [mask & (cost < FORBIDDEN) for mask, cost in zip(allowed, tables.costs_ns, strict=True)]
        self._touching: list[list[tuple[int, Masks]]] = [[] for _ in self.left]
        allows: dict[int, Masks] = {}
        for (first, second), table in zip(tables.edges.tolist(), tables.tables, strict=True):
            may = allows.setdefault(id(table), table < FORBIDDEN)
            if not may.all():
                self._touching[first].append((second, may))
                self._touching[second].append((first, may.T))

    def narrow(self, changed: Iterable[int]) -> dict[int, Masks] | None:
        """Take out what has lost its partners since these nodes have fewer choices; the masks before, by node.

        None where a node has no choice left, and then everything is as before.
        """
        before: dict[int, Masks] = {}
        queue = dict.fromkeys(changed)
        while queue:
            node = next(iter(queue))
            del queue[node]
            for other, may in self._touching[node]:
                kept = may[self.left[node]].any(axis=0) & self.left[other]
                if kept.sum() < self.left[other].sum():
                    before.setdefault(other, self.left[other])
                    self.left[other] = kept
                    queue[other] = None
                if not kept.any():
                    self.restore(before)
                    return None
        return before

    def choose(self, node: int, choice: int) -> bool:
        """Leave a node this choice alone; False, with nothing changed, where others would have none."""
        was = self.left[node]
        self.left[node] = np.zeros_like(was)
        self.left[node][choice] = True
        if self.narrow([node]) is None:
            self.left[node] = was
            return False
        return True

    def restore(self, before: Mapping[int, Masks]) -> None:
        """Give nodes their masks back."""
        for node, mask in before.items():
            self.left[node] = mask


def completed(tables: ChoiceTables, allowed: Sequence[Masks], extra: Mapping[int, Ints]) -> Ints | None:
    """A choice for each node, int64, shape (nodes,), in the order of nodes: each costs least with those before it.

    `allowed[v]`: bool, shape (choices of v,). `extra[e]`: what is to be avoided, beside the table of edge e, of its
    shape. None where a node has no choice that leaves one for each of the others.
    """
    support = Support(tables, allowed)
    if support.narrow(range(len(tables.costs_ns))) is None:
        return None
    before: list[list[int]] = [[] for _ in tables.costs_ns]
    for edge, (first, second) in enumerate(tables.edges.tolist()):
        before[max(first, second)].append(edge)
    choices = np.zeros(len(tables.costs_ns), dtype=np.int64)
    for node, edges in enumerate(before):
        total = tables.costs_ns[node].astype(float)
        for edge in edges:
            first, second = tables.edges[edge]
            row = (edge, choices[first]) if second == node else (edge, slice(None), choices[second])
            total += tables.tables[row[0]][row[1:]]
            if edge in extra:
                total += extra[edge][row[1:]]
        possible = np.flatnonzero(support.left[node])
        in_order = possible[np.argsort(total[possible], kind="stable")]
        if support.left[node].sum() == 1:
            choices[node] = in_order[0]
            continue
        found = next((int(choice) for choice in in_order if support.choose(node, int(choice))), None)
        if found is None:
            return None
        choices[node] = found
    return choices
