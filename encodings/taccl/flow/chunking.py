"""Chunking: into how many chunks a rank's data are best cut, where nobody says it.

Few chunks pay few latencies, many let a rank hand on the beginning of what it is still receiving, and share out over
unlike links and several paths. Which weighs more depends on size and machine, so a handful of numbers is tried with the
greedy.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.encodings.taccl.parameters import Chunking, Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.options import Deadline, SolveOptions

__all__ = ["best_chunking"]


def best_chunking(problem: Problem, options: SolveOptions, parameters: Parameters) -> Chunked:
    """The problem in the number of chunks with which the greedy is fastest.

    In as few as there can be where a plan has more sends than the parameters allow, and for a collective of one's own.
    """
    chunking, deadline = parameters.chunking, Deadline(options)
    best, best_s = problem.coarsest, float("inf")
    if not isinstance(problem.collective, str) or problem.topology.device_count < 2:
        return best
    tried = _tried(problem, chunking)
    if len(tried) <= 1:
        return tried[0] if tried else best
    for cut in tried:
        if deadline.over:
            break
        quick = replace(deadline.stage(chunking.try_s), gap=chunking.gap, on_progress=None, seed=0)
        cheap = replace(cut, method="greedy", path_slack=None)
        bounds = bounds_of(cheap, parameters.bounds)
        found_s = plan_greedy(cheap, quick, parameters.greedy, chunking.tries, bounds).solution.objective
        if found_s is None or found_s > chunking.give_up_factor * best_s:
            break
        if found_s < best_s * (1 - 1e-9):
            best, best_s = cut, found_s
    return best


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
