"""The best order of a fixed cut with plain messages, and a bound on every other order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gapless.encodings.pipeline.cut.costs import Cut
from gapless.encodings.pipeline.order.baselines import BASELINES, suits, whole
from gapless.encodings.pipeline.order.bounds import bounds_of
from gapless.encodings.pipeline.order.exact import in_ticks, order_model, order_of, values_of
from gapless.encodings.pipeline.order.neighbourhood import improved
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import Order, Timeline, peak_bytes, timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.options import Deadline, SolveOptions
from gapless.solution import PROVEN_GAP, Status
from gapless.solvers.proofs import confirmed
from gapless.solvers.registry import solve_model

__all__ = ["Candidate", "Ordered", "baselines", "best_orders", "first_orders"]


@dataclass(frozen=True)
class Candidate:
    """An order of some stages that stays within memory, and what made it."""

    method: str
    cut: Cut
    stages: Stages
    order: Order
    timeline: Timeline

    @property
    def rank(self) -> tuple[float, float]:
        """The step time, and among equals the spread of the ranks' ends."""
        return self.timeline.step_s, self.timeline.spread_s


@dataclass(frozen=True)
class Ordered:
    """What is known of the orders of a cut. `best`: None where there is none within memory. `known`: the baselines and
    the heuristic's. `bounds_s`: seconds by name; those of `bounds_of` hold for every choice of modes, `exact` for plain
    messages.
    """

    best: Candidate | None
    known: list[Candidate]
    bounds_s: dict[str, float]

    @property
    def bound_s(self) -> float:
        """The highest of the bounds."""
        return max(self.bounds_s.values())

    @property
    def proven(self) -> bool:
        """Whether no plain order is faster than the best."""
        return self.best is not None and _is_proven(self.best, self.bounds_s)


Offer = Callable[[Candidate], None]
"""Takes each order that is better than those before it."""


def best_orders(
    problem: Problem, cut: Cut, stages: Stages, options: SolveOptions, deadline: Deadline, parameters: Parameters,
    known: list[Candidate] | None = None, offer: Offer | None = None,
) -> Ordered:  # fmt: skip
    """Baselines and the heuristic first; the best of them improved until it is proven to be the best, exactly where
    there are few ops, in neighbourhoods beyond. `known`: orders of the same stages, if any.
    """
    found = [*(known or []), *baselines(problem, cut, stages)]
    if problem.method in ("auto", "search", "zero-bubble"):
        made = zero_bubble(stages, parameters.heuristic_ops, deadline)
        found += [] if made is None else [Candidate("zero-bubble", cut, stages, *made)]
    best, bounds_s = min(found, key=lambda candidate: candidate.rank, default=None), bounds_of(stages)
    offer = offer or _ignore
    if best is not None:
        offer(best)
    if best is not None and problem.method in ("auto", "search") and not _is_proven(best, bounds_s):
        start = min((each for each in found if each.stages.splits == stages.splits), key=lambda each: each.rank)
        search = _Search(options, deadline, parameters, offer, bounds_s)
        start = search.run(start, problem.method == "auto")
        best = min(best, start, key=lambda candidate: candidate.rank)
    return Ordered(best, found, bounds_s)


def _ignore(candidate: Candidate) -> None:
    """Nobody wants to know of orders before the last."""


def _is_proven(best: Candidate, bounds_s: dict[str, float]) -> bool:
    return max(bounds_s.values()) >= best.timeline.step_s * (1 - PROVEN_GAP)


def baselines(problem: Problem, cut: Cut, stages: Stages) -> list[Candidate]:
    """The schedules that the field runs, where they suit the placement and stay within memory."""
    found = []
    for name, baseline in BASELINES.items():
        if suits(name, problem.placement, stages) and problem.method in ("auto", "search", name):
            costs = stages if baseline.splits else whole(stages)
            candidate = _candidate(name, cut, costs, baseline.order(costs))
            found += [] if candidate is None else [candidate]
    return found


def first_orders(problem: Problem, cut: Cut, stages: Stages) -> list[Candidate]:
    """One order, in a time that grows with the ops: the placement's 1F1B, or the heuristic's first rules, which keep to
    any memory that has room for a micro-batch; none where there is no room.
    """
    usual = {"linear": "1f1b", "looped": "interleaved-1f1b", "v": "zb-v"}[problem.placement]
    name = problem.method if problem.method in BASELINES else usual
    if suits(name, problem.placement, stages) and problem.method != "zero-bubble":
        costs = stages if BASELINES[name].splits else whole(stages)
        found = _candidate(name, cut, costs, BASELINES[name].order(costs))
        if found is not None or problem.method in BASELINES:
            return [] if found is None else [found]
    made = zero_bubble(stages, 1)
    return [] if made is None else [Candidate("zero-bubble", cut, stages, *made)]


def _candidate(method: str, cut: Cut, stages: Stages, order: Order) -> Candidate | None:
    """None where ranks wait for each other forever, or memory doesn't suffice."""
    timeline = timed(stages, order)
    if timeline is None or (peak_bytes(stages, timeline) > stages.room_bytes).any():
        return None
    return Candidate(method, cut, stages, order, timeline)


@dataclass(frozen=True)
class _Search:
    """What improves an order until a bound says that it is the best; adds the bound `exact` to `bounds_s`."""

    options: SolveOptions
    deadline: Deadline
    parameters: Parameters
    offer: Offer
    bounds_s: dict[str, float]

    def run(self, best: Candidate, is_exact: bool) -> Candidate:
        """The exact method where there are few ops, before and after neighbourhoods; those alone, where there are many.

        Where ranks have several stages, it hardly ever gets far without the neighbourhoods.
        """
        stages, parameters = best.stages, self.parameters
        is_small = is_exact and stages.ranks * stages.micro_batches <= parameters.exact_ops
        if is_small and stages.count == stages.ranks:
            best = self.exact(best)
        if not _is_proven(best, self.bounds_s):
            best = self.improved(best)
        if is_small and not _is_proven(best, self.bounds_s) and not self.deadline.over:
            best = self.exact(best)
        return best

    def exact(self, best: Candidate) -> Candidate:
        """The order as one model, from the best that is known; never worse than that.

        One thread, so that the plan doesn't depend on their number. An optimum counts as proven where a bound of our
        own says the same, or a second run, of another seed and without presolve.
        """
        ticked = in_ticks(best.stages, best.timeline.step_s)
        start = timed(ticked.stages, best.order)
        assert start is not None, "an order that was timed can be timed in ticks"
        ordered = order_model(ticked.stages, start.step_s, max(bounds_of(ticked.stages).values()))
        options = replace(self.deadline.stage(), threads=1, gap=0.0, step_limit=self.parameters.exact_steps,
                          on_progress=None, on_plan=None)  # fmt: skip
        claimed = solve_model(ordered.model, options, "cpsat", values_of(ordered, start))
        if claimed.values is not None:
            candidate = _candidate("exact", best.cut, best.stages, order_of(ordered, claimed.values))
            best = self.better(best, candidate)
        if claimed.status is Status.OPTIMAL and not _is_proven(best, self.bounds_s):
            claimed = confirmed(ordered.model, claimed, replace(options, seed=(options.seed + 1) % 2**31), "cpsat")
        if claimed.bound is not None:
            bound_s = claimed.bound * ticked.tick_s
            self.bounds_s["exact"] = max(bound_s, self.bounds_s.get("exact", 0.0))
        return best

    def improved(self, best: Candidate) -> Candidate:
        """The best order after rounds of neighbourhoods; never worse than before."""
        goal_s, seed = max(self.bounds_s.values()), self.options.seed
        for order in improved(best.stages, best.order, goal_s, seed, self.deadline, self.parameters):
            best = self.better(best, _candidate("neighbourhood", best.cut, best.stages, order))
        return best

    def better(self, best: Candidate, candidate: Candidate | None) -> Candidate:
        """The candidate, where it is one and better."""
        if candidate is None or candidate.rank >= best.rank:
            return best
        self.offer(candidate)
        return candidate
