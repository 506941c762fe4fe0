"""Choices of nodes with tables of costs, before anybody asks for the best: what a model on a mesh comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORBIDDEN", "ChoiceTables"]

Ints = NDArray[np.int64]

FORBIDDEN = 10**18
"""A cost of so much and more is a choice that nobody may take."""


@dataclass(frozen=True)
class ChoiceTables:
    """Nodes with choices, and edges with a cost for each pair of choices.

    `intervals`: int64, shape (nodes, 2), the positions at which a node is live, the end excluded. `costs_ns[v]`,
    `usages[v]`: int64, shape (choices of v,), of time and of bytes on each device. `edges`: int64, shape (edges, 2);
    `tables[e]`: int64, shape (choices of its first node, of its second), in nanoseconds.
    """

    intervals: Ints = field(repr=False)
    costs_ns: tuple[Ints, ...] = field(repr=False)
    usages: tuple[Ints, ...] = field(repr=False)
    edges: Ints = field(repr=False)
    tables: tuple[Ints, ...] = field(repr=False)
