"""The roots of sums: where an ALLREDUCE adds its chunks up, so that links in the middle and at the end are used alike.

With as many roots on each rank, a rank with few links is the last to get what others own, in both phases, while links
elsewhere stand still. How many chunks each rank should be the root of is a linear program: a variable a link and phase
says how many of each chunk it carries, and every set of ranks gets what it is no root of over its links (Frank's
theorem on branchings with free roots). The matching plans the chunks with these roots, phase by phase. Where links run
as fast both ways and share nothing, both phases together take as long as the worst partition on a line, and nowhere
more than twice as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.bounds.bandwidth.concurrent_flow import time_covers_every_lane
from gapless.encodings.taccl.bounds.bounds import Bounds
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.restarts import matched_plan, may_be_matched
from gapless.encodings.taccl.parameters import Matching, Trees
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solvers.max_flow import max_flow
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology

__all__ = ["RootShares", "plan_from_roots", "root_shares", "with_roots"]

_STEPS = 2**30
"""A chunk is so many units of flow."""
_SERVED = 1e-6
"""Sets of ranks that lack no more than this part of a chunk are served."""
_DEFAULTS = Trees()
_WORK = Matching()


@dataclass(frozen=True)
class RootShares:
    """`share[r]`: float, the part of all chunks whose root is rank r; `time_s`: of a chunk then, both phases."""

    share: Floats
    time_s: float


@dataclass(frozen=True)
class _Program:
    """`carried[p, l]`: chunks over link l in phase p, up to the root and down; `root[r]`: the part with root r."""

    model: Model
    carried: Ids
    root: Ids


def root_shares(
    topology: Topology, occupancy_s: Floats, options: SolveOptions, are_even: bool = False, most_steps: int = 40
) -> RootShares | None:
    """The shares with which both phases take least, latencies aside; a chunk holds link l for `occupancy_s[l]`.

    `are_even`: all ranks have the same. None where the program is not solved in time, or in so many steps.
    """
    deadline, unit_s = Deadline(options), float(occupancy_s.mean())
    program = _program(topology, occupancy_s / unit_s, are_even)
    ranks = topology.device_count
    known: set[tuple[int, tuple[int, ...]]] = set()
    fresh: set[tuple[int, tuple[int, ...]]] = {(phase, (rank,)) for rank in range(ranks) for phase in (0, 1)}
    for step in range(most_steps):
        _sets_get_their_chunks(program, topology, sorted(fresh), step)
        known |= fresh
        solution = solve_model(program.model, replace(deadline.stage(), gap=0.0, threads=1, on_progress=None))
        if solution.values is None or solution.objective is None or deadline.over:
            return None
        share = np.maximum(solution.values[program.root], 0.0)
        fresh = _starving(topology, solution.values[program.carried], share) - known
        if not fresh:
            return RootShares(share / share.sum(), solution.objective * unit_s)
    return None


def _program(topology: Topology, occupancy: Floats, are_even: bool) -> _Program:
    ranks, links = topology.device_count, len(topology.links)
    model = Model("taccl_roots")
    carried = model.continuous("carried", (2, links), upper=1.0)
    even = 1.0 / ranks
    root = model.continuous("root", ranks, lower=even if are_even else 0.0, upper=even if are_even else 1.0)
    model.add("all_chunks_have_a_root", (1.0, root), lower=1.0, upper=1.0 + 1e-9)
    longest = float(occupancy.sum())
    times, lanes = list[int](), np.arange(len(topology.resources) + links)
    for phase, name in enumerate(("up", "down")):
        times.append(int(model.continuous(f"time_{name}", upper=longest)))
        columns = carried[phase][None, :]
        time_covers_every_lane(model, times[-1], topology, columns, occupancy, lanes, f"time_covers_lane_{name}")
    model.minimize((1.0, times))
    return _Program(model, carried, root)


def _sets_get_their_chunks(
    program: _Program, topology: Topology, sets: list[tuple[int, tuple[int, ...]]], step: int
) -> None:
    """Every set of ranks gets the chunks with roots elsewhere over its links, and sends out its parts of them."""
    for number, (phase, ranks) in enumerate(sets):
        inside = np.zeros(topology.device_count, dtype=np.bool_)
        inside[list(ranks)] = True
        near, far = (topology.link_source, topology.link_target)[:: 1 if phase == 0 else -1]
        crossing = program.carried[phase][inside[near] & ~inside[far]]
        columns = np.concatenate([crossing, program.root[list(ranks)]])
        program.model.add(f"set_gets_its_chunks_{step}_{number}", (1.0, columns), lower=1.0)


def _starving(topology: Topology, carried: Floats, share: Floats) -> set[tuple[int, tuple[int, ...]]]:
    """The sets of ranks that the roots' chunks don't get to, in either phase."""
    ranks, found = topology.device_count, set[tuple[int, tuple[int, ...]]]()
    everyone = np.arange(ranks)
    for phase in (0, 1):
        tail, head = (topology.link_source, topology.link_target)[:: -1 if phase == 0 else 1]
        tails, heads = np.concatenate([tail, np.full(ranks, ranks)]), np.concatenate([head, everyone])
        units = np.ceil(np.concatenate([carried[phase], share]) * _STEPS).clip(0).astype(np.int64)
        for rank in everyone.tolist():
            cut = max_flow(tails, heads, units, ranks + 1, ranks, rank)
            if cut.value < _STEPS * (1 - _SERVED):
                found.add((phase, tuple(np.flatnonzero(~cut.inside[:ranks]).tolist())))
    return found


def with_roots(problem: Chunked, share: Floats) -> Chunked:
    """The problem with chunks added up at the ranks by their shares, in runs, as even as whole numbers are."""
    count = problem.collective.chunk_count
    ends = np.rint(np.cumsum(share) * count).astype(np.int64)
    ends[-1] = count
    roots = np.repeat(np.arange(len(share)), np.diff(ends, prepend=0))
    return replace(problem, collective=problem.collective.rooted(tuple(roots.tolist())))


def plan_from_roots(
    problems: Iterable[Chunked],
    options: SolveOptions,
    bounds: Bounds,
    limit_s: float = math.inf,
    parameters: Trees = _DEFAULTS,
    matching: Matching = _WORK,
) -> Candidate | None:
    """The best plan by matching with the best roots for one question, cut into more and more chunks.

    It is for an ALLREDUCE of all ranks. None where by bandwidth roots on all ranks alike are as good, or others take
    longer than `limit_s`, and where plans of little work are far behind `limit_s`.
    """
    deadline = Deadline(options)
    shares = _worthwhile(bounds.problem, limit_s, deadline, parameters)
    if shares is None:
        return None
    best: tuple[Candidate, Chunked] | None = None
    for problem, plan in _quick_plans(problems, shares, deadline, parameters, matching):
        if best is not None and not plan.is_faster(best[0]):
            break
        best = plan, problem
    if best is None or best[0].end_s > matching.hopeless_factor * limit_s:
        return None
    found, problem = best
    longer = None if deadline.over else matched_plan(problem, deadline.stage(), matching)
    if longer is not None and longer.is_faster(found):
        found = longer
    name = f"roots by bandwidth, {found.variant}"
    return replace(found, method="trees", bound_s=bounds.quick_asked_s, bounds_s=bounds.any_chunking, variant=name)


def _worthwhile(problem: Chunked, limit_s: float, deadline: Deadline, parameters: Trees) -> Floats | None:
    """The shares of the ranks, None where even ones take no longer, or these as long as `limit_s`."""
    topology, size_bytes = problem.logical.topology, problem.chunk_bytes * problem.collective.chunk_count
    rate_s = topology.beta_s_per_byte
    if topology.device_count * len(topology.links) > parameters.most_root_looks or not (rate_s > 0).all():
        return None
    if len(np.unique(problem.rotations.rank_orbit)) == 1:
        return None
    best = root_shares(topology, rate_s, deadline.stage())
    if best is None or size_bytes * best.time_s >= limit_s:
        return None
    even = root_shares(topology, rate_s, deadline.stage(), are_even=True)
    return None if even is None or best.time_s > (1 - parameters.least_root_gain) * even.time_s else best.share


def _quick_plans(
    problems: Iterable[Chunked], share: Floats, deadline: Deadline, parameters: Trees, matching: Matching
) -> Iterator[tuple[Chunked, Candidate]]:
    """Plans of little work in each number of chunks."""
    less = replace(matching, sends=max(1, int(parameters.root_share * matching.sends)))
    for problem in problems:
        rooted = with_roots(problem, share)
        if deadline.over or not may_be_matched(rooted):
            return
        plan = matched_plan(rooted, deadline.stage(), less, is_quick=True)
        if plan is None:
            return
        yield rooted, plan
