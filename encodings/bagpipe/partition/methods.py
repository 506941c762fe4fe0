"""The methods by which examples get their trainers, in the order in which they are tried.

The first that finds a partition is taken: `search` where it is for the objective, else `transport`. What stands behind
runs where it is asked for by name, or where a parameter file leaves out those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.cluster import checked_capacities
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition.batch import Batch
from gapless.encodings.bagpipe.partition.one_batch import OneBatch, Partition
from gapless.encodings.bagpipe.question import METHODS, OBJECTIVES
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.methods import MethodChoice, run_methods
from gapless.options import SolveOptions

__all__ = ["IN_ORDER", "Partition", "Partitioned", "checked_choice", "contiguous", "partition", "partitioned"]

Ints = NDArray[np.int64]
Found = list[Partition]
"""A partition of each batch."""

PAPER, BEYOND, SYNCHRONISED = ("paper",), ("fetches", "max-load"), ("synchronised",)


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
