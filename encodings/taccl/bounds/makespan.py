"""Lower bounds on the makespan: what no schedule of the problem can beat, however it is found.

*Latency*: no chunk arrives before the time of its shortest way. *Bandwidth*: take a set of ranks. The chunks that it
wants from outside come in over the links that lead into it; of links that exclude each other (one switch side, one
NIC) a single one works at a time, so by any instant only so many whole chunks are in. The last chunk to come in must
still be spread inside the set, and the first can't come in before it has reached the boundary.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.reduction import (
    crossing_bound_s,
    doubling_bound_s,
    pairs_latency_s,
    trees_bound_s,
)
from gapless.encodings.taccl.bounds.reduction_cuts import across_cuts_s
from gapless.encodings.taccl.chunked import Chunked

__all__ = ["Bounds", "bandwidth_bound_s", "combinatorial_bounds", "cut_bound_s"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MOST_THRESHOLDS = 8
"""Times at the boundary that a cut is examined for; more cost time and add little."""


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the makespan in seconds.

    `routing_s` is the proven bound of the routing MILP, None before it has run. `any_grouping_s` holds as well for
    schedules that group chunks on links where this problem sends them one by one; the other bounds need not.
    `reduction_s`, `crossing_s` and `trees_s` are for sums only, see sum_bounds.py and sum_cuts.py.
    """

    latency_s: float
    bandwidth_s: float
    any_grouping_s: float
    routing_s: float | None = None
    reduction_s: float = 0.0
    crossing_s: float = 0.0
    trees_s: float = 0.0

    @property
    def best_s(self) -> float:
        """The largest bound that holds for this problem."""
        of_sums_s = max(self.reduction_s, self.crossing_s, self.trees_s)
        return max(self.latency_s, self.bandwidth_s, self.routing_s or 0.0, of_sums_s)


def combinatorial_bounds(problem: Chunked) -> Bounds:
    """The bounds that need no solver.

    Those of a collective that reduces are at least those of its phases: its parts must reach their homes, and what is
    at a home must reach all that want the sum.
    """
    if problem.collective.reduces:
        return _bounds_of_sums(problem)
    latency_s = float(problem.earliest_s[problem.wanted].max(initial=0.0))
    may_group_all = np.ones(problem.link_count, dtype=np.bool_)
    return Bounds(
        latency_s=latency_s,
        bandwidth_s=bandwidth_bound_s(problem, problem.may_group),
        any_grouping_s=max(latency_s, bandwidth_bound_s(problem, may_group_all)),
    )


def _bounds_of_sums(problem: Chunked) -> Bounds:
    phases = [combinatorial_bounds(phase.problem) for phase in problem.phases]
    latency_s = max(pairs_latency_s(problem), *(bounds.latency_s for bounds in phases))
    reduction_s = doubling_bound_s(problem)
    may_group_all = np.ones(problem.link_count, dtype=np.bool_)
    grouped_s = max(crossing_bound_s(problem, may_group_all), across_cuts_s(problem, may_group_all))
    return Bounds(
        latency_s=latency_s,
        bandwidth_s=max(bounds.bandwidth_s for bounds in phases),
        any_grouping_s=max(latency_s, reduction_s, grouped_s, *(bounds.any_grouping_s for bounds in phases)),
        reduction_s=reduction_s,
        crossing_s=max(crossing_bound_s(problem, problem.may_group), across_cuts_s(problem, problem.may_group)),
        trees_s=trees_bound_s(problem),
    )


def bandwidth_bound_s(problem: Chunked, may_group: Mask) -> float:
    """The largest bound over the cuts around each rank and each node, in both directions."""
    topology = problem.logical.topology
    ranks = [(rank,) for rank in range(topology.device_count)]
    nodes = [tuple(topology.ranks_of_node(node)) for node in range(topology.node_count)]
    several = [node for node in nodes if 1 < len(node) < topology.device_count]
    best_s = 0.0
    for its in _apart([*ranks, *several], [s.ranks for s in problem.logical.symmetry]):
        inside = np.zeros(topology.device_count, dtype=np.bool_)
        inside[list(its)] = True
        for side in (inside, ~inside):
            best_s = max(best_s, cut_bound_s(problem, may_group, side))
    return best_s


def _apart(sets: list[tuple[int, ...]], permutations: list[Ids]) -> Iterator[tuple[int, ...]]:
    """One set of ranks of each orbit: cuts that a symmetry carries onto each other have the same bound."""
    seen: set[tuple[int, ...]] = set()
    for ranks in sets:
        if ranks not in seen:
            yield ranks
        fresh = {ranks}
        while fresh := fresh - seen:
            seen |= fresh
            fresh = {tuple(sorted(images[list(its)].tolist())) for its in fresh for images in permutations}


def cut_bound_s(problem: Chunked, may_group: Mask, inside: Mask) -> float:
    """The bound of one set of ranks: bool, shape (ranks,).

    It is taken for all chunks that the set wants from outside, and for those alone that can't be at its boundary before
    some time: what comes late over a slow link still has to come in through the same doors.
    """
    topology = problem.logical.topology
    needed = np.flatnonzero((problem.wanted & inside).any(axis=1) & ~inside[problem.owners])
    entering = np.flatnonzero(~inside[topology.link_source] & inside[topology.link_target])
    if not len(needed):
        return 0.0
    at_door_s = np.where(
        problem.usable[np.ix_(needed, entering)],
        problem.earliest_s[np.ix_(needed, topology.link_source[entering])],
        np.inf,
    ).min(axis=1)
    thresholds_s = np.unique(at_door_s)
    some = np.unique(np.linspace(0, len(thresholds_s) - 1, _MOST_THRESHOLDS).astype(np.int64))
    return max(
        _bound_of_chunks_s(problem, may_group, inside, needed[at_door_s >= threshold_s], entering)
        for threshold_s in thresholds_s[some].tolist()
    )


def _bound_of_chunks_s(problem: Chunked, may_group: Mask, inside: Mask, needed: Ids, entering: Ids) -> float:
    tail_s = _tail_s(problem, needed, entering, inside)
    best_s = 0.0
    for side in (0, -1):  # links into the set exclude each other at their source or at their target
        doors = _doors(problem, may_group, needed, entering, side)
        best_s = max(best_s, _all_in_s(doors, len(needed)) + tail_s)
        for door in doors:
            if door.only:
                best_s = max(best_s, door.head_s + door.only * door.chunk_s + tail_s)
    return best_s


@dataclass(frozen=True)
class _Door:
    """Links that exclude each other: the k-th whole chunk is through at `head_s + k * chunk_s` at the earliest.

    `most`: how many of the needed chunks may use it; `only`: how many of them have no other way in.
    """

    head_s: float
    chunk_s: float
    most: int
    only: int


def _doors(
    problem: Chunked, may_group: Mask, needed: Ids, entering: Ids, side: int
) -> list[_Door]:  # fmt: skip
    topology = problem.logical.topology
    groups: dict[tuple[bool, int], list[int]] = {}
    for link in entering.tolist():
        resources = topology.links[link].resources
        groups.setdefault((True, resources[side]) if resources else (False, link), []).append(link)
    usable = problem.usable[needed]
    ways = {key: usable[:, links].any(axis=1) for key, links in groups.items()}
    choices = sum(way.astype(np.int64) for way in ways.values())
    doors = []
    for key, links in groups.items():
        chunk, k = np.nonzero(usable[:, links])
        if not len(chunk):
            continue
        numbers = np.array(links)
        grouped = may_group[numbers]
        alpha_s = float(topology.alpha_s[numbers].min()) if grouped.all() else 0.0
        occupied_s = problem.duration_s[numbers] - np.where(grouped, topology.alpha_s[numbers], 0.0)
        first_s = float(problem.earliest_s[needed[chunk], topology.link_source[numbers[k]]].min())
        only = int((ways[key] & (choices == 1)).sum())
        doors.append(_Door(first_s + alpha_s, float(occupied_s.min()), int(ways[key].sum()), only))
    return doors


def _all_in_s(doors: list[_Door], count: int) -> float:
    """When `count` chunks can be in, each door working without a pause: the count-th smallest completion."""
    heap = [(door.head_s + door.chunk_s, door.chunk_s, door.most) for door in doors]
    heapq.heapify(heap)
    at_s = 0.0
    for _ in range(count):
        if not heap:
            return at_s
        at_s, chunk_s, left = heapq.heappop(heap)
        if left > 1:
            heapq.heappush(heap, (at_s + chunk_s, chunk_s, left - 1))
    return at_s


def _tail_s(problem: Chunked, needed: Ids, entering: Ids, inside: Mask) -> float:
    """The least time from a chunk's first entry until every rank of the set that wants it has it."""
    topology = problem.logical.topology
    links = np.asarray(problem.usable[needed].any(axis=0))
    entries = sorted({int(topology.link_target[link]) for link in entering if links[link]})
    within = links & inside[topology.link_source] & inside[topology.link_target]
    network = topology.to_networkx(problem.chunk_bytes, np.flatnonzero(within).tolist())
    spread_s = np.full(topology.device_count, np.inf)
    for rank, time_s in nx.multi_source_dijkstra_path_length(network, set(entries), weight="duration_s").items():
        spread_s[rank] = time_s
    wanted = problem.wanted[needed]
    return min(float(spread_s[row & inside].max(initial=0.0)) for row in wanted)
