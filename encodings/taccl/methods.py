"""Methods: the three stages with their MILP where it is small enough, the greedy on orbits beyond, or as is asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planwright.encodings.taccl.greedy import plan_greedy
from planwright.encodings.taccl.phases import is_spread_backwards
from planwright.encodings.taccl.problem import Method, Problem
from planwright.encodings.taccl.symmetry import orbits
from planwright.encodings.taccl.synthesis import synthesise
from planwright.errors import InputError
from planwright.options import Deadline, SolveOptions, relative_gap
from planwright.recipe import Plan
from planwright.solution import Status

__all__ = ["milp_binaries", "plan"]

MOST_BINARIES = 6_000
"""Orbits of (chunk, link) up to which `auto` takes the MILP: routing is then proven within seconds, or nearly so."""
_LARGEST_TABLE = 4_000_000
"""Pairs of chunk and link above which orbits aren't counted: no sketch makes so many few enough."""
_GREEDY_SHARE = 0.2
"""The part of the time limit that the greedy may take before the MILP, and in any case no more than `_GREEDY_S`."""
_GREEDY_S = 1.0


def plan(problem: Problem, options: SolveOptions) -> Plan:
    """The plan of the problem's method; with `auto` and no sketch the better of both where the MILP is small.

    A sketch is a wish, so it is only ever planned by the MILP, and so is a problem whose solver is named; sums of some
    ranks' parts are too. `details["method"]` says whose plan it is. Raises `InputError` for a solver of the greedy's.
    """
    if problem.method == "greedy":
        if options.solver is not None:
            raise InputError(f"solver: must be left out with method greedy, which takes none; got {options.solver!r}")
        return plan_greedy(problem, options)
    restricted = problem.sketch is not None or problem.path_slack is not None or problem.given is not None
    is_for_milp = problem.method == "milp" or options.solver is not None or restricted
    if is_for_milp or not is_spread_backwards(problem.collective):
        return _named(synthesise(problem, options), "milp")
    if milp_binaries(problem) > MOST_BINARIES:
        return plan_greedy(problem, options)
    deadline = Deadline(options)
    greedy = plan_greedy(problem, deadline.stage(min(_GREEDY_SHARE * deadline.remaining_s, _GREEDY_S)))
    if greedy.solution.status is Status.OPTIMAL or deadline.over:
        return greedy
    return _better(greedy, _named(synthesise(problem, deadline.stage()), "milp"), deadline.elapsed_s)


def milp_binaries(problem: Problem) -> int:
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
