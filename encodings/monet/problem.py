"""Problem: one training graph under one memory budget, for the least time or the least energy.

Search, relaxation and ILP see nothing of an implementation but its cost, and call that cost seconds. Least energy
(section 8.1 of the thesis) is their problem too, on a graph whose implementations take as many seconds as they use
joules.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, cast, get_args

from gapless.encodings.monet.offload.trips import Trips
from gapless.encodings.monet.question import DEVICE, METHODS, Question
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.encodings.monet.study.carried import Carried, carried_from
from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.options import SolveOptions
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import Implementation, TrainingGraph
from gapless.profiles.training.graph_file import read_training_graph
from gapless.profiles.training.networks import build, network_names
from gapless.profiles.training.optimizer import Updates, updates_of, with_optimizer
from gapless.question import from_question
from gapless.question.fields import Share
from gapless.report.short_repr import BriefQuestion
from gapless.topologies.host import HostLink, host_link
from gapless.units import Unit

__all__ = [
    "OBJECTIVES",
    "OFFLOADING",
    "UNITS",
    "Objective",
    "Problem",
    "budget_bytes",
    "costed",
    "find_graph",
    "found_graph",
    "problem",
    "problem_of",
]

Objective = Literal["time", "energy"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
OFFLOADING = ("offload-all", "offload-layers", "offload-blocks")
"""The methods that need a link, beside `auto`, which may have one."""
UNITS: dict[Objective, Unit] = {"time": "s", "energy": "j"}


def costed(graph: TrainingGraph, objective: Objective) -> TrainingGraph:
    """The graph on which the least time is the least of the objective; all numbers stay.

    For energy, the duration of each implementation is its joules. Raises `InputError` where a power is unknown.
    """
    if objective == "time":
        return graph
    return graph.with_implementations(lambda name, impl: replace(impl, duration_s=_energy_j(name, impl), power_w=None))


def _energy_j(name: str, impl: Implementation) -> float:
    if impl.energy_j is None:
        raise InputError(
            f"objective 'energy': every implementation must have power_w, one of node {name!r} has none; the built-in "
            "networks have it, measured graphs do not"
        )
    return impl.energy_j


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Which activations to keep or recompute, and how every operator runs, so that a step takes the least time.

    No step may hold more than `budget_bytes`, neither in the paper's memory rows nor in the replay.
    `starts`: keep-sets of this graph from which the search may begin, such as those of other budgets' plans.
    `objective`: "energy" for the step that uses the least energy instead, for which every power must be known.
    `method`: what decides, one of `METHODS`; whichever it is, the bound holds for the question. `carried`: a plan of
    the same network at another batch size, whose decisions are taken over. `link`: to the host, over which tensors may
    travel, None for none; with one, what the step holds is the replay's word alone. `updates`: of an optimiser whose
    states may travel over the link, and aren't among the fixed bytes of the graph. `trips`: which of them do, for a
    search among plans that have no choice. Raises `InputError`.
    """

    graph: TrainingGraph
    budget_bytes: int
    starts: tuple[KeepSet, ...] = field(default=(), repr=False, compare=False)
    objective: Objective = cast("Objective", Question.objective)
    method: str = Question.method
    carried: Carried | None = field(default=None, repr=False)
    link: HostLink | None = None
    updates: Updates | None = field(default=None, repr=False)
    trips: Trips | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.budget_bytes < 1:
            raise InputError(f"budget_bytes must be >= 1, got {self.budget_bytes}")
        if self.objective not in OBJECTIVES:
            raise InputError(f"objective must be one of {', '.join(OBJECTIVES)}, got {self.objective!r}")
        if self.method not in METHODS:
            hint = suggestion(self.method, METHODS)
            rule = f"method must be one of {', '.join(METHODS)}, got {self.method!r}"
            raise InputError(f"{rule}; {hint}" if hint else rule)
        self._check_link()
        if self.carried is not None:
            if self.method != "auto":
                raise InputError(f"carry: a carried plan decides by itself; leave method {self.method!r} out")
            self.carried.on(self.graph)  # refuses a plan of other operators
        shape = (len(self.graph.forward), len(self.graph.forward), len(self.graph.backward))
        for start in self.starts:
            if (len(start.kept), len(start.dropped), len(start.variant)) != shape:
                raise InputError(f"starts must be keep-sets of the graph {self.graph.name!r}, got one of another")
        costed(self.graph, self.objective)  # refuses a graph that doesn't say what its implementations cost

    def _check_link(self) -> None:
        if self.updates is not None and len(self.updates.states_bytes) != len(self.graph.backward):
            raise InputError(f"updates must be of the {len(self.graph.backward)} backward nodes of the graph")
        if self.link is None:
            if self.method in OFFLOADING:
                raise InputError(f"method {self.method!r} needs a link to the host: give --offload, such as 25GB/s")
            if self.updates is not None:
                raise InputError("updates must have a link to travel over; count states among the graph's fixed bytes")
            return
        if self.method not in ("auto", *OFFLOADING):
            rule = f"offload: method must be one of auto, {', '.join(OFFLOADING)}, got {self.method!r}"
            raise InputError(f"{rule}; leave --offload out for it")
        if self.objective != "time":
            raise InputError(
                f"offload: objective must be time, got {self.objective!r}: the power of a copy is not known"
            )
        if self.carried is not None:
            raise InputError("offload: a carried plan is carried without a link; leave --offload out")

    def as_time(self) -> Problem:
        """The same problem as one of least time: where the objective is energy, a second stands for a joule."""
        return replace(self, graph=costed(self.graph, self.objective), objective="time")

    def at_rest(self) -> Problem | None:
        """The same for a search that knows of no optimiser, whose states stay on the device; None if they can't."""
        if self.updates is None:
            return self
        left_bytes = self.budget_bytes - self.updates.total_bytes
        return None if left_bytes < 1 else replace(self, budget_bytes=left_bytes, updates=None, trips=None)

    @cached_property
    def bound_graph(self) -> TrainingGraph:
        """The graph that every plan is one of, for bounds: gradients that may travel are there as they are made."""
        if self.updates is None or self.updates.gradients != "offloaded":
            return self.graph
        return with_optimizer(self.graph, "sgd", are_applied=True)

    @property
    def unit(self) -> Unit:
        """What the objective is counted in."""
        return UNITS[self.objective]

    @property
    def system(self) -> str:
        """`monet`."""
        return "monet"

    @property
    def description(self) -> dict[str, object]:
        """What was asked, for the plan file."""
        return {
            "graph": self.graph.name,
            "batch": self.graph.batch,
            "budget_bytes": self.budget_bytes,
            "objective": self.objective,
            "method": self.method,
            "forward_nodes": len(self.graph.forward),
            "backward_nodes": len(self.graph.backward),
            "source": self.graph.source,
            **({} if self.link is None else self.link.description),
            **({} if self.carried is None else {"carried": f"{self.carried.name}, batch {self.carried.batch}"}),
        }

    @property
    def default_options(self) -> SolveOptions:
        """Within 2 % of the best possible, or what two minutes give."""
        return SolveOptions(gap=0.02, time_limit_s=120.0)


def problem_of(asked: Question) -> Problem:
    """A training step within a budget. Raises `InputError` naming a field that doesn't go with the others."""
    graph = found_graph(asked.graph, asked.batch, asked.device, asked.optimizer, asked.gradients)
    budget, link = budget_bytes(asked.budget, graph), host_link(asked.offload, asked.host_memory)
    updates = None
    if asked.gradients == "offloaded" and link is None:
        raise InputError("gradients: must have a link to be offloaded over; give --offload, such as 25GB/s")
    if link is not None and asked.optimizer != "none":
        plain = find_graph(asked.graph, asked.batch, asked.device)
        graph = with_optimizer(plain, asked.optimizer, asked.gradients == "applied", are_fixed=False)
        updates = updates_of(plain, asked.optimizer, asked.gradients)
    return Problem(
        graph,
        budget,
        objective=cast("Objective", asked.objective),
        method=asked.method,
        carried=None if asked.carry is None else carried_from(asked.carry),
        link=link,
        updates=updates,
    )


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""


def found_graph(
    graph: str | TrainingGraph, batch: int | None, device: str | None, optimizer: str, gradients: str
) -> TrainingGraph:
    """The graph of a question, with its optimiser. Raises `InputError` for gradients that go without one."""
    if optimizer == "none" and gradients != "kept":
        raise InputError(
            "gradients: must be kept where there is no optimizer to apply them; give --optimizer, such as sgd"
        )
    found = find_graph(graph, batch, device)
    return found if optimizer == "none" else with_optimizer(found, optimizer, gradients == "applied")


def find_graph(graph: str | TrainingGraph, batch: int | None, device: str | None) -> TrainingGraph:
    """The graph of a named network, in a file, or given."""
    names = network_names()
    if isinstance(graph, str) and graph in names:
        if batch is None:
            raise InputError(f"batch: must be given: {graph} is built for any batch size")
        return build(graph, batch, device or DEVICE)
    hint = suggestion(graph, names) if isinstance(graph, str) else ""
    if batch is not None or device is not None:
        got = f"{graph!r}" + (f"; {hint}" if hint else "") if isinstance(graph, str) else "a graph"
        raise InputError(f"`batch` and `device` go with a named network ({', '.join(names)}), got {got}")
    if isinstance(graph, TrainingGraph):
        return graph
    if hint and not os.path.exists(graph):
        raise InputError(f"graph: must be a file or one of {', '.join(names)}, got {graph!r}; {hint}")
    return read_training_graph(graph)


def budget_bytes(budget: int | Share, graph: TrainingGraph) -> int:
    """A budget in bytes, where it is a share of what the graph takes without saving."""
    if isinstance(budget, Share):
        return max(int(budget.ratio * peak_without_saving_bytes(graph)), 1)
    return budget
