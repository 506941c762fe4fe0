"""Lower bounds for sums across a cut: what happens before the first crossing and after the last.

Take a set of ranks and all the others. A chunk that ranks inside hold parts of and ranks outside want must cross at
least once. Where it crosses just once, that crossing carries all parts from inside, so they have been added up there
before; and every rank outside that wants the sum has it by way of that crossing, so it is still to be spread.
A chunk that crosses early, without some parts, crosses again with these; one that crosses late, too late to be spread,
has crossed before. So with n chunks and n crossings the ports stand still both before and after; with one crossing
more, which is early or late but not both, before or after; only with two more need they never stand still.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.latency import distances_s
from gapless.encodings.taccl.bounds.ports import SIDES, all_through_s, most_at_once, ports_of, rounds_to_reach
from gapless.encodings.taccl.bounds.reduction import Kind
from gapless.encodings.taccl.chunked import Chunked

__all__ = ["across_cuts_s"]

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


def across_cuts_s(problem: Chunked, kinds: list[Kind], may_group: Mask) -> float:
    """The largest bound over the cuts around each node, in both directions; 0 for a single node."""
    topology = problem.logical.topology
    if topology.node_count == 1:
        return 0.0
    best_s = 0.0
    for node in range(topology.node_count):
        inside = topology.node_of == node
        for side in (inside, ~inside):
            best_s = max(best_s, _out_of_s(problem, kinds, may_group, side))
    return best_s


def _out_of_s(problem: Chunked, kinds: list[Kind], may_group: Mask, inside: Mask) -> float:
    """The bound for all chunks that must cross out of a set of ranks."""
    topology = problem.logical.topology
    out = inside[topology.link_source] & ~inside[topology.link_target]
    leaving = np.flatnonzero(out & problem.logical.allowed.any(axis=0))
    crossing = [
        Kind(within, beyond, kind.links, kind.count)
        for kind in kinds
        if (within := tuple(rank for rank in kind.holders if inside[rank]))
        and (beyond := tuple(rank for rank in kind.wants if not inside[rank]))
    ]
    if not crossing or not len(leaving):
        return 0.0
    before_s = min(_added_up_s(problem, kind, out, inside) for kind in crossing)
    after_s = min(_spread_s(problem, kind, out, ~inside) for kind in crossing)
    count, best_s = sum(kind.count for kind in crossing), 0.0
    for side in SIDES:
        ports = ports_of(problem, may_group, leaving, side)
        over_s = [all_through_s(ports.head_s, ports.chunk_s, count + more) for more in range(3)]
        least_s = min(over_s[0] + before_s + after_s, over_s[1] + min(before_s, after_s), over_s[2])
        best_s = max(best_s, least_s)
    return best_s


def _added_up_s(problem: Chunked, kind: Kind, out: Mask, inside: Mask) -> float:
    """The least time in which the parts of all holders are one sum at a rank from which the chunk may leave."""
    topology = problem.logical.topology
    exits = np.unique(topology.link_source[kind.links[out[kind.links]]])
    links = _links_within(topology.link_source, topology.link_target, kind, inside)
    if not len(exits):
        return 0.0
    onward_s = distances_s(topology, problem.duration_s, exits, links, backwards=True)
    rounds = (len(kind.holders) - 1).bit_length()  # a rank adds one part at a time
    return _finite(max(_best_end_s(onward_s, kind.holders), _rounds_s(problem, links, rounds)))


def _spread_s(problem: Chunked, kind: Kind, out: Mask, beyond: Mask) -> float:
    """The least time from a chunk's entry at some rank until all that want it have it."""
    topology = problem.logical.topology
    entries = np.unique(topology.link_target[kind.links[out[kind.links]]])
    links = _links_within(topology.link_source, topology.link_target, kind, beyond)
    if not len(entries):
        return 0.0
    onward_s = distances_s(topology, problem.duration_s, entries, links)
    rounds = rounds_to_reach(len(kind.wants), most_at_once(topology, links))
    return _finite(max(_best_end_s(onward_s, kind.wants), _rounds_s(problem, links, rounds)))


def _links_within(source: Ids, target: Ids, kind: Kind, ranks: Mask) -> Ids:
    return kind.links[ranks[source[kind.links]] & ranks[target[kind.links]]]


def _best_end_s(distance_s: NDArray[np.float64], ranks: tuple[int, ...]) -> float:
    """The least, over the rows, of the farthest of some ranks."""
    return float(distance_s[:, list(ranks)].max(axis=1).min())


def _rounds_s(problem: Chunked, links: Ids, rounds: int) -> float:
    return rounds * float(problem.duration_s[links].min(initial=np.inf)) if rounds else 0.0


def _finite(time_s: float) -> float:
    """0 where there is no path: a chunk that can't cross just once, for which nothing is known."""
    return time_s if np.isfinite(time_s) else 0.0
