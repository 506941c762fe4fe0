"""The solver of pipelines: cut the layers, order the ops of each rank, choose the modes, lower the best."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gapless import __version__
from gapless.encodings.pipeline.classes import LEAST_GAIN, class_bounds, wider
from gapless.encodings.pipeline.compression.modes import Spoiling, spoiling_of
from gapless.encodings.pipeline.compression.recipes import followed
from gapless.encodings.pipeline.cut.search import least_memory_bytes
from gapless.encodings.pipeline.order.cells import saved_s
from gapless.encodings.pipeline.order.orders import Candidate
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.parameters import DEFAULTS, Parameters
from gapless.encodings.pipeline.placement.named import each_rank
from gapless.encodings.pipeline.placement.search import best_placed
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.programs.breakdown import exposed_s
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.lowering import to_schedule
from gapless.encodings.pipeline.search.case import Case
from gapless.encodings.pipeline.search.search import Search
from gapless.options import Deadline, SolveOptions
from gapless.solution import Solution, Status, StopReason, claim_of
from gapless.system import Plan

__all__ = ["planned", "solve"]

_LOWERING_S = 1e-4
"""What the schedule and its replay take for each op, at most: that much of the time limit is kept for them."""


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """The best plan of the question; where one without its cut or placement is clearly better, that is said, too."""
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    if problem.alternatives:
        return best_placed(problem, options, parameters, planned)
    plan = planned(problem, deadline.stage(), parameters)
    cost_s, bound_s = plan.solution.objective, plan.solution.bound
    is_open = cost_s is None or bound_s is None or bound_s >= (1 - LEAST_GAIN) * cost_s
    if is_open or deadline.over or options.stop.is_set():
        return plan
    assert cost_s is not None
    found = wider(problem, cost_s, options, parameters, deadline)
    return plan if found is None else replace(plan, details={**plan.details, "wider": found})


def planned(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Cuts by their bound, orders of the best of them, and then what is compressed; the fastest is lowered."""
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    deadline.keep(_LOWERING_S * 3 * problem.steps * problem.slices * problem.stage_count * problem.micro_batches)
    if not problem.error_budget:
        problem = replace(problem, compression=None)
    memory: dict[str, float] = {}
    if math.isfinite(problem.memory_bytes):
        least_bytes, is_enough = least_memory_bytes(problem, parameters.partial_cuts, deadline)
        memory["least_memory_bytes" if is_enough else "least_memory_bound_bytes"] = least_bytes
        if least_bytes > problem.memory_bytes:
            return Plan(_nothing(Status.INFEASIBLE, options, deadline), None, memory)

    def offer(found: Candidate) -> None:
        if options.on_plan is not None:
            options.on_plan(found.timeline.cost_s, lambda: _plan(problem, found, search, options, deadline, memory))

    search = Search(problem, options, deadline, parameters, offer)
    search.run()
    if search.best is None:
        return Plan(_nothing(Status.NO_SOLUTION, options, deadline), None, memory)
    return _plan(problem, search.best, search, options, deadline, memory)


def _nothing(status: Status, options: SolveOptions, deadline: Deadline) -> Solution:
    reason = StopReason.FINISHED if status is Status.INFEASIBLE else StopReason.WORK_LIMIT
    return Solution(status, reason, "cuts", __version__, options.seed, deadline.elapsed_s)


def _plan(
    problem: Problem, best: Candidate, search: Search, options: SolveOptions, deadline: Deadline,
    memory: dict[str, float],
) -> Plan:  # fmt: skip
    """The best order spelled out."""
    bound_s, source, narrower = class_bounds(problem, search)
    solution = claim_of(
        best.timeline.cost_s, bound_s, options, solver=best.method, version=__version__,
        wall_s=deadline.elapsed_s, unit=problem.unit, source=source, narrower=narrower,
    )  # fmt: skip
    spoiling = spoiling_of(problem, best.cut, best.stages.crosses)
    schedule = to_schedule(problem, best.stages, best.order, best.timeline, spoiling)
    compression = {} if spoiling is None else _compression(problem, best, spoiling)
    decision = PipelineDecision.of_candidate(best, problem.mode_names)
    details = {**_details(best, search, decision), **memory, **compression}
    return Plan(solution, schedule, details, decision=decision)


def _compression(problem: Problem, best: Candidate, spoiling: Spoiling) -> dict[str, object]:
    """How many micro-batches of each hop, and which sums, are in each mode, by name; what that spoils; and what the
    recipes of the literature make of the same cut at no more error.
    """
    names, order = problem.mode_names, best.order
    return {
        "hop_modes": [{names[k]: int((row == k).sum()) for k in np.unique(row)} for row in order.hop_modes],
        "sum_modes": [names[k] for k in order.reduce_modes],
        "error": spoiling.total(order),
        "recipes": {
            name: {"span_s" if problem.by_span else "step_s": found.timeline.cost_s, "error": error}
            for name, (found, error) in followed(problem, best.cut).items()
        },
    }


def _shape(problem: Problem, stages: Stages) -> dict[str, object]:
    """Whether backwards are split, where that was left to the search, and what of it nobody measured."""
    if problem.backward != "auto":
        return {}
    measured = problem.profile.whole_backward_s is not None or problem.profile.is_uniform
    unmeasured = {} if measured or not stages.splits else {"unmeasured": "split"}
    return {"backwards": "split" if stages.splits else "whole", **unmeasured}


def _offloaded(best: Candidate) -> dict[str, object]:
    """How much goes to hosts, where there are links to them."""
    if not best.stages.offloads:
        return {}
    stage, _ = np.divmod(best.timeline.offloaded, best.stages.micro_batches)
    return {"offloaded_stashes": len(stage), "offloaded_bytes": int(best.stages.kept_bytes[stage].sum())}


def _details(best: Candidate, search: Search, decision: PipelineDecision) -> dict[str, object]:
    stages, timeline = best.stages, best.timeline
    total = stages.micro_batches if stages.work is None else float(stages.work.sum())
    busy_s = stages.steps * total * stages.compute_s - saved_s(stages, best.order)
    kept = each_rank(stages.rank, stages.stash_bytes, stages.ranks, stages.copies)
    peaks = peak_bytes(stages, timeline.program)
    case = next(
        (case for case in list(search.cases) if any(found is best for found in case.known)),
        Case(best.cut, stages, {}, [best]),  # the first one, offered before all others
    )
    plain = [found for found in case.known if not (found.order.hop_modes.any() or found.order.reduce_modes.any())]
    slowest_first = sorted(plain, key=lambda found: found.rank, reverse=True)
    return {
        "method": decision.method,
        **_shape(search.problem, stages),
        "cut": list(decision.cut),
        "recomputed": list(decision.recomputed),
        **({"feed": list(decision.feed)} if decision.feed else {}),
        **({"policies": list(decision.policies)} if decision.policies else {}),
        **_offloaded(best),
        "peak_in_flight": (peaks / np.where(kept, kept, 1)).round(6).tolist(),
        "finish_s": timeline.finish_s.tolist(),
        "spread_s": timeline.spread_s,
        "bubble": max(0.0, 1 - float(busy_s.max()) / timeline.cost_s) if timeline.cost_s else 0.0,  # but for rounding
        "bounds_s": dict(case.bounds_s),
        "cuts": search.cut_count,
        "exposed_s": exposed_s(stages, best.order),
        "baselines_s": {found.method: found.timeline.cost_s for found in slowest_first},
    }
