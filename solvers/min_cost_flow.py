"""Minimum-cost flow with OR-tools' SimpleMinCostFlow: exact and fast where a model is a network.

Two entries: `min_cost_flow` on arrays, and `solve` for a Model that is recognised as a network: its rows are nodes that
conserve flow, its columns arcs between them. The algorithm is polynomial and can't be interrupted: a large network is
solved in a process that is killed when its time is up. Gap, threads and seed do not apply.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from gapless.errors import InputError, SolverError
from gapless.model import Model
from gapless.model.arrays import Floats, Ids, ModelArrays
from gapless.processes.workers import call_in_worker
from gapless.solution import Solution, Status
from gapless.solvers.backend import Task, answer
from gapless.solvers.integral import cost_factor, whole_bounds

__all__ = ["Flow", "Network", "as_network", "min_cost_flow", "solve"]

_LARGEST_TOTAL = 2.0**52
"""Supplies and finite capacities together; below it the arithmetic on floats is exact."""


_IN_A_MOMENT = 2**18
"""Arcs below which a network takes less than a second, in which a process has hardly begun."""


@dataclass(frozen=True)
class Flow:
    """The answer: OPTIMAL with `flow` (int64, one per arc) and `cost`, or INFEASIBLE or UNBOUNDED without."""

    status: Status
    flow: Ids | None = None
    cost: float | None = None


def min_cost_flow(
    tail: ArrayLike, head: ArrayLike, capacity: ArrayLike, unit_cost: ArrayLike, supply: ArrayLike
) -> Flow:
    """The cheapest flow that sends every node's supply through a network.

    Parameters
    ----------
    tail, head
        The nodes that each arc leaves and enters, in 0..nodes-1. Parallel arcs and loops are allowed.
    capacity
        The most an arc carries: whole numbers >= 0, or inf.
    unit_cost
        The cost per unit: whole numbers of either sign.
    supply
        Flow out less flow in, per node: whole numbers. If they do not add up to 0 the answer is INFEASIBLE.

    Raises
    ------
    InputError
        For arrays of different lengths, nodes out of range, and numbers that are not whole or too large.
    """
    tails, heads = np.asarray(tail, dtype=np.int64), np.asarray(head, dtype=np.int64)
    capacities, costs = np.asarray(capacity, dtype=np.float64), np.asarray(unit_cost, dtype=np.float64)
    supplies = np.asarray(supply, dtype=np.float64)
    _check(tails, heads, capacities, costs, supplies)
    if supplies.sum() != 0:
        return Flow(Status.INFEASIBLE)
    # A cheapest flow, if there is one, can be taken with no more on an uncapacitated arc than all supplies and all
    # finite capacities together (a basic solution). So this cap changes neither feasibility nor a finite optimum.
    is_open = np.isinf(capacities)
    enough = float(np.abs(supplies).sum() + capacities[~is_open].sum())
    if enough > _LARGEST_TOTAL:
        raise InputError(f"min_cost_flow: supplies and capacities must add up to at most 2^52, got {enough:g}")
    flow = _flow(tails, heads, np.where(is_open, enough, capacities), costs, supplies)
    if flow is None:
        return Flow(Status.INFEASIBLE)
    if _has_negative_cycle(tails[is_open], heads[is_open], costs[is_open]):
        return Flow(Status.UNBOUNDED)
    return Flow(Status.OPTIMAL, flow, float(costs @ flow))


def solve(task: Task) -> Solution:
    """Solve a model that is a network: each column an arc, each row a node or a sum of arcs between bounds.

    Raises `InputError`, naming the first column or row that prevents it, for any other model.
    """
    network = as_network(task.model, task.arrays)
    sign = -1.0 if task.arrays.maximize else 1.0
    cost = np.round(sign * task.arrays.cost * cost_factor(task, "min_cost_flow"))
    if (network.lower > network.upper).any():
        return answer(task, Status.INFEASIBLE)
    try:
        if len(network.tail) < _IN_A_MOMENT:
            status, carried = _solve_with_bounds(network, cost)
        else:
            deadline, stop = task.deadline, task.options.stop
            limit_s = deadline.remaining_s
            status, carried = call_in_worker(_solve_with_bounds, network, cost, limit_s=limit_s, stop=stop)
    except TimeoutError:
        return answer(task, Status.NO_SOLUTION, task.why_stopped())
    if carried is None:
        return answer(task, status)
    values = carried[: network.column_count]
    bound = task.arrays.objective(values)
    return answer(task, status, values=values, bound=bound)


def _solve_with_bounds(network: Network, column_cost: Floats) -> tuple[Status, Floats | None]:
    """What each arc carries, with lower bounds shifted away, arcs bounded above only reversed, free arcs doubled."""
    lower, upper = network.lower, network.upper
    cost = np.r_[column_cost, np.zeros(len(lower) - len(column_cost))]
    is_reversed = np.isinf(lower) & np.isfinite(upper)
    is_free = np.isinf(lower) & np.isinf(upper)
    base = np.where(is_free, 0.0, np.where(is_reversed, upper, lower))
    supply = network.supply.copy()
    np.subtract.at(supply, network.tail, base)
    np.add.at(supply, network.head, base)
    tail = np.where(is_reversed, network.head, network.tail)
    head = np.where(is_reversed, network.tail, network.head)
    capacity = np.where(is_reversed | is_free, np.inf, upper - base)
    forward_cost = np.where(is_reversed, -cost, cost)
    answered = min_cost_flow(
        np.r_[tail, head[is_free]], np.r_[head, tail[is_free]], np.r_[capacity, capacity[is_free]],
        np.r_[forward_cost, -cost[is_free]], supply,
    )  # fmt: skip
    if answered.flow is None:
        return answered.status, None
    flow = answered.flow.astype(np.float64)
    carried = base + np.where(is_reversed, -1.0, 1.0) * flow[: len(base)]
    carried[is_free] -= flow[len(base) :]
    return answered.status, carried


def _flow(tail: Ids, head: Ids, capacity: Floats, cost: Floats, supply: Floats) -> Ids | None:
    """One call of the library with finite capacities; None if infeasible."""
    from ortools.graph.python import min_cost_flow as library

    network = library.SimpleMinCostFlow()
    arcs = network.add_arcs_with_capacity_and_unit_cost(
        tail.astype(np.int32), head.astype(np.int32), capacity.astype(np.int64), cost.astype(np.int64)
    )
    network.set_nodes_supplies(np.arange(len(supply), dtype=np.int32), supply.astype(np.int64))
    status = network.solve()
    if status == network.OPTIMAL:
        return np.asarray(network.flows(arcs), dtype=np.int64)
    if status in (network.INFEASIBLE, network.UNBALANCED):
        return None
    if status in (network.BAD_COST_RANGE, network.BAD_CAPACITY_RANGE):
        largest = float(np.abs(cost).max(initial=0.0))
        raise InputError(f"min_cost_flow: costs or capacities are too large for 64 bits, largest cost {largest:g}")
    raise SolverError(f"min_cost_flow: failed with status {status.name}; use --solver highs")


def _has_negative_cycle(tail: Ids, head: Ids, cost: Floats) -> bool:
    """Whether some cycle of these arcs costs less than nothing; of parallel arcs only the cheapest matters."""
    if not (cost < 0).any():
        return False
    if ((tail == head) & (cost < 0)).any():
        return True
    order = np.argsort(-cost, kind="stable")  # cheapest last, so that it is the one that stays
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_weighted_edges_from(zip(tail[order].tolist(), head[order].tolist(), cost[order].tolist(), strict=True))
    return bool(nx.negative_edge_cycle(graph))


def _check(tail: Ids, head: Ids, capacity: Floats, cost: Floats, supply: Floats) -> None:
    shapes = {array.shape for array in (tail, head, capacity, cost)}
    if len(shapes) > 1 or tail.ndim != 1 or supply.ndim != 1:
        given = ", ".join(str(array.shape) for array in (tail, head, capacity, cost))
        raise InputError(f"min_cost_flow: tail, head, capacity and unit_cost must be of one length, got {given}")
    for name, nodes in (("tail", tail), ("head", head)):
        is_outside = (nodes < 0) | (nodes >= len(supply))
        if is_outside.any():
            node = int(nodes[is_outside][0])
            raise InputError(f"min_cost_flow: {name} must be in 0..{len(supply) - 1}, got {node}")
    for name, numbers in (("capacity", capacity), ("unit_cost", cost), ("supply", supply)):
        is_allowed = numbers == np.round(numbers)
        if name == "capacity":
            is_allowed &= numbers >= 0
        else:
            is_allowed &= np.abs(numbers) < _LARGEST_TOTAL
        if not is_allowed.all():
            rule = "whole numbers >= 0 or inf" if name == "capacity" else "whole numbers below 2^52 in size"
            raise InputError(f"min_cost_flow: {name} must hold {rule}, got {float(numbers[~is_allowed][0])!r}")


@dataclass(frozen=True)
class Network:
    """Arcs with bounds, and what each node must send on.

    `tail`, `head`: int64, one per arc; `lower`, `upper`: float, whole or infinite. The first `column_count` arcs are
    the model's columns, in order; the rest are the slacks of inequality rows. `supply`: float, one per node: flow out
    less flow in. The last node is the root, which takes what a column with a single entry carries.
    """

    tail: Ids
    head: Ids
    lower: Floats
    upper: Floats
    supply: Floats
    column_count: int


def as_network(model: Model, arrays: ModelArrays) -> Network:
    """The network that the model states, after scaling rows to +1 and -1 and changing the signs of some.

    An inequality row becomes a node with a slack arc from the root. Raises `InputError` naming the first column that
    is no arc, or the first column or row whose bounds are not whole numbers.
    """
    scale, sign = _unit_entries(model, arrays)
    first, second = _two_entries(model, arrays)
    flip = _row_signs(model, arrays, sign, first, second)
    row = arrays.row_of_entry
    root = len(arrays.row_lower)
    is_out = sign * flip[row] > 0
    tail = np.full(len(arrays.cost), root)
    head = tail.copy()
    tail[arrays.index[is_out]] = row[is_out]
    head[arrays.index[~is_out]] = row[~is_out]

    lower, upper, row_lower, row_upper = _whole(model, arrays, scale)
    row_lower, row_upper = np.where(flip > 0, row_lower, -row_upper), np.where(flip > 0, row_upper, -row_lower)
    is_equal = row_lower == row_upper
    slack = np.flatnonzero(~is_equal)
    supply = np.r_[np.where(is_equal, row_lower, 0.0), 0.0]
    supply[root] = -supply.sum()
    return Network(
        tail=np.r_[tail, np.full(len(slack), root)].astype(np.int64),
        head=np.r_[head, slack].astype(np.int64),
        lower=np.r_[lower, row_lower[slack]],
        upper=np.r_[upper, row_upper[slack]],
        supply=supply,
        column_count=len(arrays.cost),
    )


def _not_an_arc(model: Model, column: int, value: str) -> InputError:
    name = model.column_names()[column]
    rule = "must be an arc (one +1 and one -1 at most) for min_cost_flow"
    return InputError(f"variable {name!r}: {rule}, {value}; use --solver highs")


def _unit_entries(model: Model, arrays: ModelArrays) -> tuple[Floats, Floats]:
    """The size of each row's coefficients, which must be one per row, and the sign of each entry."""
    row, size = arrays.row_of_entry, np.abs(arrays.value)
    scale = np.ones(len(arrays.row_lower))
    filled = np.flatnonzero(np.diff(arrays.start))
    scale[filled] = size[arrays.start[filled]]
    differs = size != scale[row]
    if differs.any():
        entry = int(np.argmax(differs))
        name = model.row_names()[int(row[entry])]
        value = f"has {arrays.value[entry]:g} in row {name!r} beside {scale[row[entry]]:g}"
        raise _not_an_arc(model, int(arrays.index[entry]), value)
    return scale, np.sign(arrays.value)


def _two_entries(model: Model, arrays: ModelArrays) -> tuple[Ids, Ids]:
    """The two entries of each column that has two, as positions in the CSR arrays."""
    count = np.bincount(arrays.index, minlength=len(arrays.cost))
    if (count > 2).any():
        column = int(np.argmax(count > 2))
        raise _not_an_arc(model, column, f"is in {count[column]} rows")
    by_column = np.argsort(arrays.index, kind="stable")
    of_pairs = by_column[count[arrays.index[by_column]] == 2]
    return of_pairs[0::2], of_pairs[1::2]


def _row_signs(model: Model, arrays: ModelArrays, sign: Floats, first: Ids, second: Ids) -> Floats:
    """A sign per row such that each column with two entries has them opposite; found by walking along the columns."""
    row = arrays.row_of_entry
    relation = -sign[first] * sign[second]  # +1: the two rows keep one sign, -1: they need different ones
    links: nx.Graph[int] = nx.Graph()
    links.add_nodes_from(range(len(arrays.row_lower)))
    links.add_weighted_edges_from(zip(row[first].tolist(), row[second].tolist(), relation.tolist(), strict=True))
    flip = np.zeros(len(arrays.row_lower))
    for root in range(len(flip)):
        if flip[root] == 0:
            flip[root] = 1.0
            for known, new in nx.bfs_edges(links, root):
                flip[new] = flip[known] * links[known][new]["weight"]
    clashes = flip[row[first]] * flip[row[second]] != relation
    if clashes.any():
        columns = arrays.index[first][clashes]
        raise _not_an_arc(model, int(columns.min()), "has two entries that no change of row signs makes opposite")
    return flip


def _whole(model: Model, arrays: ModelArrays, scale: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Bounds of columns and scaled rows as whole numbers: rounded inwards where all that they bound is integer."""
    has_real = np.zeros(len(arrays.row_lower), dtype=bool)
    has_real[arrays.row_of_entry[~arrays.is_integer[arrays.index]]] = True
    rounded: list[Floats] = []
    for kind, lower, upper, is_real, names in (
        ("variable", arrays.lower, arrays.upper, ~arrays.is_integer, model.column_names),
        ("row", arrays.row_lower / scale, arrays.row_upper / scale, has_real, model.row_names),
    ):
        for bound in (lower, upper):
            is_wrong = is_real & np.isfinite(bound) & (bound != np.round(bound))
            if is_wrong.any():
                where = int(np.argmax(is_wrong))
                rule = "must have whole-number bounds for min_cost_flow"
                raise InputError(f"{kind} {names()[where]!r}: {rule}, got {bound[where]:g}; use --solver highs")
        rounded += whole_bounds(lower, upper)
    return rounded[0], rounded[1], rounded[2], rounded[3]
