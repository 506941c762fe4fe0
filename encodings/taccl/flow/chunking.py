"""Chunking: into how many chunks a rank's data are best cut, where nobody says it.

Few chunks pay few latencies, many let a rank hand on the beginning of what it is still receiving, and share out over
unlike links and several paths. Which weighs more depends on size and machine, so a handful of numbers is tried with the
greedy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.encodings.taccl.milp.routers import milp_binaries
from gapless.encodings.taccl.parameters import Chunking, Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.options import Deadline, SolveOptions
from gapless.system import Plan

__all__ = ["Quick", "best_chunking"]


@dataclass(frozen=True)
class Quick:
    """A number of chunks with what the greedy makes of it in a moment, None where it was not asked.

    `bounds`: those of plans in so many chunks.
    """

    problem: Chunked
    plan: Plan | None = None
    bounds: Bounds | None = None

    @property
    def end_s(self) -> float:
        """When the plan is over, inf without one."""
        end_s = None if self.plan is None else self.plan.solution.objective
        return math.inf if end_s is None else end_s

    def is_within(self, gap: float) -> bool:
        """Whether the plan is proven to be within `gap` of the best possible."""
        proven = None if self.plan is None else self.plan.solution.gap
        return proven is not None and proven <= gap


def best_chunking(problem: Problem, options: SolveOptions, parameters: Parameters) -> Quick:
    """The problem in the number of chunks with which the greedy is fastest, and that plan.

    Where the MILP is to follow, since no number is proven within the gap that was asked for, numbers that are nearly as
    good are as good, and it is the largest that the MILP takes easily, with half of its binaries. In as few chunks as
    there can be where a plan has more sends than the parameters allow, and for a collective of one's own.
    """
    if not isinstance(problem.collective, str) or problem.topology.device_count < 2:
        return Quick(problem.coarsest)
    tried = _tried(problem, parameters.chunking)
    if len(tried) <= 1:
        return Quick(tried[0] if tried else problem.coarsest)
    found = _quick_plans(tried, options, parameters)
    if not found:
        return Quick(problem.coarsest)
    fastest = min(found, key=lambda quick: quick.end_s)
    if fastest.is_within(options.gap):
        return fastest
    near_s = (1 + parameters.chunking.near) * fastest.end_s
    near = [quick for quick in found if quick.end_s <= near_s]
    for_milp = [quick for quick in near if 2 * milp_binaries(quick.problem) <= parameters.milp.most_binaries]
    return for_milp[-1] if for_milp else fastest


def _quick_plans(tried: list[Chunked], options: SolveOptions, parameters: Parameters) -> list[Quick]:
    """The greedy on each number, ascending, until larger ones are clearly worse."""
    chunking, deadline, found = parameters.chunking, Deadline(options), list[Quick]()
    greedy = replace(parameters.greedy, rows=chunking.rows)
    for place, cut in enumerate(tried):
        if deadline.over:
            break
        stage = deadline.stage(deadline.remaining_s / (len(tried) - place))  # so that all have their turn
        quick = replace(stage, gap=chunking.gap, on_progress=None)
        cheap = replace(cut, method="greedy", path_slack=None)
        bounds = bounds_of(cheap, parameters.bounds, stage)
        made = Quick(cut, plan_greedy(cheap, quick, greedy, chunking.tries, bounds), bounds)
        if made.end_s > chunking.give_up_factor * min((other.end_s for other in found), default=math.inf):
            break
        if math.isfinite(made.end_s):
            found.append(made)
    return found


def _tried(problem: Problem, chunking: Chunking) -> list[Chunked]:
    """The problem in each number of chunks that leaves every chunk a byte, and not too many sends."""
    coarsest, found = problem.coarsest.collective, list[Chunked]()
    chunks, sends = max(map(len, coarsest.inputs)), coarsest.chunk_count * problem.topology.device_count
    for number in chunking.numbers:
        if number * sends > chunking.most_sends or number * chunks > problem.size_bytes:
            break
        found.append(problem.in_chunks(number))
    return found
