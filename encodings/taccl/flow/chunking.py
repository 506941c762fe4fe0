"""Chunking: into how many chunks a rank's data are best cut, where nobody says it.

Few chunks pay few latencies, many let a rank hand on the beginning of what it is still receiving, and share out over
unlike links and several paths. Which weighs more depends on size and machine, so a handful of numbers is tried with the
greedy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.encodings.taccl.milp.routers import milp_binaries
from gapless.encodings.taccl.parameters import Chunking, Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.options import Deadline, SolveOptions

__all__ = ["best_chunking"]


def best_chunking(problem: Problem, options: SolveOptions, parameters: Parameters) -> Chunked:
    """The problem in the number of chunks with which the greedy is fastest.

    Where the MILP is to follow, since no number is proven within the gap that was asked for, numbers that are nearly as
    good are as good, and it is the largest that the MILP takes. In as few chunks as there can be where a plan has more
    sends than the parameters allow, and for a collective of one's own.
    """
    if not isinstance(problem.collective, str) or problem.topology.device_count < 2:
        return problem.coarsest
    tried = _tried(problem, parameters.chunking)
    if len(tried) <= 1:
        return tried[0] if tried else problem.coarsest
    found = _quick_plans(tried, options, parameters)
    if not found:
        return problem.coarsest
    fastest = min(found, key=lambda plan: plan.end_s)
    if fastest.gap <= options.gap:
        return fastest.problem
    near_s = (1 + parameters.chunking.near) * fastest.end_s
    near = [plan.problem for plan in found if plan.end_s <= near_s]
    for_milp = [cut for cut in near if milp_binaries(cut) <= parameters.milp.most_binaries]
    return for_milp[-1] if for_milp else fastest.problem


@dataclass(frozen=True)
class _Quick:
    """What the greedy makes of a number of chunks in a moment, and how far from the best possible that can be."""

    problem: Chunked
    end_s: float
    gap: float


def _quick_plans(tried: list[Chunked], options: SolveOptions, parameters: Parameters) -> list[_Quick]:
    """The greedy on each number, ascending, until larger ones are clearly worse."""
    chunking, deadline, found = parameters.chunking, Deadline(options), list[_Quick]()
    for place, cut in enumerate(tried):
        if deadline.over:
            break
        share_s = deadline.remaining_s / (len(tried) - place)  # so that the larger numbers have their turn, too
        quick = replace(deadline.stage(min(chunking.try_s, share_s)), gap=chunking.gap, on_progress=None, seed=0)
        cheap = replace(cut, method="greedy", path_slack=None)
        bounds = bounds_of(cheap, parameters.bounds)
        solution = plan_greedy(cheap, quick, parameters.greedy, chunking.tries, bounds).solution
        end_s, gap = solution.objective, solution.gap
        if end_s is None or (found and end_s > chunking.give_up_factor * min(plan.end_s for plan in found)):
            break
        found.append(_Quick(cut, end_s, math.inf if gap is None else gap))
    return found


def _tried(problem: Problem, chunking: Chunking) -> list[Chunked]:
    """The problem in each number of chunks that leaves every chunk a byte, and not too many sends."""
    found = []
    for number in chunking.numbers:
        cut = problem.in_chunks(number)
        chunks = max(len(buffer) for buffer in cut.collective.inputs)
        sends = cut.collective.chunk_count * problem.topology.device_count
        if sends > chunking.most_sends or chunks > problem.size_bytes:
            break
        found.append(cut)
    return found
