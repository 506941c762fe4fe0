"""Which trainer gets which example of a batch.

Objectives: `paper` charges each example for its ids that other trainers hold (the MILP of section 5.2.3); `fetches`
charges an id once per trainer and batch, as it is fetched; `max-load` counts the rows that the busiest trainer receives
and sends. The first has an exact method in milliseconds, the others a search and a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe import milp
from gapless.encodings.bagpipe.bounds import fetches_bound, max_load_bound
from gapless.encodings.bagpipe.costs import Batch, checked_capacities, cost_matrix
from gapless.encodings.bagpipe.goals import Fetches, Goal, MaxLoad
from gapless.encodings.bagpipe.search import search
from gapless.encodings.bagpipe.sharing import Sharing
from gapless.encodings.bagpipe.transport import transport
from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.options import Deadline, SolveOptions, relative_gap
from gapless.solution import Solution
from gapless.solvers.registry import solve_model

__all__ = ["METHODS", "OBJECTIVES", "Effort", "Partition", "contiguous", "partition", "randomly"]

Ints = NDArray[np.int64]

OBJECTIVES = ("paper", "fetches", "max-load")

METHODS = ("auto", "transport", "search", "milp", "lp", "min_cost_flow", "contiguous", "random")
"""`auto` is `transport` for the paper's objective, `search` for the others."""

_GOALS: dict[str, tuple[Goal, Callable[[Sharing, Ints, int, Deadline], int]]] = {
    "fetches": (Fetches(), fetches_bound),
    "max-load": (MaxLoad(), max_load_bound),
}


@dataclass(frozen=True)
class Effort:
    """How long to search, in rounds, so that the same batch gives the same partition however fast the machine is.

    `search_rounds`: blocks of examples to place anew; `bound_rounds`: improvements of the lower bound. With 0 the
    search is its start, the bound weak. `with_bound`: whether to compute a bound at all.

    Raises `InputError` for negative numbers.
    """

    search_rounds: int = 56
    bound_rounds: int = 40
    with_bound: bool = True

    def __post_init__(self) -> None:
        for name, rounds in (("search_rounds", self.search_rounds), ("bound_rounds", self.bound_rounds)):
            if rounds < 0:
                raise InputError(f"{name}: must be >= 0, got {rounds}")


@dataclass(frozen=True)
class Partition:
    """The trainer of each example, and what that is worth.

    `trainer`: int64, one per example. `value` and `bound` are of the objective; `bound` is None where nothing is
    proven. `prices`: of a place on each trainer, where the method ends with them; with them
    `lower_bound(cost_matrix(batch), capacity, prices)` proves the optimum to anyone.
    """

    trainer: Ints
    objective: str
    value: int
    bound: int | None
    method: str
    prices: Ints | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def is_optimal(self) -> bool:
        """Whether the bound proves that nothing is better."""
        return self.bound == self.value

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a bound."""
        return relative_gap(self.value, self.bound)


def partition(
    batch: Batch,
    capacity: Ints | None = None,
    objective: str = "paper",
    method: str = "auto",
    effort: Effort | None = None,
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
        One of `OBJECTIVES` and of `METHODS`.
    effort
        Rounds of `search` and its bound; all defaults if None.
    options
        Time limit and seed; the backend, of `milp` and `lp` alone.

    Raises
    ------
    InputError
        For an unknown objective or method, a method that doesn't suit the objective or takes no backend, capacities
        that don't fit.
    """
    chosen = _checked_method(objective, method)
    options, effort = options or SolveOptions(), effort or Effort()
    if options.solver is not None and chosen not in ("milp", "lp"):
        raise InputError(f"solver: goes with method milp or lp, got {options.solver!r} with {chosen}")
    places = checked_capacities(capacity, batch.examples, batch.trainers)
    if chosen in ("contiguous", "random"):
        trainer = contiguous(places) if chosen == "contiguous" else randomly(places, options.seed)
        return Partition(trainer, objective, _value(batch, trainer, objective), None, chosen)
    if objective == "paper":
        return _paper(batch, places, chosen, options)
    if chosen == "search":
        return _search(batch, places, objective, effort, options)
    if chosen == "milp":
        sharing = Sharing.of(batch)
        encode = milp.encode_fetches if objective == "fetches" else milp.encode_max_load
        return _by_model(batch, encode(sharing, places), objective, chosen, options)
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
    return _by_model(batch, milp.encode(cost, places, relaxed=method == "lp"), "paper", method, options)


def _search(batch: Batch, places: Ints, objective: str, effort: Effort, options: SolveOptions) -> Partition:
    """From the paper's optimum and from the start of the search itself, whichever is better."""
    deadline = Deadline(options)
    sharing = Sharing.of(batch)
    goal, bound_of = _GOALS[objective]
    papers = transport(cost_matrix(batch), places).trainer
    found = search(sharing, places, goal, [papers], effort.search_rounds, options.seed, deadline)
    begin_s = time.perf_counter()
    bound = bound_of(sharing, places, effort.bound_rounds, deadline) if effort.with_bound else None
    details = {
        "bound_s": time.perf_counter() - begin_s,
        "rounds": found.rounds,
        "accepted": found.accepted,
        "of_papers_optimum": goal.value(sharing.traffic(papers)),
    }
    return Partition(found.trainer, objective, goal.value(found.traffic), bound, "search", None, details)


def _by_model(
    batch: Batch, parts: milp.Encoding, objective: str, method: str, options: SolveOptions
) -> Partition | None:
    """The partition that a backend finds for a model; its bound rounded up, as the objective is whole."""
    if not batch.examples:
        return Partition(np.empty(0, np.int64), objective, 0, 0, method)
    solver = options.solver or "highs"
    solution = solve_model(parts.model, options, solver)
    if solution.values is None:
        return None
    trainer = milp.decode(parts, solution.values)
    value = _value(batch, trainer, objective)
    return Partition(trainer, objective, value, _whole_bound(solution, value), f"{method}+{solver}")


def _whole_bound(solution: Solution, value: int) -> int | None:
    if solution.bound is None:
        return None
    slack = 1e-6 * max(1.0, abs(solution.bound))  # what solvers call equal
    return min(int(np.ceil(solution.bound - slack)), value)


def _value(batch: Batch, trainer: Ints, objective: str) -> int:
    if objective == "paper":
        return int(np.take_along_axis(cost_matrix(batch), trainer[:, None], axis=1).sum(dtype=np.int64))
    return _GOALS[objective][0].value(Sharing.of(batch).traffic(trainer))


def _checked_method(objective: str, method: str) -> str:
    for name, given, known in (("objective", objective, OBJECTIVES), ("method", method, METHODS)):
        if given not in known:
            hint = suggestion(given, known)
            raise InputError(
                f"{name}: must be one of {', '.join(known)}, got {given!r}" + (f"; {hint}" if hint else "")
            )
    if method == "auto":
        return "transport" if objective == "paper" else "search"
    if objective == "paper" and method == "search":
        raise InputError("method: search is for fetches and max-load, the paper's objective has transport")
    if objective != "paper" and method in ("lp", "min_cost_flow"):
        raise InputError(f"method: {method} is for the paper's objective, {objective} has search and milp")
    return method
