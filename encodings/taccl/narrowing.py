"""Narrowing: what keeps a question to a part of its plans (a sketch, chunks, a method), and the question without that.

A question that names these gets the best plan that keeps to them. Where the question without them has a better one
within a part of the work, that is said beside the answer, in one line. The answer stays as it is. Where a plan is
challenged, the collective is asked for in other ways: in other chunks, without its sketch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gapless.encodings.taccl.aggregate.stage import may_aggregate, plan_aggregated
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.candidate import Candidate, CollectiveDecision, checked
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.chunking import best_chunking
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.io.plan import SavedPlan
from gapless.options import Deadline, SolveOptions
from gapless.solution import PlanClass
from gapless.system import Challenge, Narrowing, Plan

__all__ = ["challenges", "narrowing", "wider_question", "with_wider"]

_NARROWING = ("sketch", "chunks", "path_slack", "method")
_SKETCH = ("sketch", "sketch_file", "path_slack")
_CHUNKS = (1, 2, 4, 8)
"""Numbers that a challenge tries besides the plan's own: those that the search for a number tries first."""


def wider_question(problem: Problem) -> Problem:
    """The question without them."""
    return replace(problem, sketch=None, chunks=None, path_slack=None, method="auto")


def with_wider(
    plan: Plan,
    problem: Problem,
    on_all_links: Bounds,
    options: SolveOptions,
    parameters: Parameters,
    deadline: Deadline,
) -> Plan:
    """The same plan; where the question without its narrowing options has a better one, `details["wider"]` says so.

    `on_all_links`: bounds of the topology's own plans. Nothing is tried where they leave too little to gain, and
    nothing is said where the clock ends it.
    """
    names = [f"--{name.replace('_', '-')}" for name in _NARROWING if getattr(problem, name) not in (None, "auto")]
    end_s = plan.solution.objective
    if not names or end_s is None or deadline.over:
        return plan
    worth_s = end_s * (1 - parameters.wider.least_gain)
    if on_all_links.any_chunking_s >= worth_s:
        return plan
    limit_s = None if math.isinf(deadline.remaining_s) else deadline.remaining_s
    own = Deadline(
        replace(options, time_limit_s=limit_s, within_deadline=None, on_progress=None, on_plan=None, solver=None)
    )
    question = wider_question(problem)
    best = _best_of(question, _reused(on_all_links, question.coarsest), own, parameters, worth_s)
    if best is None or best.end_s >= worth_s or own.has_struck or options.stop.is_set():
        return plan
    checked(best.schedule)
    found = {"objective_s": best.end_s, "method": best.method, "chunks": best.problem.chunks}
    return replace(plan, details={**plan.details, "wider": {"asked": f"without {' and '.join(names)}", **found}})


def _reused(bounds: Bounds, coarsest: Chunked) -> Bounds:
    """Bounds of the coarsest problem, whose part for any chunking is known where it has as many bytes."""
    known = bounds.problem
    is_same = known.chunk_bytes * known.collective.chunk_count == coarsest.chunk_bytes * coarsest.collective.chunk_count
    return bounds_of(coarsest, bounds.parameters, bounds.options, question=bounds if is_same else None)


def _best_of(
    question: Problem, bounds: Bounds, deadline: Deadline, parameters: Parameters, worth_s: float
) -> Candidate | None:
    """The quick plan of the greedy in few numbers of chunks; aggregated sends where it isn't better than `worth_s`."""
    less = _with_less(parameters)
    best = best_chunking(question, bounds, deadline.stage(), less).plan
    if (best is None or best.end_s >= worth_s) and may_aggregate(question.coarsest, less.aggregation):
        best = plan_aggregated(question.coarsest, deadline.stage(), less.aggregation, bounds) or best
    return best


def _with_less(parameters: Parameters) -> Parameters:
    """A part of the work."""
    wider = parameters.wider
    less = parameters.with_share(wider.share)
    chunking = replace(less.chunking, numbers=wider.numbers, most_numbers=len(wider.numbers))
    return replace(less, chunking=chunking, aggregation=parameters.with_share(wider.aggregated_share).aggregation)


def narrowing(problem: Problem | Chunked, said: Mapping[str, Any]) -> list[Narrowing]:
    """A sketch or a slack of paths; chunks. A search over sketches keeps to none."""
    found: list[Narrowing] = []
    if isinstance(problem, Chunked):  # what an answer solved; nobody knows what else was asked
        return found
    if not problem.searches_sketches and any(name in said for name in _SKETCH):
        found.append(Narrowing(PlanClass.SKETCH, _without_sketch(problem, said)))
    if problem.chunks is not None:
        found.append(Narrowing(PlanClass.CHUNKS, {"chunks": None}))
    return found


def _without_sketch(problem: Problem, said: Mapping[str, Any]) -> dict[str, object]:
    """The question without its sketch, which may have said how many nodes and bytes there are."""
    outright: dict[str, object] = {"size": problem.size_bytes}
    sketch = problem.sketch
    if sketch is not None and not isinstance(sketch, str) and ("topology" in said or "topology_file" in said):
        outright["nodes"] = said.get("nodes", sketch.node_count or 1)
    return {**dict.fromkeys(_SKETCH), **outright}


def challenges(problem: Problem | Chunked, plan: SavedPlan) -> list[Challenge]:
    """Other numbers of chunks, and the plan's own number outright, in which its bound for these chunks can be met."""
    if isinstance(problem, Chunked):
        return []
    if problem.searches_sketches:
        return [Challenge("without --sketch", PlanClass.QUESTION, _without_sketch(problem, {"topology": ""}))]
    keeps_to = [PlanClass.SKETCH] if problem.sketch is not None or problem.path_slack is not None else []
    around = (keeps_to or [PlanClass.QUESTION])[0]
    own = CollectiveDecision.of(plan).chunks
    numbers = [each for each in _CHUNKS if each != own]
    found = [Challenge(f"--chunks {number}", around, {"chunks": number}) for number in numbers]
    if problem.chunks is None:
        found.append(Challenge(f"--chunks {own}", PlanClass.CHUNKS, {"chunks": own}))
    return found
