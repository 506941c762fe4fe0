"""The best order of a fixed cut with plain messages, and a bound on every other order."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.encodings.pipeline.baselines import BASELINES, suits, whole
from gapless.encodings.pipeline.bounds import bounds_of
from gapless.encodings.pipeline.building import Cut
from gapless.encodings.pipeline.heuristic import zero_bubble
from gapless.encodings.pipeline.order import Order, Timeline, peak_bytes, timed
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.stages import Stages
from gapless.options import Deadline, SolveOptions

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
    the heuristic's. `bounds_s`: seconds by name, on every order of these stages, compressed or not.
    `proven`: whether no plain order is faster than the best.
    """

    best: Candidate | None
    known: list[Candidate]
    bounds_s: dict[str, float]
    proven: bool

    @property
    def bound_s(self) -> float:
        """The highest of the bounds."""
        return max(self.bounds_s.values())


def best_orders(
    problem: Problem, cut: Cut, stages: Stages, options: SolveOptions, deadline: Deadline, parameters: Parameters,
    known: list[Candidate] | None = None,
) -> Ordered:  # fmt: skip
    """Baselines and the heuristic first, the best of them improved. `known`: orders of the same stages, if any."""
    found = [*(known or []), *baselines(problem, cut, stages)]
    if problem.method in ("auto", "search", "zero-bubble"):
        made = zero_bubble(stages, parameters.heuristic_ops, deadline)
        if made is not None:
            found.append(Candidate("zero-bubble", cut, stages, *made))
    best = min(found, key=lambda candidate: candidate.rank, default=None)
    return Ordered(best, found, bounds_of(stages), False)


def baselines(problem: Problem, cut: Cut, stages: Stages) -> list[Candidate]:
    """The schedules that the field runs, where they suit the placement and stay within memory."""
    found = []
    for name, baseline in BASELINES.items():
        if suits(name, problem.placement, stages) and problem.method in ("auto", "search", name):
            costs = stages if baseline.splits else whole(stages)
            order = baseline.order(costs)
            timeline = timed(costs, order)
            if timeline is not None and (peak_bytes(costs, timeline) <= costs.room_bytes).all():
                found.append(Candidate(name, cut, costs, order, timeline))
    return found
