"""The best order of a fixed cut with plain messages, and a bound on every other order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gapless.encodings.pipeline.baselines import BASELINES, suits, whole
from gapless.encodings.pipeline.bounds import bounds_of
from gapless.encodings.pipeline.building import Cut
from gapless.encodings.pipeline.exact import order_model, order_of, values_of
from gapless.encodings.pipeline.heuristic import zero_bubble
from gapless.encodings.pipeline.neighbourhood import improved
from gapless.encodings.pipeline.order import Order, Timeline, peak_bytes, timed
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.stages import Stages
from gapless.encodings.pipeline.ticks import in_ticks
from gapless.options import Deadline, SolveOptions
from gapless.solution import Status
from gapless.solvers.backend import PROVEN_GAP
from gapless.solvers.proofs import confirmed
from gapless.solvers.registry import solve_model

__all__ = ["Candidate", "Ordered", "baselines", "best_orders"]


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
    the heuristic's. `bounds_s`: seconds by name; those of `gapless.encodings.pipeline.bounds` hold for every choice of
    modes, `exact` for plain messages.
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
    if best is None or offer is None:
        offer = _ignore
    else:
        offer(best)
    if best is not None and problem.method in ("auto", "search") and not _is_proven(best, bounds_s):
        is_small = stages.ranks * stages.micro_batches <= parameters.exact_ops
        start = min((each for each in found if each.stages.splits == stages.splits), key=lambda each: each.rank)
        if problem.method == "auto" and is_small:
            start = _exact(start, bounds_s, deadline, parameters, offer)
            best = min(best, start, key=lambda candidate: candidate.rank)
        if not _is_proven(best, bounds_s):
            start = _improved(start, bounds_s, options, deadline, parameters, offer)
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


def _candidate(method: str, cut: Cut, stages: Stages, order: Order) -> Candidate | None:
    """None where ranks wait for each other forever, or memory doesn't suffice."""
    timeline = timed(stages, order)
    if timeline is None or (peak_bytes(stages, timeline) > stages.room_bytes).any():
        return None
    return Candidate(method, cut, stages, order, timeline)


def _exact(
    best: Candidate, bounds_s: dict[str, float], deadline: Deadline, parameters: Parameters, offer: Offer
) -> Candidate:
    """The order as one model, from the best that is known; adds the bound `exact`.

    One thread, so that the plan doesn't depend on their number. An optimum counts as proven where a bound of our own
    says the same, or a second run, of another seed and without presolve.
    """
    ticked = in_ticks(best.stages, best.timeline.step_s)
    start = timed(ticked.stages, best.order)
    assert start is not None, "an order that was timed can be timed in ticks"
    least = max(bounds_of(ticked.stages).values())
    ordered = order_model(ticked.stages, start.step_s, least)
    options = replace(deadline.stage(), threads=1, gap=0.0, step_limit=parameters.exact_steps, on_progress=None,
                      on_plan=None, presolve=True)  # fmt: skip
    claimed = solve_model(ordered.model, options, "cpsat", values_of(ordered, start))
    if claimed.values is not None:
        candidate = _candidate("exact", best.cut, best.stages, order_of(ordered, claimed.values))
        if candidate is not None and candidate.rank < best.rank:
            best = candidate
            offer(best)
    if claimed.status is Status.OPTIMAL and not _is_proven(best, bounds_s):
        claimed = confirmed(ordered.model, claimed, replace(options, seed=options.seed + 1), "cpsat")
    if claimed.bound is not None:
        bounds_s["exact"] = claimed.bound * ticked.tick_s
    return best


def _improved(
    best: Candidate, bounds_s: dict[str, float], options: SolveOptions, deadline: Deadline, parameters: Parameters,
    offer: Offer,
) -> Candidate:  # fmt: skip
    """The best order after rounds of neighbourhoods; never worse than before."""
    goal_s, stages, cut = max(bounds_s.values()), best.stages, best.cut
    for order in improved(stages, best.order, goal_s, options.seed, deadline, parameters):
        candidate = _candidate("neighbourhood", cut, stages, order)
        if candidate is not None and candidate.rank < best.rank:
            best = candidate
            offer(best)
    return best
