"""The methods by which examples get their trainers, in the order in which they are tried, on one batch or several.

The first that finds a partition is taken: `search` where it is for the objective, else `transport`. What stands behind
runs where it is asked for by name, or where a parameter file leaves out those before it.

**Objectives of one batch.** `paper` charges each example for its ids that other trainers hold (the MILP of section
5.2.3); `fetches` charges an id once per trainer and batch, as it is fetched; `max-load` counts the rows that the
busiest trainer receives and sends. The first has an exact method in milliseconds, the others a search and a lower
bound. Batches in a row are in `windows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints
from gapless.encodings.bagpipe.cluster import checked_capacities
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition import milp
from gapless.encodings.bagpipe.partition.batch import Batch, Sharing, cost_matrix
from gapless.encodings.bagpipe.partition.bounds import fetches_bound, max_load_bound
from gapless.encodings.bagpipe.partition.search import Fetches, MaxLoad, search
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.encodings.bagpipe.question import METHODS, OBJECTIVES
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.methods import MethodChoice, run_methods
from gapless.methods.ledger import charge
from gapless.options import Deadline, SolveOptions, relative_gap
from gapless.solution import Solution, StopReason
from gapless.solvers.proofs import solve_proven
from gapless.solvers.registry import solve_model

__all__ = [
    "IN_ORDER",
    "OneBatch",
    "Partition",
    "Partitioned",
    "checked_choice",
    "contiguous",
    "decoded",
    "partition",
    "partitioned",
    "whole_bound",
]

_ENCODED_PER_S = 5e5
"""Columns or rows of a model that are encoded and handed to a backend in a second at least."""


@dataclass(frozen=True)
class Partition:
    """The trainer of each example, and what that is worth.

    `trainer`: int64, one per example. `value` and `bound` are of the objective; `bound` is None where nothing is
    proven. `prices`: of a place on each trainer, where the method ends with them; with them
    `lower_bound(cost_matrix(batch), capacity, prices)` proves the optimum to anyone. `is_cut`: whether the method was
    cut short by the clock, or because somebody asked to stop. `uses`: trainers x rows, how often each trainer uses
    each row, where the method has counted that.
    """

    trainer: Ints
    objective: str
    value: int
    bound: int | None
    method: str
    prices: Ints | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    is_cut: bool = False
    uses: NDArray[np.int32] | None = None

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a bound."""
        return relative_gap(self.value, self.bound)


@dataclass(frozen=True)
class OneBatch:
    """A batch whose partition makes an objective small, with `places` of each trainer for its examples."""

    batch: Batch
    places: Ints
    objective: str
    parameters: Parameters

    @property
    def capacities(self) -> list[Ints]:
        """The places, by batch."""
        return [self.places]

    @cached_property
    def _cost(self) -> NDArray[np.signedinteger]:
        return cost_matrix(self.batch)

    def worth(self, trainers: list[Ints], method: str) -> list[Partition]:
        """What this partition is worth."""
        return [Partition(trainer, self.objective, self._value(trainer), None, method) for trainer in trainers]

    def transported(self, options: SolveOptions) -> list[Partition]:
        """The paper's optimum, with the prices that prove it; for the other objectives a partition like others."""
        optimum = transport(self._cost, self.places)
        if self.objective != "paper":
            return self.worth([optimum.trainer], "transport")
        steps = {"steps": optimum.steps}
        return [Partition(optimum.trainer, "paper", optimum.cost, optimum.cost, "transport", optimum.prices, steps)]

    def searched(self, options: SolveOptions) -> list[Partition]:
        """From the paper's optimum and from the start of the search itself, whichever is better."""
        deadline, sharing, parameters = Deadline(options), Sharing.of(self.batch), self.parameters
        is_fetches = self.objective == "fetches"
        objective = Fetches() if is_fetches else MaxLoad(parameters.search.load_power)
        papers = transport(self._cost, self.places).trainer
        searched = search(sharing, self.places, objective, [papers], parameters.search, options.seed, deadline)
        bound_of = fetches_bound if is_fetches else max_load_bound
        with charge("bound"):
            bound = bound_of(sharing, self.places, parameters.bound, deadline) if parameters.bound.rounds else None
        details = {
            "rounds": searched.rounds,
            "accepted": searched.accepted,
            "of_papers_optimum": objective.value(sharing.traffic(papers)),
        }
        value = int(searched.cost)
        return [Partition(searched.trainer, self.objective, value, bound, "search", None, details, searched.is_cut)]

    def modelled(self, options: SolveOptions) -> list[Partition] | None:
        """By a backend, exactly."""
        return self._papers("milp", options) if self.objective == "paper" else self._beyond_papers(options)

    def relaxed(self, options: SolveOptions) -> list[Partition] | None:
        """By a backend, the linear relaxation of the paper's MILP, which has a whole optimum."""
        return self._papers("lp", options)

    def flown(self, options: SolveOptions) -> list[Partition] | None:
        """The paper's optimum by a solver for flows."""
        return self._papers("min_cost_flow", replace(options, solver="min_cost_flow"))

    def _papers(self, method: str, options: SolveOptions) -> list[Partition] | None:
        encode = partial(milp.encode, self._cost, self.places, relaxed=method == "lp")
        claimed = self._by_model(encode, self._cost.size, method, options)
        if claimed is None or claimed.bound is None:
            return None if claimed is None else [claimed]
        # What a solver claims of a transportation problem, the prices of our own method prove or refute.
        optimum = transport(self._cost, self.places).cost
        details = {"contradicted": claimed.bound} if claimed.bound > optimum else {}
        bound = optimum if claimed.value == optimum else min(claimed.bound, optimum)
        return [replace(claimed, bound=bound, details=details)]

    def _beyond_papers(self, options: SolveOptions) -> list[Partition] | None:
        encode = milp.encode_fetches if self.objective == "fetches" else milp.encode_max_load
        size = self.batch.slot.size * self.batch.trainers
        claimed = self._by_model(lambda: encode(Sharing.of(self.batch), self.places), size, "milp", options)
        return None if claimed is None else [claimed]

    def _by_model(
        self, encode: Callable[[], milp.Encoding], size: int, method: str, options: SolveOptions
    ) -> Partition | None:
        """The partition that a backend finds for a model; its bound rounded up, as the objective is whole.

        None if it finds none in time. `size`: of the model, in columns or rows; one that takes most of the time only
        to be encoded isn't.
        """
        if not self.batch.examples:
            return Partition(np.empty(0, np.int64), self.objective, 0, 0, method)
        deadline, solver = Deadline(options), options.solver or "highs"
        if size > 0.5 * _ENCODED_PER_S * deadline.remaining_s:
            deadline.strike()
            return None
        encoding = encode()
        solved = solve_model if self.objective == "paper" else solve_proven  # the paper's has a proof of our own
        solution = solved(encoding.model, deadline.stage(), solver)
        answer = decoded(encoding, solution)
        if answer is None:
            return None
        trainer, is_cut = answer
        value, bound = self._value(trainer), whole_bound(solution)
        bound = None if bound is None else min(bound, value)
        return Partition(trainer, self.objective, value, bound, f"{method}+{solver}", is_cut=is_cut)

    def _value(self, trainer: Ints) -> int:
        if self.objective == "paper":
            return int(np.take_along_axis(self._cost, trainer[:, None], axis=1).sum(dtype=np.int64))
        traffic = Sharing.of(self.batch).traffic(trainer)
        return traffic.fetches if self.objective == "fetches" else traffic.max_load


def decoded(encoding: milp.Encoding, solution: Solution) -> tuple[Ints, bool] | None:
    """The trainers of a solution, and whether it was cut short; None where there is none."""
    if solution.values is None:
        return None
    is_cut = solution.stop_reason in (StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
    return milp.decode(encoding, solution.values), is_cut


def whole_bound(solution: Solution) -> int | None:
    """A solution's bound on whole numbers, rounded up, but for what solvers call equal."""
    bound = solution.bound
    return None if bound is None else int(np.ceil(bound - 1e-6 * max(1.0, abs(bound))))


# -- the methods -------------------------------------------------------------------------------------------------------

Found = list[Partition]
"""A partition of each batch."""

PAPER, BEYOND, SYNCHRONISED = ("paper",), ("fetches", "max-load"), ("synchronised", "time")


class Partitioned(Protocol):
    """What is partitioned: one batch, or batches in a row."""

    @property
    def objective(self) -> str:
        """What partitions make small."""

    @property
    def capacities(self) -> list[Ints]:
        """The places of each trainer, by batch."""

    def worth(self, trainers: list[Ints], method: str) -> Found:
        """What these partitions are worth, batch by batch."""

    def transported(self, options: SolveOptions) -> Found: ...
    def searched(self, options: SolveOptions) -> Found: ...
    def modelled(self, options: SolveOptions) -> Found | None: ...


@dataclass
class _First:
    """The search ends with the first partition; `options`: time limit, seed and backend of each method."""

    asked: Partitioned
    options: SolveOptions
    best: Found | None = None

    @property
    def is_over(self) -> bool:
        return self.best is not None

    def offer(self, candidate: Found) -> None:
        self.best = candidate


@dataclass(frozen=True)
class PartitionMethod:
    """A method for some objectives. `find`: gives None where there is no time. `has_backend`: whether a solver runs."""

    name: str
    objectives: tuple[str, ...]
    find: Callable[[Partitioned, SolveOptions], Found | None]
    has_backend: bool = False

    def supports(self, problem: Partitioned) -> bool:
        """Whether it is for the objective."""
        return problem.objective in self.objectives

    def run(self, search: _First) -> Iterator[Found]:
        """The partitions that it finds."""
        if (partitions := self.find(search.asked, search.options)) is not None:
            yield partitions


def contiguous(capacity: Ints) -> Ints:
    """The batch cut into runs, trainer by trainer, as the public code does."""
    return np.repeat(np.arange(len(capacity)), capacity)


def _contiguous(asked: Partitioned, options: SolveOptions) -> Found:
    return asked.worth([contiguous(places) for places in asked.capacities], "contiguous")


def _random(asked: Partitioned, options: SolveOptions) -> Found:
    """Of each batch from the same seed."""
    drawn = [np.random.default_rng(options.seed).permutation(contiguous(places)) for places in asked.capacities]
    return asked.worth(drawn, "random")


def _relaxed(asked: Partitioned, options: SolveOptions) -> Found | None:
    assert isinstance(asked, OneBatch)
    return asked.relaxed(options)


def _flown(asked: Partitioned, options: SolveOptions) -> Found | None:
    assert isinstance(asked, OneBatch)
    return asked.flown(options)


ALL = (*PAPER, *BEYOND, *SYNCHRONISED)
IN_ORDER = (
    PartitionMethod("search", (*BEYOND, *SYNCHRONISED), lambda asked, options: asked.searched(options)),
    PartitionMethod("transport", ALL, lambda asked, options: asked.transported(options)),
    PartitionMethod("contiguous", ALL, _contiguous),
    PartitionMethod("random", ALL, _random),
    PartitionMethod("min_cost_flow", PAPER, _flown),
    PartitionMethod("milp", ALL, lambda asked, options: asked.modelled(options), has_backend=True),
    PartitionMethod("lp", PAPER, _relaxed, has_backend=True),
)
"""What wins by docs/bagpipe.md's tables stands first; contiguous and random partitions are what others are held
against, the rest agrees with `transport` in more time."""


def partitioned(asked: Partitioned, choice: MethodChoice, options: SolveOptions) -> Found | None:
    """A partition of each batch by the first of the chosen methods that finds one; None if none does in time."""
    search = _First(asked, options)
    run_methods(IN_ORDER, asked, search, choice)
    return search.best


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
        Of `search` and its bound, and which methods are tried; all defaults if None.
    options
        Time limit and seed; the backend, of `milp` and `lp` alone.

    Raises
    ------
    InputError
        For an unknown objective or method, a method that doesn't suit the objective or takes no backend, capacities
        that don't fit.
    """
    check_known("objective", objective, (*PAPER, *BEYOND))
    options, parameters = options or SolveOptions(), parameters or Parameters()
    choice = checked_choice(objective, method, options.solver, parameters)
    places = checked_capacities(capacity, batch.examples, batch.trainers)
    partitions = partitioned(OneBatch(batch, places, objective, parameters), choice, options)
    return None if partitions is None else partitions[0]


def checked_choice(objective: str, method: str, solver: str | None, parameters: Parameters) -> MethodChoice:
    """The methods that may run: the one that is named, or for `auto` those that the parameters allow.

    Raises `InputError` for a method that is unknown, or doesn't go with the objective or solver.
    """
    check_known("objective", objective, OBJECTIVES)
    check_known("method", method, METHODS)
    choice = parameters.methods if method == "auto" else MethodChoice(only=(method,))
    allowed = [each for each in IN_ORDER if choice.allows(each.name)]
    first = next((each for each in allowed if objective in each.objectives), None)
    if solver is not None and not (first or allowed[0]).has_backend:
        got = (first or allowed[0]).name
        raise InputError(f"solver: goes with method milp or lp, got {solver!r} with {got}")
    if first is None:
        got = ", ".join(each.name for each in allowed)
        suits = _listed([name for name in OBJECTIVES if any(name in each.objectives for each in allowed)])
        suited = _listed([each.name for each in IN_ORDER if objective in each.objectives])
        where = "method" if method != "auto" else "methods"
        raise InputError(f"{where}: {got} is for {suits}, {_listed([objective])} has {suited}")
    return choice


def _listed(names: list[str]) -> str:
    """Names of methods or objectives, for people."""
    words = ["the paper's objective" if name == "paper" else name for name in names]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
