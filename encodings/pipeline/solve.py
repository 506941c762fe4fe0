"""The solver of pipelines: cut the layers, order the ops of each rank, choose the modes, lower the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gapless import __version__
from gapless.encodings.pipeline.baselines import BASELINES, suits, whole
from gapless.encodings.pipeline.bounds import bounds_of
from gapless.encodings.pipeline.building import Cut, even_cut, stages_of
from gapless.encodings.pipeline.errors import spoiling_of
from gapless.encodings.pipeline.lowering import to_schedule
from gapless.encodings.pipeline.order import Order, Timeline, peak_bytes, timed
from gapless.encodings.pipeline.parameters import DEFAULTS, Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.stages import Stages
from gapless.options import Deadline, SolveOptions, relative_gap
from gapless.solution import Solution, Status, StopReason
from gapless.system import Plan

__all__ = ["Candidate", "solve"]

_ROUNDING = 1e-9
"""Sums in another order differ by less than this share; what differs by less is equal."""


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


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Baselines first, the best of them improved."""
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    cut = even_cut(problem.profile.layer_count, problem.stage_count)
    stages = stages_of(problem, cut)
    known = baselines(problem, cut, stages)
    best = min(known, key=lambda found: found.rank)
    bounds_s = bounds_of(stages)
    return _plan(problem, best, max(bounds_s.values()), known, bounds_s, options, deadline)


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


def _plan(
    problem: Problem, best: Candidate, bound_s: float, known: list[Candidate], bounds_s: dict[str, float],
    options: SolveOptions, deadline: Deadline,
) -> Plan:  # fmt: skip
    """The best order spelled out."""
    step_s = best.timeline.step_s
    bound_s = step_s if bound_s > step_s * (1 - _ROUNDING) else bound_s
    gap = relative_gap(step_s, bound_s)
    optimal = gap is not None and gap <= _ROUNDING
    solution = Solution(
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        stop_reason=StopReason.FINISHED if optimal else StopReason.WORK_LIMIT,
        solver=best.method,
        version=__version__,
        seed=options.seed,
        wall_s=deadline.elapsed_s,
        objective=step_s,
        bound=bound_s,
    )
    spoiling = spoiling_of(problem, best.cut, best.stages.crosses)
    schedule = to_schedule(problem, best.stages, best.order, best.timeline, spoiling)
    return Plan(solution, schedule, _details(best, known, bounds_s))


def _details(best: Candidate, known: list[Candidate], bounds_s: dict[str, float]) -> dict[str, Any]:
    stages, timeline = best.stages, best.timeline
    busy_s = stages.micro_batches * stages.compute_s
    kept = np.bincount(stages.rank, weights=stages.stash_bytes, minlength=stages.ranks)
    peaks = peak_bytes(stages, timeline)
    return {
        "method": best.method,
        "cut": list(best.cut),
        "recomputed": np.flatnonzero(stages.recomputes).tolist(),
        "peak_in_flight": (peaks / np.where(kept, kept, 1)).round(6).tolist(),
        "finish_s": timeline.finish_s.tolist(),
        "spread_s": timeline.spread_s,
        "bubble": 1 - float(busy_s.max()) / timeline.step_s,
        "bounds_s": bounds_s,
        "baselines_s": {found.method: found.timeline.step_s for found in known},
    }
