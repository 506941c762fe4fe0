"""The solver of pipelines: cut the layers, order the ops of each rank, choose the modes, lower the best."""

from __future__ import annotations

from typing import Any

import numpy as np

from gapless import __version__
from gapless.encodings.pipeline.building import even_cut, stages_of
from gapless.encodings.pipeline.errors import spoiling_of
from gapless.encodings.pipeline.lowering import to_schedule
from gapless.encodings.pipeline.order import peak_bytes
from gapless.encodings.pipeline.ordering import Candidate, best_orders
from gapless.encodings.pipeline.parameters import DEFAULTS, Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.options import Deadline, SolveOptions, relative_gap
from gapless.solution import Solution, Status, StopReason
from gapless.system import Plan

__all__ = ["solve"]

_ROUNDING = 1e-9
"""Sums in another order differ by less than this share; what differs by less is equal."""


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Baselines first, the best of them improved."""
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    cut = even_cut(problem.profile.layer_count, problem.stage_count)
    stages = stages_of(problem, cut)
    orders = best_orders(problem, cut, stages, options, deadline, parameters)
    assert orders.best is not None
    return _plan(problem, orders.best, orders.bound_s, orders.known, orders.bounds_s, options, deadline)


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
