"""Routers: which model routes a problem that doesn't reduce, and what the search needs to know of it.

Chunks with several destinations take trees (routing.py); where every chunk has one at most, paths are enough
(path_routing.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow import routing as flow_routing
from gapless.encodings.taccl.milp import path_routing
from gapless.encodings.taccl.milp import tree_routing as routing
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.encodings.taccl.symmetry.groups import orbits
from gapless.errors import InputError
from gapless.model import Model
from gapless.solution import Solution
from gapless.solvers.proofs import dual_bound

__all__ = ["Router", "milp_binaries", "router_of", "routing_model", "takes_paths"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Solve = Callable[[Model], Solution]


_LARGEST_TABLE = 4_000_000
"""Pairs of chunk and link above which orbits aren't counted: no sketch makes so many few enough."""


@dataclass(frozen=True)
class Router:
    """A routing model of a problem; its objective is still to be set.

    `time`: the column to be minimised, in units of `unit_s`. `proves`: whether a bound on the time holds for every
    routing, not only for those in the model. `bound`: one that is known beforehand, in the same units. `is_util`: as in
    the models. `ties`: (coefficients, columns) of what is worth minimising among routings of equal time.
    """

    problem: Chunked
    model: Model
    time: int
    unit_s: float
    proves: bool
    bound: float | None
    is_util: Ids
    ties: tuple[Floats, Ids]
    decode: Callable[[Floats], Routing]

    def least_time_model(self) -> Model:
        """The model, set to minimise the time (5.1)."""
        self.model.minimize((1.0, [self.time]))
        return self.model


def takes_paths(problem: Chunked) -> bool:
    """Whether every chunk has one destination at most."""
    return bool((problem.wanted.sum(axis=1) <= 1).all())


def router_of(problem: Chunked, solve: Solve | None = None, at_least_s: float = 0.0) -> Router:
    """The router that fits a problem.

    `solve` is for a linear program whose solution makes a better choice of paths; `at_least_s`: a lower bound on the
    makespan, below which no choice of paths is worth looking for.
    """
    return _path_router(problem, solve, at_least_s) if takes_paths(problem) else _tree_router(problem)


def routing_model(problem: Chunked) -> Model:
    """The routing MILP that minimises the time, for writing to a file.

    Raises `InputError` where there are two, one for each phase.
    """
    if len(problem.phases) > 1:
        raise InputError(
            f"{problem.collective.name}: has a routing model a phase; write those of reducescatter and allgather"
        )
    return router_of(problem.phases[0].problem).least_time_model()


def _tree_router(problem: Chunked) -> Router:
    parts = routing.encode(problem)
    arrivals = np.unique(parts.start[problem.wanted])
    return Router(
        problem=problem,
        model=parts.model,
        time=parts.time,
        unit_s=parts.unit_s,
        proves=problem.path_slack is None,  # else there are fewer routings in the model
        bound=None,
        is_util=parts.is_util,
        ties=(np.ones(len(arrivals)), arrivals),
        decode=lambda values: routing.decode(parts, values),
    )


def _path_router(problem: Chunked, solve: Solve | None, at_least_s: float) -> Router:
    flowing, bound = [], None
    if solve is not None:
        flow = flow_routing.encode(replace(problem, path_slack=None))
        solution = solve(flow.model)
        if solution.row_prices is not None:
            bound = dual_bound(flow.model.arrays(), solution.row_prices)  # whatever the prices are
        if solution.values is not None and problem.path_slack is None:
            flowing = flow_routing.paths(problem, flow, solution.values)
    parts = path_routing.encode(problem, path_routing.candidate_paths(problem, flowing), at_least_s)
    columns, row = np.unique(parts.taken, return_inverse=True)
    duration = problem.duration_s / parts.unit_s
    length = np.array([float(duration[list(path)].sum()) for path in parts.path])
    return Router(
        problem=problem,
        model=parts.model,
        time=parts.time,
        unit_s=parts.unit_s,
        proves=False,
        bound=bound,
        is_util=parts.is_util,
        ties=(np.bincount(row, weights=length).astype(np.float64), columns),
        decode=lambda values: path_routing.decode(parts, values),
    )


def milp_binaries(problem: Chunked) -> int:
    """The binaries of the routing MILPs of all phases, one for each orbit of (chunk, link) under the sketch's symmetry.

    The number of pairs where that is too large to be worth counting.
    """
    link_count, pairs = problem.link_count, problem.collective.chunk_count * problem.link_count
    if pairs > _LARGEST_TABLE or not problem.logical.symmetry:
        return pairs * len(problem.phases)
    images = [(s.chunks[:, None] * link_count + s.links[None, :]).reshape(-1) for s in problem.logical.symmetry]
    return len(np.unique(orbits(images, pairs))) * len(problem.phases)
