"""The methods that order the ops of a cut with plain messages, and a bound on every other order.

Those that make an order stand first, in the order in which they are tried; the best of what they make is improved by
the others until it is proven to be the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.destructive import time_indexed_bound
from gapless.encodings.pipeline.bounds.offload import without_link
from gapless.encodings.pipeline.compression.modes import spoiling_of
from gapless.encodings.pipeline.compression.recipes import recipe_orders
from gapless.encodings.pipeline.compression.rules import RECIPES
from gapless.encodings.pipeline.order.exact.model import order_model, order_of, values_of
from gapless.encodings.pipeline.order.neighbourhood import improved
from gapless.encodings.pipeline.order.offload import on_device, restored
from gapless.encodings.pipeline.order.orders import Candidate, Order
from gapless.encodings.pipeline.order.stages import Cut, Kind, Stages
from gapless.encodings.pipeline.order.ticks import in_ticks, refined
from gapless.encodings.pipeline.order.timeline import has_room, timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.parameters import DEFAULTS, Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.schedules.baselines import BASELINES, apart, suits, whole
from gapless.encodings.pipeline.schedules.bases import all_bases, round_orders
from gapless.encodings.pipeline.schedules.squeeze import best_squeezed
from gapless.methods import Method, MethodChoice, run_methods
from gapless.options import Deadline, SolveOptions
from gapless.solution import PROVEN_GAP, Status
from gapless.solvers.proofs import confirmed
from gapless.solvers.registry import solve_model

__all__ = ["IMPROVING", "MAKING", "Orders", "best_orders", "first_orders", "improved_orders", "quick_orders"]

_FEW_OPS = 100
"""What the exact method is tried on before neighbourhoods, with several stages a rank too."""

_rank = attrgetter("rank")
Offer = Callable[[Candidate], None]
"""Takes each order that is better than those before it."""


@dataclass
class Orders:
    """What is known of the orders of a cut, and what its methods share.

    `most_ops`: that the heuristic schedules. `known`: orders that were made. `best`: the one that is improved, None
    where there is none within memory. `bounds_s`: seconds by name; those of `bounds_of` hold for every choice of modes,
    `exact` for plain messages. `report`: takes each order that is better than those before it.
    `is_improving`: whether methods improve the best, or make orders; once one takes no more than `goal_s`, no others.
    """

    problem: Problem
    cut: Cut
    stages: Stages
    options: SolveOptions
    deadline: Deadline
    parameters: Parameters
    most_ops: int
    known: list[Candidate] = field(default_factory=list)
    best: Candidate | None = None
    bounds_s: dict[str, float] = field(default_factory=dict)
    report: Offer = lambda candidate: None
    is_improving: bool = False
    goal_s: float = 0.0

    @property
    def bound_s(self) -> float:
        """The highest of the bounds."""
        return max(self.bounds_s.values())

    @property
    def proven(self) -> bool:
        """Whether no plain order is better than the best."""
        return self.best is not None and self.bound_s >= self.best.timeline.cost_s * (1 - PROVEN_GAP)

    @cached_property
    def rounds(self) -> list[Order]:
        """Orders by zero-bubble's rules, made once for all methods."""
        return list(round_orders(self.stages))

    @property
    def is_small(self) -> bool:
        """Whether the whole order is left to the exact method."""
        return self.stages.ranks * self.stages.micro_batches * self.stages.slices <= self.parameters.exact_ops

    @property
    def choice(self) -> MethodChoice:
        """The methods that the question asks for: one by its name, or those that the parameters leave."""
        asked, left = self.problem.method, self.parameters.methods
        if asked == "search":
            return replace(left, without=(*left.without, "exact"))
        return left if asked == "auto" else MethodChoice(only=(asked,))

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to improve, or to make."""
        if self.is_improving:
            return self.proven or self.deadline.over
        return any(made.timeline.cost_s <= self.goal_s for made in self.known)

    def offer(self, candidate: Candidate) -> None:
        """An order that was made; or one that was improved, and counts where it is better than the best."""
        if not self.is_improving:
            self.known.append(candidate)
        elif self.best is None or candidate.rank < self.best.rank:
            self.best = candidate
            self.report(candidate)

    def candidate(self, method: str, stages: Stages, order: Order) -> Candidate | None:
        """None where ranks wait for each other forever, or memory doesn't suffice."""
        timeline = timed(stages, order)
        if timeline is None or not has_room(stages, order, timeline):
            return None
        return Candidate(method, self.cut, stages, order, timeline)

    @property
    def start(self) -> Candidate | None:
        """What is improved: the best order, its backwards split if they may be; else the heuristic's first."""
        best = min(self.known, key=_rank, default=None)
        split = [each for each in self.known if each.stages.splits == self.stages.splits]
        if best is not None and best.stages.splits != self.stages.splits:
            made = self.candidate(best.method, self.stages, apart(self.stages, best.order))
            split += [] if made is None else [made]
        return min(split, key=_rank, default=None) or next(iter(ZeroBubble().first(self)), None)


@dataclass(frozen=True)
class Schedule:
    """A schedule that the field runs, by its name."""

    name: str

    def supports(self, problem: Problem) -> bool:
        """Whether it is for the placement."""
        return BASELINES[self.name].placement == problem.placement

    def run(self, search: Orders) -> Iterator[Candidate]:
        """Its order, where it stays within memory. What it does as one op goes apart where backwards are split and
        what they take as one is known.
        """
        baseline, measured = BASELINES[self.name], search.problem.profile.whole_backward_s is not None
        if suits(self.name, search.problem.placement, search.stages):
            stages = search.stages if baseline.splits else whole(search.stages)
            order = baseline.order(stages)
            if stages.splits != search.stages.splits and (measured or search.stages.sums_after_sends):
                stages, order = search.stages, apart(search.stages, order)
            candidate = search.candidate(self.name, stages, order)
            if candidate is not None:
                yield candidate


@dataclass(frozen=True)
class Following:
    """A recipe of Optimus-CC, by its name: a schedule of the field, and what of it is compressed."""

    name: str

    def supports(self, problem: Problem) -> bool:
        """Whether it is for the placement."""
        return BASELINES[RECIPES[self.name].schedule].placement == problem.placement

    def run(self, search: Orders) -> Iterator[Candidate]:
        """Its orders, one for each choice of modes within the error budget, where they stay within memory."""
        problem, stages = search.problem, search.stages
        spoiling = spoiling_of(problem, search.cut, stages.crosses)
        for order in recipe_orders(problem, RECIPES[self.name], stages, spoiling):
            candidate = search.candidate(self.name, whole(stages), order)
            if candidate is not None:
                yield candidate


@dataclass(frozen=True)
class ZeroBubble:
    """The zero-bubble heuristic with memory."""

    name: str = "zero-bubble"

    def supports(self, problem: Problem) -> bool:
        """Every question."""
        return True

    def run(self, search: Orders) -> Iterator[Candidate]:
        """The best order of as many sets of rules as there is work for, and of the paper's rounds."""
        known_s = min((candidate.timeline.step_s for candidate in search.known), default=math.inf)
        made = zero_bubble(search.stages, search.most_ops, search.deadline, known_s, search.goal_s)
        found = [] if made is None else [Candidate(self.name, search.cut, search.stages, *made)]
        for order in search.rounds:
            candidate = search.candidate(self.name, search.stages, order)
            found += [] if candidate is None else [candidate]
        if found:
            yield min(found, key=_rank)

    def first(self, search: Orders) -> list[Candidate]:
        """That of its first rules, in linear time; none where there is no room for a micro-batch."""
        made = zero_bubble(search.stages, 1)
        return [] if made is None else [Candidate(self.name, search.cut, search.stages, *made)]


@dataclass(frozen=True)
class Squeezed:
    """Schedules of the field, the zero-bubble paper's rounds and repeated building blocks, squeezed into memory."""

    name: str = "squeezed"

    def supports(self, problem: Problem) -> bool:
        """Every question."""
        return True

    def run(self, search: Orders) -> Iterator[Candidate]:
        """The best order of as many as there is work for."""
        bases = all_bases(search.stages, search.problem.placement, search.rounds)
        made = best_squeezed(search.stages, bases, search.most_ops, search.deadline, search.goal_s)
        if made is not None:
            yield Candidate(self.name, search.cut, search.stages, *made)


@dataclass(frozen=True)
class Neighbourhood:
    """Large-neighbourhood search from the best order."""

    name: str = "neighbourhood"

    def supports(self, problem: Problem) -> bool:
        """Every question."""
        return True

    def run(self, search: Orders) -> Iterator[Candidate]:
        """Each order that is better than those before it."""
        best = search.best
        assert best is not None
        goal_s, seed = search.bound_s, search.options.seed
        for order in improved(best.stages, best.order, goal_s, seed, search.deadline, search.parameters):
            candidate = search.candidate(self.name, best.stages, order)
            if candidate is not None:
                yield candidate


@dataclass(frozen=True)
class TimeIndexed:
    """No order, but the bound `time-indexed`, as far as it helps to prove the best."""

    name: str = "time-indexed"

    def supports(self, problem: Problem) -> bool:
        """Every question."""
        return True

    def run(self, search: Orders) -> Iterator[Candidate]:
        """Of ranks alone, and of links."""
        best = search.best
        assert best is not None
        ticked = in_ticks(best.stages, best.timeline.cost_s)
        start = timed(ticked.stages, best.order)
        if start is None:  # ticks are rounded down, so that messages may lack room that they had
            return
        least, most, parameters = max(bounds_of(ticked.stages).values()), np.ceil(start.cost_s), search.parameters
        every = without_link(ticked.stages, most) if ticked.stages.offloads else [ticked.stages]
        for stages in every:
            bound = time_indexed_bound(stages, least, most, parameters.bound_points, parameters.bound_ranks,
                                       search.deadline)  # fmt: skip
            search.bounds_s[self.name] = max(bound * ticked.tick_s, search.bounds_s.get(self.name, 0.0))
        yield from ()


@dataclass(frozen=True)
class Exact:
    """The order as one model, from the best that is known; never worse than that. Adds the bound `exact`.

    `most_ops`: where ranks have several stages, or slices. It hardly ever gets far with more without neighbourhoods.
    """

    most_ops: float = math.inf
    name: str = "exact"

    def supports(self, problem: Problem) -> bool:
        """One stage a rank, or few enough ops, without copies to hosts; a search has to be small besides."""
        if problem.link is not None:  # the model has whole stashes on ranks
            return False
        ops = len(Kind) * problem.stage_count * problem.micro_batches * problem.slices
        return problem.chunks * problem.slices == 1 or ops <= self.most_ops

    def run(self, search: Orders) -> Iterator[Candidate]:
        """One thread, so that the plan doesn't depend on their number. An optimum counts as proven where a bound of our
        own says the same, or a second run, of another seed and without presolve. Not of steps that follow one another
        where there are two copies of the model.
        """
        best = search.best
        if best is None or not search.is_small or (best.stages.steps > 1 and best.stages.copies > 1):
            return
        ticked, slack = refined(in_ticks(best.stages, best.timeline.cost_s), best.timeline.cost_s)
        stages = ticked.stages
        start = timed(stages.one_step if stages.steps > 1 else stages, best.order)
        if start is None:  # as above
            return
        most = float(np.ceil(start.cost_s) + (stages.steps - 1) * start.finish_s[stages.rank[0]])
        ordered = order_model(stages, most, min(search.bound_s // ticked.tick_s, most))
        options = replace(search.deadline.stage(), threads=1, gap=0.0, step_limit=search.parameters.exact_steps,
                          on_progress=None, on_plan=None)  # fmt: skip
        claimed = solve_model(ordered.model, options, "cpsat", values_of(ordered, start, best.order))
        if claimed.values is not None:
            candidate = search.candidate(self.name, best.stages, order_of(ordered, claimed.values))
            if candidate is not None:
                yield candidate
        if claimed.status is Status.OPTIMAL and not search.proven:
            claimed = confirmed(ordered.model, claimed, replace(options, seed=(options.seed + 1) % 2**31), "cpsat")
        if claimed.bound is not None:
            bound_s = (claimed.bound - slack) * ticked.tick_s
            search.bounds_s["exact"] = max(bound_s, search.bounds_s.get("exact", 0.0))


OrderMethod = Method[Problem, Orders, Candidate]
MAKING: tuple[OrderMethod, ...] = (*(Schedule(name) for name in BASELINES), Squeezed(), ZeroBubble())
IMPROVING: tuple[OrderMethod, ...] = (Exact(_FEW_OPS), TimeIndexed(), Neighbourhood(), Exact())


def _making(problem: Problem) -> tuple[OrderMethod, ...]:
    """What makes orders: a recipe only where it is asked for by name."""
    return (Following(problem.method),) if problem.method in RECIPES else MAKING


def quick_orders(
    problem: Problem, cut: Cut, stages: Stages, options: SolveOptions, deadline: Deadline, parameters: Parameters,
) -> list[Candidate]:  # fmt: skip
    """The schedules of the field, and a short run of the heuristic."""
    search = Orders(problem, cut, stages, options, deadline, parameters, parameters.quick_ops)
    _make(search)
    return search.known


def _make(search: Orders) -> None:
    """Orders by all methods that make some; and, with a link to hosts, for what is on ranks then."""
    run_methods(_making(search.problem), search.problem, search, search.choice)
    for stages in on_device(search.stages) if search.stages.offloads else ():
        own = replace(search, stages=stages, known=[], goal_s=0.0)
        run_methods((Squeezed(), ZeroBubble()), search.problem, own, search.choice)
        for found in own.known:
            candidate = search.candidate(found.method, restored(found.stages, search.stages), found.order)
            if candidate is not None:
                search.offer(candidate)


def best_orders(
    problem: Problem, cut: Cut, stages: Stages, options: SolveOptions, deadline: Deadline, parameters: Parameters,
    known: Iterable[Candidate] = (), offer: Offer = lambda candidate: None, improves: bool = True, ends: bool = False,
) -> Orders:  # fmt: skip
    """Orders by all methods, the best of them improved, if it `improves`, until it is proven. `known`: orders of the
    same stages, if any. `offer` takes the best that was made, then each that is better. `ends`: where orders have many
    ops, no more are made once one is proven.
    """
    search = Orders(problem, cut, stages, options, deadline, parameters, parameters.heuristic_ops,
                    known=list(known), bounds_s=bounds_of(stages), report=offer)  # fmt: skip
    if ends and len(Kind) * stages.count * stages.micro_batches > parameters.quick_ops:
        search.goal_s = search.bound_s * (1 + PROVEN_GAP)
    _make(search)
    made = search.best = min(search.known, key=_rank, default=None)
    if made is None:
        return search
    offer(made)
    improves = improves and any(search.choice.allows(method.name) for method in IMPROVING)
    if improves and not search.proven and (start := search.start) is not None:
        search.best, search.is_improving = start, True
        run_methods(IMPROVING, problem, search, search.choice)
        search.best = min(made, search.best, key=_rank)
    return search


def improved_orders(
    problem: Problem, best: Candidate, options: SolveOptions, deadline: Deadline, parameters: Parameters, offer: Offer,
) -> Orders:  # fmt: skip
    """An order improved on its own stages until it is proven; `offer` takes each that is better."""
    search = Orders(problem, best.cut, best.stages, options, deadline, parameters, parameters.heuristic_ops, best=best,
                    bounds_s=bounds_of(best.stages), report=offer, is_improving=True)  # fmt: skip
    run_methods(IMPROVING, problem, search, search.choice)
    return search


def first_orders(problem: Problem, cut: Cut, stages: Stages) -> list[Candidate]:
    """One order, in a time that grows with the ops: the placement's 1F1B, or the heuristic's first rules, which keep to
    any memory that has room for a micro-batch; none where there is no room.
    """
    of_line = "1f1b" if stages.slices == 1 else "seq1f1b"
    usual = {"linear": of_line, "looped": "interleaved-1f1b", "v": "zb-v", "bidirectional": "chimera"}.get(
        str(problem.placement), "zero-bubble"
    )
    name = problem.method if problem.method in BASELINES else usual
    search = Orders(problem, cut, stages, SolveOptions(), Deadline(SolveOptions()), DEFAULTS, most_ops=1)
    if problem.method in RECIPES:
        return list(Following(problem.method).run(search))
    made = list(Schedule(name).run(search)) if name in BASELINES and problem.method != "zero-bubble" else []
    return made if made or problem.method in BASELINES else ZeroBubble().first(search)
