"""Problem: a sparse allreduce of recorded index sets on a network, to be cut into regions with owners."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.allreduce.network import ENTRY_BYTES, Adding, Network, flat_topology
from gapless.encodings.oktopk.question import (
    BANDWIDTH_BYTES_PER_S,
    LATENCY_S,
    METHODS,
    OBJECTIVES,
    SELECTIONS,
    Question,
)
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.options import SolveOptions
from gapless.profiles.sparsity.index_file import find_index_sets
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.question import from_question
from gapless.report.short_repr import BriefQuestion
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

__all__ = ["Problem", "network_of", "problem", "problem_of"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Which cuts and owners make the slowest rank of a sparse allreduce soonest done, in the recorded steps.

    `sets`: of all steps, of which the last `held_out` are set apart: plans aren't made for them, but judged on them.
    `objective`: the worst of the recorded steps, or all of them in turn (`mean`). `selection`: whether every rank gets
    the `topk` largest of the sum, as many as a rank selects, or `all` of the union. `adding`: what it takes a rank to
    add what it receives. Raises `InputError` naming the field.
    """

    sets: IndexSets = field(repr=False)
    topology: Topology = field(repr=False)
    held_out: int = Question.held_out
    objective: str = Question.objective
    selection: str = "all"
    method: str = Question.method
    adding: Adding = field(default_factory=Adding)

    def __post_init__(self) -> None:
        for name, known in (("objective", OBJECTIVES), ("selection", SELECTIONS[1:]), ("method", METHODS)):
            check_known(name, getattr(self, name), known)
        if not 0 <= self.held_out < self.sets.steps:
            most = self.sets.steps - 1
            raise InputError(
                f"held_out: must leave one of the {self.sets.steps} steps, at most {most}, got {self.held_out}"
            )
        if self.topology.device_count != self.sets.ranks:
            count = self.topology.device_count
            rule = f"topology {self.topology.name!r} has {count} ranks, the index sets {self.sets.ranks}"
            raise InputError(f"ranks: must be the same, {rule}; choose ranks or nodes")
        if self.sets.ranks < 2:
            raise InputError(f"ranks: must be >= 2, got {self.sets.ranks}")
        if self.selection == "topk" and self.sets.values is None:
            raise InputError("selection: topk needs values in the index sets; record them, or take all")
        self.network.paths  # noqa: B018  raises where a rank can't be reached

    @cached_property
    def recorded(self) -> IndexSets:
        """The steps that the plan is made for."""
        return self.sets.part(steps=slice(0, self.sets.steps - self.held_out))

    @cached_property
    def later(self) -> IndexSets | None:
        """The steps that are set apart; None where there are none."""
        return self.sets.part(steps=slice(self.sets.steps - self.held_out, None)) if self.held_out else None

    @cached_property
    def network(self) -> Network:
        """The topology with its routes."""
        return Network(self.topology, ENTRY_BYTES * float(self.sets.counts.mean()) / self.sets.ranks, self.adding)

    def selected(self, sets: IndexSets, step: int) -> Ints:
        """The entries that every rank must end with, ascending."""
        if self.selection == "all":
            return sets.union(step)
        return sets.global_top(step, int(sets.counts[step].max()))

    @property
    def system(self) -> str:
        """`oktopk`."""
        return "oktopk"

    @property
    def description(self) -> dict[str, object]:
        """What was asked, for the plan file."""
        return {
            "indices": self.sets.name,
            **{name: getattr(self.sets, name) for name in ("elements", "ranks", "density", "steps")},
            "held_out": self.held_out,
            "topology": self.topology.name,
            **{name: getattr(self, name) for name in ("objective", "selection", "method")},
            **({} if self.adding.is_free else {"add": self.adding.entry_s, "add_start": self.adding.start_s}),
        }

    @property
    def default_options(self) -> SolveOptions:
        """Within a minute."""
        return SolveOptions(time_limit_s=60.0)


def network_of(asked: Question, ranks: int | None) -> Topology | None:
    """The topology asked for; without one, a flat network of so many ranks, None where they aren't known yet.

    Raises `InputError`.
    """
    if asked.nodes is not None and not isinstance(asked.topology, str):
        raise InputError("nodes: goes with topology, a name")
    if asked.topology is not None:
        for name in ("bandwidth", "latency"):
            if getattr(asked, name) is not None:
                raise InputError(f"{name}: goes without topology; give one of them")
        return load_topology(asked.topology, asked.nodes) if isinstance(asked.topology, str) else asked.topology
    if ranks is None:
        return None
    latency_s = LATENCY_S if asked.latency is None else asked.latency
    return flat_topology(ranks, asked.bandwidth or BANDWIDTH_BYTES_PER_S, latency_s)


def problem_of(asked: Question) -> Problem:
    """The sparse allreduce that is asked for. Raises `InputError` naming a field that doesn't go with the others."""
    machine = network_of(asked, None)
    wanted = machine.device_count if asked.ranks is None and machine is not None else asked.ranks
    if machine is not None and machine.device_count != wanted:
        got = f"{wanted}, and {machine.device_count} in topology {machine.name!r}"
        raise InputError(f"ranks: must be as many as the topology has, got {got}; choose nodes")
    sets = find_index_sets(asked.indices, wanted, asked.density)
    machine = network_of(asked, sets.ranks)
    assert machine is not None
    selection = asked.selection
    if selection == "auto":
        selection = "all" if sets.values is None else "topk"
    adding = Adding(asked.add_start, asked.add)
    return Problem(sets, machine, asked.held_out, asked.objective, selection, asked.method, adding)


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""
