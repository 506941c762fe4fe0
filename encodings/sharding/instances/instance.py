"""An instance of the contest's question: choices of nodes, costs of pairs of them, and a limit on memory over time.

The file is the JSON object of the ASPLOS 2025 contest on intra-operator parallelism, plain or gzipped.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import Record, load_record

__all__ = ["FORBIDDEN", "Evaluation", "Instance", "read_instance"]

Ints = NDArray[np.int64]

FORBIDDEN = 10**18
"""A cost of so much and more is a choice that nobody may take."""
_MOST_COST = 2**63 - 1
_MOST_BYTES = 2**30
"""Of the text of an instance; those of the contest have up to 100 MB."""


@dataclass(frozen=True)
class Evaluation:
    """What choices come to. `cost`: exact. `peak`: the most usage at any time point. `forbidden`: the first node or
    edge whose choice is forbidden, in words; empty where there is none.
    """

    cost: int
    peak: int
    forbidden: str


@dataclass(frozen=True, repr=False)
class Instance:
    """Nodes with choices, and edges with a cost for each pair of choices.

    `intervals`: int64, shape (nodes, 2), the time points at which a node is live, the end excluded. `costs[v]`,
    `usages[v]`: int64, shape (choices of v,). `edges`: int64, shape (edges, 2); `tables[e]`: int64, shape (choices of
    its first node, of its second). Pairs of nodes may repeat; their costs add up.
    """

    name: str
    intervals: Ints
    costs: tuple[Ints, ...]
    usages: tuple[Ints, ...]
    edges: Ints
    tables: tuple[Ints, ...]
    usage_limit: int

    @property
    def choice_counts(self) -> Ints:
        """Of each node, int64, shape (nodes,)."""
        return np.array([len(each) for each in self.costs], dtype=np.int64)

    @cached_property
    def most_cost(self) -> int:
        """What no choices without a forbidden one can cost more than."""
        rows = (*self.costs, *self.tables)
        return sum(int(np.max(row, where=row < FORBIDDEN, initial=0)) for row in rows)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all numbers, whatever the file looks like; forbidden costs are all alike."""
        numbers = np.array([self.usage_limit, len(self.costs), len(self.tables)], dtype=np.int64)
        rows = [numbers, self.intervals.reshape(-1), self.edges.reshape(-1), self.choice_counts, *self.usages]
        rows += [np.minimum(row, FORBIDDEN).reshape(-1) for row in (*self.costs, *self.tables)]
        return hashlib.sha256(np.concatenate(rows).astype("<i8").tobytes()).hexdigest()

    def evaluate(self, choices: Ints) -> Evaluation:
        """The cost and peak of a choice for each node, int64, shape (nodes,), in whole numbers of any size."""
        of_nodes = np.array([cost[k] for cost, k in zip(self.costs, choices, strict=True)], dtype=np.int64)
        first, second = choices[self.edges[:, 0]], choices[self.edges[:, 1]]
        of_edges = np.array(
            [table[i, j] for table, i, j in zip(self.tables, first, second, strict=True)], dtype=np.int64
        )
        forbidden = [
            f"{what} {np.flatnonzero(row >= FORBIDDEN)[0]}"
            for what, row in (("node", of_nodes), ("edge", of_edges))
            if (row >= FORBIDDEN).any()
        ]
        cost = sum(of_nodes.tolist()) + sum(of_edges.tolist())
        return Evaluation(cost, self.peak(choices), forbidden[0] if forbidden else "")

    def peak(self, choices: Ints) -> int:
        """The most usage of all time points."""
        used = np.array([usage[k] for usage, k in zip(self.usages, choices, strict=True)], dtype=np.int64)
        is_live = self.intervals[:, 0] < self.intervals[:, 1]
        times, at = np.unique(self.intervals[is_live], return_inverse=True)
        first, end = at.reshape(-1, 2).T
        change = np.zeros(len(times) + 1, dtype=np.int64)
        np.add.at(change, first, used[is_live])
        np.subtract.at(change, end, used[is_live])
        return int(change.cumsum().max(initial=0))


def read_instance(path: str | Path) -> Instance:
    """The instance in a file. Raises `InputError` with file, field, rule and value."""
    record = load_record(path, _MOST_BYTES)
    problem = record.record("problem")
    record.close()
    name = problem.text("name", default=Path(path).name.partition(".")[0])
    limit = problem.integer("usage_limit", 0, _MOST_COST)
    nodes, edges = problem.record("nodes"), problem.record("edges")
    problem.close()
    costs, usages = _rows(nodes, "costs"), _rows(nodes, "usages")
    intervals = _pairs(nodes, "intervals")
    nodes.close()
    _check_nodes(nodes, intervals, costs, usages)
    ends, rows = _pairs(edges, "nodes"), _rows(edges, "costs")
    edges.close()
    return Instance(name, intervals, costs, usages, ends, _tables(edges, ends, rows, costs), limit)


def _rows(record: Record, key: str) -> tuple[Ints, ...]:
    """Lists of whole numbers."""
    found = []
    for number, row in enumerate(record.lists(key, "a list of lists of whole numbers")):
        is_whole = set(map(type, row)) <= {int}
        if not is_whole or (row and not (min(row) >= 0 and max(row) <= _MOST_COST)):  # type: ignore[type-var, operator]
            raise record.fail(f"{key}[{number}]", f"whole numbers in 0..{_MOST_COST}", row)
        found.append(np.array(row, dtype=np.int64))
    return tuple(found)


def _pairs(record: Record, key: str) -> Ints:
    rows = _rows(record, key)
    for number, row in enumerate(rows):
        if len(row) != 2:
            raise record.fail(f"{key}[{number}]", "two whole numbers", row.tolist())
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def _check_nodes(record: Record, intervals: Ints, costs: tuple[Ints, ...], usages: tuple[Ints, ...]) -> None:
    if not len(intervals) == len(costs) == len(usages):
        counts = f"{len(intervals)}, {len(costs)} and {len(usages)}"
        raise InputError(f"{record.where}: intervals, costs and usages must be as many as nodes, got {counts}")
    for node, (cost, usage) in enumerate(zip(costs, usages, strict=True)):
        if not len(cost):
            raise record.fail(f"costs[{node}]", "a cost for each choice, at least one", [])
        if len(cost) != len(usage):
            raise record.fail(f"usages[{node}]", f"as many as costs[{node}], {len(cost)}", usage.tolist())


def _tables(record: Record, edges: Ints, rows: tuple[Ints, ...], costs: tuple[Ints, ...]) -> tuple[Ints, ...]:
    if len(edges) != len(rows):
        raise InputError(f"{record.where}: nodes and costs must be as many as edges, got {len(edges)} and {len(rows)}")
    found = []
    for number, ((first, second), row) in enumerate(zip(edges.tolist(), rows, strict=True)):
        if max(first, second) >= len(costs):
            raise record.fail(f"nodes[{number}]", f"nodes in 0..{len(costs) - 1}", [first, second])
        shape = len(costs[first]), len(costs[second])
        if len(row) != shape[0] * shape[1]:
            rule = f"{shape[0]} x {shape[1]} costs, one for each pair of choices"
            raise record.fail(f"costs[{number}]", rule, row.tolist())
        found.append(row.reshape(shape))
    return tuple(found)
