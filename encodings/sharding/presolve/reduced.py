"""What is left of an instance, in arrays that bounds and searches run over, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.instances.instance import Evaluation, Instance
from gapless.encodings.sharding.presolve.arcs import agree
from gapless.encodings.sharding.presolve.dominance import lean
from gapless.encodings.sharding.presolve.dominated import without_dominated
from gapless.encodings.sharding.presolve.factors import Costs, Factors, Ints
from gapless.encodings.sharding.presolve.points import Points, points_of

__all__ = ["Narrowing", "Reduced", "Step", "narrowed", "reduced"]


@dataclass(frozen=True, repr=False)
class Reduced:
    """Nodes that have at least two choices, edges between them, and time points at which memory can run out.

    `starts`: int64, shape (nodes + 1,): choices of node v are numbers `starts[v]` to `starts[v + 1]`. `costs`: shape
    (choices,). `ends`: int64, shape (edges, 2), the smaller node first, no pair twice. `table_starts`: int64, shape
    (edges + 1,); a table is `tables[table_starts[e] : table_starts[e + 1]]`, a row for each choice of the first node,
    with `BLOCKED` for what is forbidden. All costs are whole numbers, int64, or objects where sums may leave 64 bits.
    `offset` is paid by all plans. `points`: what choices use, and what room there is for them.
    """

    offset: int
    starts: Ints
    costs: Costs
    ends: Ints
    table_starts: Ints
    tables: Costs
    points: Points
    factors: Factors = field(compare=False)
    nodes: tuple[int, ...] = field(compare=False)

    @property
    def node_count(self) -> int:
        """How many nodes are left."""
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> Ints:
        """How many choices each node has, int64, shape (nodes,)."""
        return np.diff(self.starts)

    @cached_property
    def float_costs(self) -> NDArray[np.float64]:
        """`costs` as floating-point numbers."""
        return self.costs.astype(np.float64)

    @cached_property
    def float_tables(self) -> NDArray[np.float64]:
        """`tables` as floating-point numbers, infinite where forbidden."""
        return self.factors.floats(self.tables)

    def table(self, edge: int) -> Costs:
        """The table of an edge, shape (choices of its first node, of its second)."""
        first, second = self.ends[edge]
        rows = self.tables[self.table_starts[edge] : self.table_starts[edge + 1]]
        return rows.reshape(self.sizes[first], self.sizes[second])

    def expand(self, choices: Ints) -> Ints:
        """The choice of each node of the instance, int64, shape (nodes of the instance,), from one for each node here,
        counted from 0 in each node.
        """
        several = set(self.nodes)
        single = [node for node in self.factors.costs if node not in several]
        return self.factors.expand([*self.nodes, *single], [*choices.tolist(), *([0] * len(single))])

    def contract(self, choices: Ints) -> Ints:
        """The choice of each node here, int64, shape (nodes,), from one for each node of the instance: `expand` undone.
        Raises `ValueError` where they are none of these.
        """
        found = np.zeros(self.node_count, dtype=np.int64)
        for place, node in enumerate(self.nodes):
            fits = np.ones(self.sizes[place], dtype=bool)
            for member, own in self.factors.members(node):
                fits &= own == choices[member]
            if not fits.any():
                raise ValueError(f"node {place}: none of its choices is that of the instance's nodes")
            found[place] = fits.argmax()
        return found

    def nearest(self, choices: Ints) -> Ints:
        """The choice of each node here, int64, shape (nodes,), that agrees with most of the nodes that it stands for;
        `choices`: int64, shape (nodes of the instance,).
        """
        found = np.zeros(self.node_count, dtype=np.int64)
        for number, node in enumerate(self.nodes):
            agreeing = sum((own == choices[member]).astype(np.int64) for member, own in self.factors.members(node))
            found[number] = np.argmax(agreeing)
        return found

    def evaluate(self, choices: Ints) -> Evaluation:
        """What choices come to: the cost of the `expand`ed ones in the instance, and the peak of the time points here,
        0 where there is none.
        """
        own = self.costs[self.starts[:-1] + choices]
        first, second = self.ends[:, 0], self.ends[:, 1]
        pairs = self.tables[self.table_starts[:-1] + choices[first] * self.sizes[second] + choices[second]]
        shut = np.flatnonzero(~self.factors.is_open(pairs))
        cost = self.offset + sum(own.tolist()) + sum(pairs[self.factors.is_open(pairs)].tolist())
        slack = self.points.slack(self.starts[:-1] + choices)
        peak = self.factors.instance.usage_limit - int(slack.min()) if len(slack) else 0
        return Evaluation(cost, peak, f"edge {shut[0]}" if len(shut) else "")


@dataclass(frozen=True)
class Step:
    """How much a step of presolve left: nodes with several choices, these, edges between such nodes, time points."""

    step: str
    nodes: int
    choices: int
    edges: int
    time_points: int

    @classmethod
    def of(cls, step: str, factors: Factors, time_points: int) -> Step:
        """Of what is left."""
        several = {node for node, costs in factors.costs.items() if len(costs) > 1}
        ends = sum(len(several.intersection(factors.tables[node])) for node in several)
        return cls(step, len(several), sum(len(factors.costs[node]) for node in several), ends // 2, time_points)


def reduced(instance: Instance, steps: list[Step] | None = None, is_over: Callable[[], bool] = bool) -> Reduced | None:
    """What exact reductions leave; None where they find that no plan has only choices and pairs that are allowed, or
    that memory suffices for none. `steps`: is filled. `is_over`: is asked every thousand nodes; once it says yes,
    `OutOfTime` is raised.
    """
    times, choices = len(np.unique(instance.intervals)), int(instance.choice_counts.sum())
    noted = [] if steps is None else steps
    noted.append(Step("instance", len(instance.costs), choices, len(instance.edges), times))
    factors = Factors(instance, is_over)
    noted.append(Step.of("single choices, parallel edges", factors, times))
    return _settled(factors, None, noted)


@dataclass(frozen=True, repr=False)
class Narrowing:
    """What is known of the plans that are still looked for: choices and pairs that they can have, bool, shapes of
    `costs` and `tables`; and whole numbers that choices may pay for their edges, so that what is left is small: of an
    edge's first node, int64, shape (rows,), and of its second, shape (columns,), edge by edge.
    """

    choices: NDArray[np.bool_]
    pairs: NDArray[np.bool_]
    rows: Ints
    columns: Ints


def narrowed(reduced: Reduced, to: Narrowing) -> Reduced | None:
    """What is left for plans that are within the narrowing, at the same costs; None where that leaves no plan."""
    factors = reduced.factors.copy()
    touched: list[int] = []
    starts, table_starts = reduced.starts.tolist(), reduced.table_starts.tolist()
    row = column = 0
    for edge, (first, second) in enumerate(reduced.ends.tolist()):
        ends, shape = (reduced.nodes[first], reduced.nodes[second]), (reduced.sizes[first], reduced.sizes[second])
        is_open = to.pairs[table_starts[edge] : table_starts[edge + 1]]
        if not is_open.any():
            return None
        if not is_open.all():
            factors.block(*ends, is_open.reshape(shape))
            touched += ends
        factors.move(*ends, to.rows[row : row + shape[0]], to.columns[column : column + shape[1]])
        row, column = row + shape[0], column + shape[1]
    for place, node in enumerate(reduced.nodes):
        factors.settle(node)
        is_open = to.choices[starts[place] : starts[place + 1]]
        if not is_open.any():
            return None
        if not is_open.all():
            factors.restrict(node, np.flatnonzero(is_open))
            touched += [node, *factors.tables[node]]
    return _settled(factors, sorted(set(touched)))


def _settled(factors: Factors, touched: list[int] | None, steps: list[Step] | None = None) -> Reduced | None:
    """What is left after changes to these nodes, or of all."""
    if not agree(factors, touched):
        return None
    if steps:
        steps.append(Step.of("choices that no neighbour allows, agreement", factors, steps[0].time_points))
    points = points_of(factors)
    if steps and points is not None:
        steps.append(Step.of("time points with room for all", factors, len(points.room)))
    points = _fitting(factors, points)
    if steps and points is not None:
        last = "choices too large for memory, dominated time points"
        steps.append(Step.of(last, factors, len(points.room)))
    changed = lean(factors, points) if points is not None else []  # a second time, it would find a fiftieth as much
    if changed:
        points = _fitting(factors, points_of(factors)) if agree(factors, changed) else None
    left = None if points is None else _flat(factors, points)
    if steps and left is not None:
        last = "dominated choices, tables that are sums, leaves"
        steps.append(Step(last, left.node_count, len(left.costs), len(left.ends), len(left.points.room)))
    return left


def _fitting(factors: Factors, points: Points | None) -> Points | None:
    """Time points without choices that alone are above the room, and without dominated ones; None where that leaves
    nothing.
    """
    while points is not None and points.excessive:
        for node, kept in points.excessive:
            factors.restrict(node, kept)
        if not agree(factors, [node for node, _ in points.excessive]):
            return None
        points = points_of(factors)
    if points is None:
        return None
    sizes = np.array([len(cost) for _, cost in sorted(factors.costs.items()) if len(cost) > 1], dtype=np.int64)
    return without_dominated(points, np.repeat(np.arange(len(sizes)), sizes), sizes)


def _flat(factors: Factors, points: Points) -> Reduced:
    nodes = [node for node in sorted(factors.costs) if len(factors.costs[node]) > 1]
    place = {node: number for number, node in enumerate(nodes)}
    offset = factors.paid + sum(int(cost[0]) for cost in factors.costs.values() if len(cost) == 1)
    pairs = sorted((place[v], place[w]) for v in nodes for w in factors.tables[v] if v < w)
    tables = [factors.tables[nodes[v]][nodes[w]].reshape(-1) for v, w in pairs]
    kind = object if factors.is_wide else np.int64
    empty = np.zeros(0, dtype=kind)
    return Reduced(
        offset,
        np.cumsum([0, *(len(factors.costs[node]) for node in nodes)], dtype=np.int64),
        np.concatenate([empty, *(factors.costs[node] for node in nodes)]),
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        np.cumsum([0, *(len(table) for table in tables)], dtype=np.int64),
        np.concatenate([empty, *tables]),
        points,
        factors,
        tuple(nodes),
    )
