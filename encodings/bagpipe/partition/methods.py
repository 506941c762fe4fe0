"""Which trainer gets which example of a batch.

Objectives: `paper` charges each example for its ids that other trainers hold (the MILP of section 5.2.3); `fetches`
charges an id once per trainer and batch, as it is fetched; `max-load` counts the rows that the busiest trainer receives
and sends. The first has an exact method in milliseconds, the others a search and a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition import milp
from gapless.encodings.bagpipe.partition.bounds import fetches_bound, max_load_bound
from gapless.encodings.bagpipe.partition.costs import Batch, checked_capacities, cost_matrix
from gapless.encodings.bagpipe.partition.goals import Fetches, Goal, MaxLoad
from gapless.encodings.bagpipe.partition.search import search
from gapless.encodings.bagpipe.partition.sharing import Sharing
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.encodings.bagpipe.question import METHODS, OBJECTIVES
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.options import Deadline, SolveOptions, relative_gap
from gapless.solution import Solution, StopReason
from gapless.solvers.proofs import solve_proven
from gapless.solvers.registry import solve_model

__all__ = ["Partition", "checked_method", "contiguous", "partition", "randomly"]

Ints = NDArray[np.int64]

_OF_A_BATCH = ("paper", "fetches", "max-load")
"""Objectives that don't depend on the batches before and after."""

_ENCODED_PER_S = 5e5
"""Columns or rows of a model that are encoded and handed to a backend in a second at least."""


@dataclass(frozen=True)
class Partition:
    """The trainer of each example, and what that is worth.

    `trainer`: int64, one per example. `value` and `bound` are of the objective; `bound` is None where nothing is
    proven. `prices`: of a place on each trainer, where the method ends with them; with them
    `lower_bound(cost_matrix(batch), capacity, prices)` proves the optimum to anyone. `bound_s`: wall time of the bound.
    `is_cut`: whether the method was cut short by the clock, or because somebody asked to stop.
    """

    trainer: Ints
    objective: str
    value: int
    bound: int | None
    method: str
    prices: Ints | None = None
    details: dict[str, Any] = field(default_factory=dict)
    bound_s: float = 0.0
    is_cut: bool = False

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a bound."""
        return relative_gap(self.value, self.bound)


def partition(
    batch: Batch,
    capacity: Ints | None = None,
    objective: str = "paper",
    method: str = "auto",
    parameters: Parameters | None = None,
    options: SolveOptions | None = None,
) -> Partition | None:
    """The best partition of a batch that a method finds; None if it finds none in time.

    Parameters
    ----------
    batch
        The ids of the examples and the owners of their rows.
    capacity
        Examples per trainer, adding up to the batch; as even as possible if None.
    objective, method
        `paper`, `fetches` or `max-load`, and one of `METHODS`; for `synchronised` see `windows.py`.
    parameters
        Of `search` and its bound; all defaults if None.
    options
        Time limit and seed; the backend, of `milp` and `lp` alone.

    Raises
    ------
    InputError
        For an unknown objective or method, a method that doesn't suit the objective or takes no backend, capacities
        that don't fit.
    """
    check_known("objective", objective, _OF_A_BATCH)
    options, parameters = options or SolveOptions(), parameters or Parameters()
    chosen = checked_method(objective, method, options.solver)
    places = checked_capacities(capacity, batch.examples, batch.trainers)
    if chosen in ("contiguous", "random"):
        trainer = contiguous(places) if chosen == "contiguous" else randomly(places, options.seed)
        return Partition(trainer, objective, _value(batch, trainer, objective), None, chosen)
    if objective == "paper":
        return _paper(batch, places, chosen, options)
    if chosen == "search":
        return _search(batch, places, objective, parameters, options)
    if chosen == "milp":
        encode = milp.encode_fetches if objective == "fetches" else milp.encode_max_load
        size = batch.slot.size * batch.trainers
        return _by_model(batch, lambda: encode(Sharing.of(batch), places), size, objective, chosen, options)
    found = transport(cost_matrix(batch), places)
    return Partition(found.trainer, objective, _value(batch, found.trainer, objective), None, chosen)


def contiguous(capacity: Ints) -> Ints:
    """The batch cut into runs, trainer by trainer, as the public code does."""
    return np.repeat(np.arange(len(capacity)), capacity)


def randomly(capacity: Ints, seed: int) -> Ints:
    """A random partition."""
    return np.random.default_rng(seed).permutation(contiguous(capacity))


def _paper(batch: Batch, places: Ints, method: str, options: SolveOptions) -> Partition | None:
    cost = cost_matrix(batch)
    if method == "transport":
        found = transport(cost, places)
        counts = {"steps": found.steps}
        return Partition(found.trainer, "paper", found.cost, found.cost, method, found.prices, counts)
    if method == "min_cost_flow":
        options = replace(options, solver="min_cost_flow")
    encode = partial(milp.encode, cost, places, relaxed=method == "lp")
    claimed = _by_model(batch, encode, cost.size, "paper", method, options)
    if claimed is None or claimed.bound is None:
        return claimed
    # What a solver claims of a transportation problem, the prices of our own method prove or refute.
    optimum = transport(cost, places).cost
    details = {"contradicted": claimed.bound} if claimed.bound > optimum else {}
    bound = optimum if claimed.value == optimum else min(claimed.bound, optimum)
    return replace(claimed, bound=bound, details=details)


def _search(batch: Batch, places: Ints, objective: str, parameters: Parameters, options: SolveOptions) -> Partition:
    """From the paper's optimum and from the start of the search itself, whichever is better."""
    deadline = Deadline(options)
    sharing = Sharing.of(batch)
    goal = _goal(objective, parameters)
    papers = transport(cost_matrix(batch), places).trainer
    found = search(sharing, places, goal, [papers], parameters.search, options.seed, deadline)
    begin_s = time.perf_counter()
    bound_of = fetches_bound if objective == "fetches" else max_load_bound
    bound = bound_of(sharing, places, parameters.bound, deadline) if parameters.bound.rounds else None
    bound_s = time.perf_counter() - begin_s
    details = {
        "rounds": found.rounds,
        "accepted": found.accepted,
        "of_papers_optimum": goal.value(sharing.traffic(papers)),
    }
    value = goal.value(found.traffic)
    return Partition(found.trainer, objective, value, bound, "search", None, details, bound_s, found.is_cut)


def _goal(objective: str, parameters: Parameters) -> Goal:
    """What the search makes small."""
    return Fetches() if objective == "fetches" else MaxLoad(parameters.search.load_power)


def _by_model(
    batch: Batch, encode: Callable[[], milp.Encoding], size: int, objective: str, method: str, options: SolveOptions
) -> Partition | None:
    """The partition that a backend finds for a model; its bound rounded up, as the objective is whole.

    None if it finds none in time. `size`: of the model, in columns or rows; one that takes most of the time only to be
    encoded isn't.
    """
    if not batch.examples:
        return Partition(np.empty(0, np.int64), objective, 0, 0, method)
    deadline, solver = Deadline(options), options.solver or "highs"
    if size > 0.5 * _ENCODED_PER_S * deadline.remaining_s:
        deadline.strike()
        return None
    encoding = encode()
    solved = solve_model if objective == "paper" else solve_proven  # the paper's has a proof of our own
    solution = solved(encoding.model, deadline.stage(), solver)
    if solution.values is None:
        return None
    trainer = milp.decode(encoding, solution.values)
    value = _value(batch, trainer, objective)
    is_cut = solution.stop_reason in (StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
    return Partition(
        trainer, objective, value, _whole_bound(solution, value), f"{method}+{solver}", is_cut=is_cut
    )  # fmt: skip


def _whole_bound(solution: Solution, value: int) -> int | None:
    if solution.bound is None:
        return None
    slack = 1e-6 * max(1.0, abs(solution.bound))  # what solvers call equal
    return min(int(np.ceil(solution.bound - slack)), value)


def _value(batch: Batch, trainer: Ints, objective: str) -> int:
    if objective == "paper":
        return int(np.take_along_axis(cost_matrix(batch), trainer[:, None], axis=1).sum(dtype=np.int64))
    traffic = Sharing.of(batch).traffic(trainer)
    return traffic.fetches if objective == "fetches" else traffic.max_load


def checked_method(objective: str, method: str, solver: str | None = None) -> str:
    """The method that runs. Raises `InputError` for one that is unknown, or doesn't go with the objective or solver."""
    check_known("objective", objective, OBJECTIVES)
    check_known("method", method, METHODS)
    if method == "auto":
        method = "transport" if objective == "paper" else "search"
    if solver is not None and method not in ("milp", "lp"):
        raise InputError(f"solver: goes with method milp or lp, got {solver!r} with {method}")
    if objective == "paper" and method == "search":
        raise InputError("method: search is for fetches and max-load, the paper's objective has transport")
    if objective == "synchronised" and method in ("lp", "min_cost_flow"):
        raise InputError(f"method: {method} is for the paper's objective, synchronised has search, transport and milp")
    if objective != "paper" and method in ("lp", "min_cost_flow"):
        raise InputError(f"method: {method} is for the paper's objective, {objective} has search and milp")
    return method
