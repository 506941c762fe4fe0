"""Methods: the three stages with their MILP where it is small enough, the greedy on orbits beyond, or as is asked.

With `auto`, plans in whole messages stand beside what these find chunk by chunk, and the fastest is kept.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gapless.encodings.taccl.aggregate.stage import may_aggregate, plan_aggregated
from gapless.encodings.taccl.chunked import Chunked, Method
from gapless.encodings.taccl.flow.chunking import best_chunking
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.encodings.taccl.milp.synthesis import synthesise
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.sketch.phases import is_spread_backwards
from gapless.encodings.taccl.sketch.search import search_sketches
from gapless.encodings.taccl.symmetry.orbits import orbits
from gapless.errors import InputError
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import Status
from gapless.system import Plan

__all__ = ["in_chunks", "milp_binaries", "solve", "solve_chunked"]

_LARGEST_TABLE = 4_000_000
"""Pairs of chunk and link above which orbits aren't counted: no sketch makes so many few enough."""
_GREEDY_SHARE = 0.2
"""The part of the time limit that the greedy may take before the MILP, and in any case no more than `_GREEDY_S`."""
_GREEDY_S = 1.0
_AGGREGATED_SHARE = 0.4
"""The part of the time limit that plans in whole messages may take before those chunk by chunk."""


def solve(problem: Problem | Chunked, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """The best plan for a question, whose sketch and number of chunks may have to be found first."""
    parameters = parameters or Parameters()
    if isinstance(problem, Chunked):
        return solve_chunked(problem, options, parameters)
    if problem.searches_sketches:
        return search_sketches(problem, options, partial(solve_chunked, parameters=parameters))
    deadline = Deadline(options)
    chunked = in_chunks(problem, options, parameters)
    plan = solve_chunked(chunked, deadline.stage(), parameters)
    return replace(plan, problem=plan.problem or chunked)


def in_chunks(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Chunked:
    """The problem in the chunks that are asked for, or in as many as the greedy does best with."""
    if not problem.is_open:
        return problem.coarsest
    chunking, deadline = (parameters or Parameters()).chunking, Deadline(options)
    limit_s = min(chunking.share * deadline.remaining_s, chunking.all_s)
    return best_chunking(problem, deadline.stage(limit_s), chunking)


def solve_chunked(problem: Chunked, options: SolveOptions, parameters: Parameters) -> Plan:
    """The plan of the problem's method; with `auto` the fastest of those chunk by chunk and of those in whole messages.

    Of equally fast plans it is the one chunk by chunk. Where one in whole messages is proven within the gap of the best
    for any grouping, nothing else is tried, unless a sketch asks for it. `details["method"]` says whose plan it is.
    """
    if problem.method != "auto" or options.solver is not None or not may_aggregate(problem):
        return _plan_by_chunks(problem, options, parameters)
    deadline = Deadline(options)
    whole = plan_aggregated(problem, deadline.stage(_AGGREGATED_SHARE * deadline.remaining_s))
    if whole is None:
        return _plan_by_chunks(problem, deadline.stage(), parameters)
    gap = whole.solution.gap
    if problem.sketch is None and gap is not None and gap <= options.gap:
        return whole
    by_chunks = _plan_by_chunks(problem, _next_stage(deadline, whole), parameters, whole.solution.objective)
    return _faster(whole, by_chunks, deadline.elapsed_s)


def _plan_by_chunks(
    problem: Chunked, options: SolveOptions, parameters: Parameters, known_s: float | None = None
) -> Plan:
    """Chunk by chunk inside nodes; with `auto` and no sketch the greedy, and a small MILP where that falls short.

    A sketch is a wish, so it is only ever planned by the MILP, and so is a problem whose solver is named; sums of some
    ranks' parts are too. `known_s`: the end of another plan; what can't beat it is not looked for. Raises `InputError`
    for a solver of the greedy's.
    """
    if problem.method == "greedy":
        if options.solver is not None:
            raise InputError(f"solver: must be left out with method greedy, which takes none; got {options.solver!r}")
        return plan_greedy(problem, options)
    restricted = problem.sketch is not None or problem.path_slack is not None or problem.given is not None
    is_for_milp = problem.method == "milp" or options.solver is not None or restricted
    if is_for_milp or not is_spread_backwards(problem.collective):
        return _named(synthesise(problem, options), "milp")
    if milp_binaries(problem) > parameters.most_binaries:
        return plan_greedy(problem, options)
    deadline = Deadline(options)
    greedy = plan_greedy(problem, deadline.stage(min(_GREEDY_SHARE * deadline.remaining_s, _GREEDY_S)))
    gap, bound_s = greedy.solution.gap, greedy.solution.bound
    is_beaten = known_s is not None and bound_s is not None and bound_s >= known_s
    if deadline.over or is_beaten or (gap is not None and gap <= options.gap):
        return greedy
    return _better(greedy, _named(synthesise(problem, _next_stage(deadline, greedy)), "milp"), deadline.elapsed_s)


def _next_stage(deadline: Deadline, best: Plan) -> SolveOptions:
    """What is left of the time, with reports that go on from the best plan so far."""
    stage, since_s = deadline.stage(), deadline.elapsed_s
    report, end_s = stage.on_progress, best.solution.objective
    if report is None or end_s is None:
        return stage

    def tell(news: Progress) -> None:
        is_better = news.incumbent is not None and news.incumbent < end_s
        told = news if is_better else replace(news, incumbent=end_s, bound=best.solution.bound)
        report(replace(told, wall_s=since_s + news.wall_s))

    tell(Progress(0.0, None, None, str(best.details["method"])))
    return replace(stage, on_progress=tell)


def milp_binaries(problem: Chunked) -> int:
    """The binaries of the routing MILP, one for each orbit of (chunk, link) under the sketch's symmetry.

    The number of pairs where that is too large to be worth counting.
    """
    link_count, pairs = problem.link_count, problem.collective.chunk_count * problem.link_count
    if pairs > _LARGEST_TABLE or not problem.logical.symmetry:
        return pairs
    moves = [(s.chunks[:, None] * link_count + s.links[None, :]).reshape(-1) for s in problem.logical.symmetry]
    return len(np.unique(orbits(moves, pairs)))


def _named(found: Plan, method: Method) -> Plan:
    return replace(found, details={**found.details, "method": method})


def _faster(whole: Plan, by_chunks: Plan, wall_s: float) -> Plan:
    """The faster of two plans, which are bounded each for its own kind; by chunks if they are as fast."""
    ends = [found.solution.objective for found in (whole, by_chunks)]
    assert ends[0] is not None
    best = whole if ends[1] is None or ends[0] < ends[1] * (1 - 1e-9) else by_chunks
    return replace(best, solution=replace(best.solution, wall_s=wall_s))


def _better(greedy: Plan, milp: Plan, wall_s: float) -> Plan:
    """The faster of the two plans, with the larger of their bounds, which both hold for the problem."""
    ends = [found.solution.objective for found in (greedy, milp)]
    bounds = [found.solution.bound for found in (greedy, milp)]
    if ends[0] is None or bounds[0] is None:
        return milp
    if ends[1] is None or bounds[1] is None:
        return greedy
    best, end_s = (greedy, ends[0]) if ends[0] < ends[1] * (1 - 1e-9) else (milp, ends[1])
    bound_s = min(max(bounds[0], bounds[1]), end_s)
    status = Status.OPTIMAL if relative_gap(end_s, bound_s) == 0 else Status.FEASIBLE
    solution = replace(best.solution, bound=bound_s, wall_s=wall_s, status=status)
    return replace(best, solution=solution, details={**best.details, "ratio": end_s / bound_s})
