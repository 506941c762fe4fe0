"""The exact model: a binary for each choice and each open pair of choices, solved by CP-SAT, for what is small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.methods import Found, ShardingSearch, whole_bound
from gapless.encodings.sharding.parameters import Parameters
from gapless.encodings.sharding.presolve.reduced import Reduced
from gapless.model import Model
from gapless.solution import Status
from gapless.solvers.proofs import solve_proven

__all__ = ["METHOD", "encode", "exact", "is_small"]

METHOD = "exact"

Ints = NDArray[np.int64]

_EXACT = 2**50
"""Whole numbers up to here are exact in a model's floating-point numbers, and so are their sums."""


@dataclass(frozen=True)
class Encoding:
    """The model of what presolve left. `chosen`: the columns of choices, by number. `pairs`: those of open pairs, which
    are the entries `entries` of all tables.
    """

    left: Reduced
    model: Model
    chosen: Ints
    pairs: Ints
    entries: Ints

    def point(self, choices: Ints) -> NDArray[np.float64]:
        """The values of columns that stand for choices, shape (nodes,)."""
        left, values = self.left, np.zeros(self.model.column_count)
        values[self.chosen[left.starts[:-1] + choices]] = 1.0
        first, second = left.ends[:, 0], left.ends[:, 1]
        taken = left.table_starts[:-1] + choices[first] * left.sizes[second] + choices[second]
        values[self.pairs[np.searchsorted(self.entries, taken)]] = 1.0
        return values

    def choices(self, values: NDArray[np.float64]) -> Ints:
        """The choices that values stand for."""
        taken, left = values[self.chosen], self.left
        parts = zip(left.starts[:-1].tolist(), left.starts[1:].tolist(), strict=True)
        return np.array([int(taken[start:end].argmax()) for start, end in parts], dtype=np.int64)


def is_small(left: Reduced, parameters: Parameters) -> bool:
    """Whether what is left has few enough entries."""
    return len(left.tables) + int((left.points.end - left.points.first).sum()) <= parameters.exact_entries


def encode(left: Reduced) -> Encoding:
    """The model; its objective is the cost without the offset."""
    model = Model("sharding")
    chosen: Ints = model.binaries("takes", len(left.costs))
    owner = np.repeat(np.arange(left.node_count), left.sizes)
    model.add_sparse("each_node_takes_one_choice", left.node_count, owner, chosen, 1.0, lower=1.0, upper=1.0)
    entries = np.flatnonzero(np.isfinite(left.float_tables))
    pairs: Ints = model.binaries("pair", len(entries))
    if len(left.ends):
        _agree(left, model, chosen, pairs, entries)
    points = left.points
    if len(points.room):
        spans = points.end - points.first
        before = np.cumsum(spans) - spans
        rows = np.repeat(points.first - before, spans) + np.arange(int(spans.sum()))
        model.add_sparse(
            "memory_suffices", len(points.room), rows, np.repeat(chosen[points.choice], spans),
            np.repeat(points.used, spans), upper=points.room,
        )  # fmt: skip
    model.minimize((left.float_costs, chosen), (left.float_tables[entries], pairs))
    return Encoding(left, model, chosen, pairs, entries)


def _agree(left: Reduced, model: Model, chosen: Ints, pairs: Ints, entries: Ints) -> None:
    """The pairs of an edge that have a choice add up to whether it is taken, on both sides."""
    edge = np.searchsorted(left.table_starts, entries, side="right") - 1
    place = entries - left.table_starts[edge]
    width = left.sizes[left.ends[edge, 1]]
    for side, local in ((0, place // width), (1, place % width)):
        nodes = left.ends[:, side]
        firsts = np.concatenate([[0], np.cumsum(left.sizes[nodes])])
        columns = np.concatenate([np.arange(left.starts[node], left.starts[node + 1]) for node in nodes.tolist()])
        count = int(firsts[-1])
        model.add_sparse(
            f"pairs_agree_on_side_{side}", count, np.concatenate([firsts[edge] + local, np.arange(count)]),
            np.concatenate([pairs, chosen[columns]]), np.concatenate([np.ones(len(pairs)), -np.ones(count)]),
            lower=0.0, upper=0.0,
        )  # fmt: skip


def exact(search: ShardingSearch) -> Iterator[Found]:
    """The optimum, or a plan and a bound where the time is up before; that there is no plan, where that is proven."""
    left = search.left
    encoding = encode(left)
    start = None if search.choices is None else encoding.point(search.choices)
    most = sum(int(np.abs(row).max(initial=0)) for row in (left.costs, left.tables[encoding.entries]))
    is_exact = most * max(left.node_count + len(left.ends), 1) < _EXACT
    solver = search.options.solver or ("cpsat" if is_exact else "highs")
    options = replace(search.deadline.stage(), on_progress=None, on_plan=None)
    solution = solve_proven(encoding.model, options, solver, start)
    if solution.status is Status.INFEASIBLE:
        yield Found(METHOD, is_infeasible=True)
        return
    choices = None if solution.values is None else encoding.choices(solution.values)
    yield Found(METHOD, choices)
    if solution.status is Status.OPTIMAL and is_exact and choices is not None:
        yield Found(METHOD, bound=left.evaluate(choices).cost)
    elif solution.bound is not None:
        error = 0.5 if is_exact else 1e-6 * abs(solution.bound) + 1.0
        bound = whole_bound(solution.bound, error)
        yield Found(METHOD, bound=None if bound is None else left.offset + bound)
