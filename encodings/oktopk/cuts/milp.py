"""A MILP over cuts and owners together, for few ranks: a path through places at which may be cut.

An arc (i, a, b) makes [a, b) the region of rank i. One path of arcs leads from the first place to the last; each rank
has at most one arc (none: an empty region). With L, the largest cost::

    L >= receiving_i * sum over arcs of i of received(t, i, a, b) x(i, a, b)              for each step t, rank i
    L >= sending_i * (k(t, i) - sum over arcs of i of own(t, i, a, b) x(i, a, b))         for each step t, rank i

Exact for cuts at these places only, unless they are all that there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.cuts.boundaries import Boundaries
from gapless.encodings.oktopk.cuts.joint import joint_cost
from gapless.encodings.oktopk.cuts.loads import Loads
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.proofs import solve_proven

__all__ = ["MilpAnswer", "places_for", "solve_milp"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MilpAnswer:
    """The best boundaries at the places, and a bound on the cost of all others there (None if unknown)."""

    boundaries: Boundaries
    bound: float | None


@dataclass(frozen=True)
class _Arcs:
    """Columns of the arcs, in the order rank, first place, last place; `own`, `received`: int64 (steps, columns)."""

    rank: Ints
    first: Ints
    last: Ints
    own: Ints
    received: Ints


def places_for(loads: Loads, start: Ints, most: int) -> Ints:
    """Places at which to cut: all that make a difference where they are at most so many, or some and `start`'s."""
    entries = np.unique(np.concatenate([held for group in loads.groups for parts in group for held in parts]))
    inner = entries[entries > 0].astype(np.int64)
    if len(inner) > most:
        inner = np.union1d(inner[np.linspace(0, len(inner) - 1, most).astype(np.int64)], start[1:-1])
    return np.union1d(inner, [0, loads.elements]).astype(np.int64)


def solve_milp(
    loads: Loads, start: Boundaries, receiving: Floats, sending: Floats, most_places: int, options: SolveOptions,
    solver: str = "highs",
) -> MilpAnswer:  # fmt: skip
    """The cuts and owners with the least largest cost, for cuts at the places; `start` where nothing is better."""
    places = places_for(loads, start.cuts, most_places)
    arcs = _arcs(loads, places)
    costs = joint_cost(loads.counts(start.cuts), start.owners, receiving, sending)
    unit = float(costs.max()) or 1.0
    model = Model("sparse allreduce")
    taken, most = model.binaries("arc", len(arcs.rank)), model.continuous("largest cost", ())
    _one_path(model, taken, arcs, len(places))
    _each_rank_once(model, taken, arcs, loads.ranks)
    held = np.array([[sum(map(len, parts)) for parts in group] for group in loads.groups])
    for step in range(loads.steps):
        received = arcs.received[step] * receiving[arcs.rank] / unit
        _largest(model, taken, most, arcs, f"received in step {step}", received, np.zeros(loads.ranks))
        sent = -arcs.own[step] * sending[arcs.rank] / unit
        _largest(model, taken, most, arcs, f"sent in step {step}", sent, held[step] * sending / unit)
    model.minimize((1.0, most))
    solution = solve_proven(model, options, solver)
    bound = None if solution.bound is None else solution.bound * unit
    if solution.values is None or solution.objective is None or solution.objective * unit >= start.cost * (1 - 1e-9):
        return MilpAnswer(start, bound)
    chosen = np.flatnonzero(solution.values[taken] > 0.5)
    return MilpAnswer(_boundaries(loads, places, arcs, chosen, receiving, sending), bound)


def _arcs(loads: Loads, places: Ints) -> _Arcs:
    """An arc for each rank and each two places."""
    counts = loads.counts(places)
    below = np.concatenate([np.zeros((*counts.shape[:2], 1), dtype=np.int64), np.cumsum(counts, axis=2)], axis=2)
    starts, ends = np.triu_indices(len(places), k=1)
    own = below[:, :, ends] - below[:, :, starts]  # (steps, ranks, pairs)
    received = own.sum(axis=1, keepdims=True) - own
    rank = np.repeat(np.arange(loads.ranks), len(starts))
    shape = (loads.steps, -1)
    return _Arcs(
        rank, np.tile(starts, loads.ranks), np.tile(ends, loads.ranks), own.reshape(shape), received.reshape(shape)
    )


def _one_path(model: Model, taken: Ints, arcs: _Arcs, places: int) -> None:
    """One arc leaves the first place, one comes to the last, and what comes to any other leaves it."""
    balance, ones = np.zeros(places), np.ones(len(taken))
    balance[0], balance[-1] = 1.0, -1.0
    model.add_sparse(
        "one path", places, np.concatenate([arcs.first, arcs.last]), np.concatenate([taken, taken]),
        np.concatenate([ones, -ones]), lower=balance, upper=balance,
    )  # fmt: skip


def _each_rank_once(model: Model, taken: Ints, arcs: _Arcs, ranks: int) -> None:
    """A rank owns at most one region."""
    model.add_sparse("one region a rank", ranks, arcs.rank, taken, np.ones(len(taken)), upper=1.0)


def _largest(model: Model, taken: Ints, most: np.int64, arcs: _Arcs, name: str, cost: Floats, constant: Floats) -> None:
    """The largest cost is no less than what a rank receives, or sends, costs it: a constant and what its arc adds."""
    ranks = len(constant)
    model.add_sparse(
        f"largest is no less than {name}", ranks, np.concatenate([np.arange(ranks), arcs.rank]),
        np.concatenate([np.full(ranks, most), taken]), np.concatenate([np.ones(ranks), -cost]), lower=constant,
    )  # fmt: skip


def _boundaries(
    loads: Loads, places: Ints, arcs: _Arcs, chosen: Ints, receiving: Floats, sending: Floats
) -> Boundaries:
    """The regions of the chosen arcs from left to right; ranks without one have empty regions at the end."""
    chosen = chosen[np.argsort(arcs.first[chosen])]
    owners = arcs.rank[chosen]
    rest = np.setdiff1d(np.arange(loads.ranks), owners)
    cuts = np.concatenate([[0], places[arcs.last[chosen]], np.full(len(rest), loads.elements)]).astype(np.int64)
    owners = np.concatenate([owners, rest])
    return Boundaries(cuts, owners, float(joint_cost(loads.counts(cuts), owners, receiving, sending).max()))
