"""The roots of sums: where an ALLREDUCE adds its chunks up, so that links in the middle and at the end are used alike.

With as many roots on each rank, a rank with few links is the last to get what others own, in both phases, while links
elsewhere stand still. How many chunks each rank should be the root of is a linear program: a variable a link and phase
says how many of each chunk it carries, and every set of ranks gets what it is no root of over its links (Frank's
theorem on branchings with free roots). Of optima, one with roots in the middle is taken, or one that spreads them.

There are two of them. *Phases in turn*: each phase has a time of its own. The matching plans the chunks with these
roots, phase by phase. Where links are as fast in both directions and share nothing, both phases together take as long
as the worst partition on a line, and nowhere more than twice as long. *Phases at once*: chunks that go up share each
link with others that go down. Where links aren't alike in both directions, the trees up load other links than the trees
down; then trees are packed for these roots (`directed_trees.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.bounds.bandwidth.concurrent_flow import time_covers_every_lane
from gapless.encodings.taccl.bounds.bounds import Bounds
from gapless.encodings.taccl.bounds.link_costs import distances_s
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.restarts import matched_plan, may_be_matched
from gapless.encodings.taccl.parameters import Matching, Trees
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solvers.max_flow import max_flow
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology

__all__ = ["RootShares", "plan_from_roots", "root_shares", "roots_at_once", "with_roots"]

_STEPS = 2**30
"""A chunk is so many units of flow."""
_SERVED = 1e-6
"""Sets of ranks that lack no more than this part of a chunk are served."""
_CENTRAL = 1e-5
"""What it costs a root that the farthest rank is farther, from it or to it, as a share of that time."""
_SPREAD = 1e-3
"""What the largest share of a root costs, in mean times of a chunk on a link."""
_DEFAULTS = Trees()
_WORK = Matching()


@dataclass(frozen=True)
class RootShares:
    """`share[r]`: float, the part of all chunks whose root is rank r; `time_s`: of a chunk then, both phases.

    `carried[p, l]`: float, the part of all chunks that link l carries then up to their roots (p = 0), and down.
    """

    share: Floats
    time_s: float
    carried: Floats


@dataclass(frozen=True)
class _Program:
    """`carried[p, l]`: chunks over link l in phase p, up to the root and down; `root[r]`: the part with root r.

    `times`: of each phase, or of both at once.
    """

    model: Model
    carried: Ids
    root: Ids
    times: list[int]


def root_shares(
    topology: Topology,
    occupancy_s: Floats,
    options: SolveOptions,
    at_once: bool = False,
    are_spread: bool = False,
    most_steps: int = 40,
) -> RootShares | None:
    """The shares with which both phases take least, latencies aside; a chunk holds link l for `occupancy_s[l]`.

    `at_once`: some chunks go up while others go down; else the phases are in turn. `are_spread`: of the optima one with
    small shares, else one with roots in the middle. None where the program is not solved in time, or in so many steps.
    """
    deadline, unit_s = Deadline(options), float(occupancy_s.mean())
    program = _program(topology, occupancy_s / unit_s, at_once, are_spread)
    ranks = topology.device_count
    known: set[tuple[int, tuple[int, ...]]] = set()
    fresh: set[tuple[int, tuple[int, ...]]] = {(phase, (rank,)) for rank in range(ranks) for phase in (0, 1)}
    for step in range(most_steps):
        _sets_get_their_chunks(program, topology, sorted(fresh), step)
        known |= fresh
        solution = solve_model(program.model, replace(deadline.stage(), gap=0.0, threads=1, on_progress=None))
        if solution.values is None or solution.objective is None or deadline.over:
            return None
        share, carried = (np.maximum(solution.values[columns], 0.0) for columns in (program.root, program.carried))
        fresh = _starving(topology, carried, share) - known
        if not fresh:
            return RootShares(share / share.sum(), float(solution.values[program.times].sum()) * unit_s, carried)
    return None


def _program(topology: Topology, occupancy: Floats, at_once: bool, are_spread: bool) -> _Program:
    ranks, links = topology.device_count, len(topology.links)
    model = Model("taccl_roots")
    carried, root = model.continuous("carried", (2, links), upper=1.0), model.continuous("root", ranks, upper=1.0)
    model.add("all_chunks_have_a_root", (1.0, root), lower=1.0, upper=1.0 + 1e-9)
    longest, times = 2 * float(occupancy.sum()), list[int]()
    lanes = np.arange(len(topology.resources) + links)
    phases = {"both": carried} if at_once else {"up": carried[:1], "down": carried[1:]}
    for name, columns in phases.items():
        times.append(int(model.continuous(f"time_{name}", upper=longest)))
        time_covers_every_lane(model, times[-1], topology, columns, occupancy, lanes, f"time_covers_lane_{name}")
    if are_spread:
        largest = int(model.continuous("largest_share", upper=1.0))
        model.add("largest_share", (-1.0, root[:, None]), (1.0, np.full((ranks, 1), largest)), lower=0.0)
        model.minimize((1.0, times), (_SPREAD, [largest]))
    else:
        far = distances_s(topology, occupancy, np.arange(ranks))
        model.minimize((1.0, times), (_CENTRAL * (far.max(axis=0) + far.max(axis=1)), root))
    return _Program(model, carried, root, times)


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


def roots_at_once(
    bounds: Bounds, options: SolveOptions, limit_s: float = math.inf, parameters: Trees = _DEFAULTS
) -> list[RootShares]:
    """The best roots of a question for phases at once: in the middle, and spread. It is for an ALLREDUCE of all ranks.

    None where links are alike in both directions, for then trees may go down the links that they came up, from any
    root; and where these roots take longer than `limit_s`.
    """
    if _is_symmetric(bounds.problem.logical.topology):
        return []
    found = (_shares(bounds.problem, limit_s, options, parameters, True, spread) for spread in (False, True))
    return [shares for shares in found if shares is not None]


def _is_symmetric(topology: Topology) -> bool:
    """Whether there are as many links of equal costs in the other direction, for each pair of ranks."""
    ends = zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True)
    costs = zip(topology.alpha_s.tolist(), topology.beta_s_per_byte.tolist(), strict=True)
    links = Counter((one, other, cost) for (one, other), cost in zip(ends, costs, strict=True))
    return all(links[other, one, cost] == count for (one, other, cost), count in links.items())


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
    longer than `limit_s`. The best of plans of little work gets all of the work where it is near `limit_s`.
    """
    deadline, network = Deadline(options), bounds.problem
    if len(np.unique(network.rotations.rank_orbit)) == 1:
        return None
    shares = _shares(network, limit_s, options, parameters)
    if shares is None or _time_s(network, shares) > (1 - parameters.least_root_gain) * bounds.even_roots_s:
        return None
    best: tuple[Candidate, Chunked] | None = None
    for problem, plan in _quick_plans(problems, shares.share, deadline, parameters, matching):
        if best is not None and not plan.is_faster(best[0]):
            break
        best = plan, problem
    if best is None:
        return None
    found, problem = best
    is_near = found.end_s <= parameters.near_roots * limit_s and not deadline.over
    longer = matched_plan(problem, deadline.stage(), matching) if is_near else None
    if longer is not None and longer.is_faster(found):
        found = longer
    name = f"roots by bandwidth, {found.variant}"
    return replace(found, method="trees", bound_s=bounds.quick_asked_s, bounds_s=bounds.any_chunking, variant=name)


def _shares(
    problem: Chunked,
    limit_s: float,
    options: SolveOptions,
    parameters: Trees,
    at_once: bool = False,
    are_spread: bool = False,
) -> RootShares | None:
    """The shares of the ranks, None where a plan with them is no faster than `limit_s`, or the network is large."""
    topology = problem.logical.topology
    rate_s = topology.beta_s_per_byte
    if topology.device_count * len(topology.links) > parameters.most_root_looks or not (rate_s > 0).all():
        return None
    best = root_shares(topology, rate_s, options, at_once, are_spread)
    return None if best is None or _time_s(problem, best) * (1 + parameters.least_fill) >= limit_s else best


def _time_s(problem: Chunked, shares: RootShares) -> float:
    """What all bytes take."""
    return problem.chunk_bytes * problem.collective.chunk_count * shares.time_s


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
