"""Lower bounds for sums across a cut: what happens before the first crossing and after the last.

Take a set of ranks and all the others. A chunk that ranks inside hold parts of and ranks outside want must cross at
least once. Where it crosses just once, that crossing carries all parts from inside, so they have been added up there
before; and every rank outside that wants the sum has it by way of that crossing, so it is still to be spread.
A chunk that crosses early, without some parts, crosses again with these; one that crosses late, too late to be spread,
has crossed before. So with n chunks and n crossings the doors stand still both before and after; with one crossing
more, which is early or late but not both, before or after; only with two more need they never stand still.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.reduction import all_over_s
from gapless.encodings.taccl.chunked import Chunked

__all__ = ["across_cuts_s"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

_LARGEST_TABLE = 4_000_000
"""Pairs of chunk and link above which this is left out: chunk by chunk it would take too long."""


def across_cuts_s(problem: Chunked, may_group: Mask) -> float:
    """The largest bound over the cuts around each node, in both directions; 0 for a single node."""
    topology = problem.logical.topology
    if topology.node_count == 1 or problem.collective.chunk_count * problem.link_count > _LARGEST_TABLE:
        return 0.0
    best_s = 0.0
    for node in range(topology.node_count):
        inside = topology.node_of == node
        for side in (inside, ~inside):
            best_s = max(best_s, _out_of_s(problem, may_group, side))
    return best_s


def _out_of_s(problem: Chunked, may_group: Mask, inside: Mask) -> float:
    """The bound for all chunks that must cross out of a set of ranks."""
    topology, collective = problem.logical.topology, problem.collective
    leaving = np.flatnonzero(
        inside[topology.link_source] & ~inside[topology.link_target] & problem.logical.allowed.any(axis=0)
    )
    kinds: dict[tuple[tuple[int, ...], tuple[int, ...], bytes], int] = {}
    first: list[int] = []
    count = 0
    for chunk, (holders, wants) in enumerate(zip(collective.contributors, collective.destinations, strict=True)):
        within = tuple(rank for rank in holders if inside[rank])
        beyond = tuple(rank for rank in wants if not inside[rank])
        if within and beyond:
            count += 1
            key = within, beyond, problem.logical.allowed[chunk].tobytes()
            if kinds.setdefault(key, len(first)) == len(first):
                first.append(chunk)
    if not count or not len(leaving):
        return 0.0
    before_s = min(
        _added_up_s(problem, chunk, leaving, its[0], inside) for its, chunk in zip(kinds, first, strict=True)
    )
    after_s = min(_spread_s(problem, chunk, leaving, its[1], ~inside) for its, chunk in zip(kinds, first, strict=True))
    best_s = 0.0
    for side in (0, -1):
        over_s = [all_over_s(problem, may_group, leaving, side, count + more) for more in range(3)]
        least_s = min(over_s[0] + before_s + after_s, over_s[1] + min(before_s, after_s), over_s[2])
        best_s = max(best_s, least_s)
    return best_s


def _added_up_s(problem: Chunked, chunk: int, leaving: Ids, holders: tuple[int, ...], inside: Mask) -> float:
    """The least time in which the parts of `holders` are one sum at a rank from which the chunk may leave."""
    topology = problem.logical.topology
    exits = sorted({int(topology.link_source[link]) for link in leaving if problem.logical.allowed[chunk, link]})
    links = _links_within(problem, chunk, inside)
    if not exits:
        return 0.0
    onward_s = _distances_s(problem, links, exits, backwards=True)  # at the head each exit, at the side each rank
    farthest_s = float(onward_s[:, list(holders)].max(axis=1).min())
    rounds = (len(holders) - 1).bit_length()  # a rank adds one part at a time
    fastest_s = float(problem.duration_s[links].min(initial=np.inf)) if rounds else 0.0
    return _finite(max(farthest_s, rounds * fastest_s))


def _spread_s(problem: Chunked, chunk: int, leaving: Ids, wants: tuple[int, ...], beyond: Mask) -> float:
    """The least time from a chunk's entry at some rank until all of `wants` have it."""
    topology = problem.logical.topology
    entries = sorted({int(topology.link_target[link]) for link in leaving if problem.logical.allowed[chunk, link]})
    links = _links_within(problem, chunk, beyond)
    if not entries:
        return 0.0
    farthest_s = float(_distances_s(problem, links, entries)[:, list(wants)].max(axis=1).min())
    rounds, reached, doors = 0, 1, _most_doors(problem, links)
    while reached < len(wants):
        rounds, reached = rounds + 1, reached * (1 + doors)
    fastest_s = float(problem.duration_s[links].min(initial=np.inf)) if rounds else 0.0
    return _finite(max(farthest_s, rounds * fastest_s))


def _links_within(problem: Chunked, chunk: int, ranks: Mask) -> Ids:
    topology = problem.logical.topology
    both = ranks[topology.link_source] & ranks[topology.link_target]
    return np.flatnonzero(both & problem.logical.allowed[chunk])


def _distances_s(problem: Chunked, links: Ids, starts: list[int], backwards: bool = False) -> Floats:
    """`distance[k, r]`: the least time from `starts[k]` to rank r over some links (or from r to `starts[k]`)."""
    topology = problem.logical.topology
    tail, head = topology.link_source[links], topology.link_target[links]
    if backwards:
        tail, head = head, tail
    distance_s = np.full((len(starts), topology.device_count), np.inf)
    distance_s[np.arange(len(starts)), starts] = 0.0
    while len(links):
        shorter = distance_s.copy()
        through = distance_s[:, tail] + problem.duration_s[links]
        np.minimum.at(shorter.T, head, through.T)
        if np.array_equal(shorter, distance_s):
            break
        distance_s = shorter
    return distance_s


def _most_doors(problem: Chunked, links: Ids) -> int:
    """The most transfers that a rank sends at once over some links: those that share a side count once."""
    topology = problem.logical.topology
    doors: dict[int, set[tuple[bool, int]]] = {}
    for link in links.tolist():
        resources = topology.links[link].resources
        doors.setdefault(topology.links[link].source, set()).add((True, resources[0]) if resources else (False, link))
    return max(map(len, doors.values()), default=1)


def _finite(time_s: float) -> float:
    """0 where there is no way: a chunk that can't cross just once, for which nothing is known."""
    return time_s if np.isfinite(time_s) else 0.0
