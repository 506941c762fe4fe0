"""Lower bounds for sums: how fast parts can come together, and how many transfers it takes to share a sum.

*Doubling*: a rank adds to a sum one part at a time, so a copy holds at most twice as many parts after a transfer as the
largest did when it started. *Crossings*: let the ranks be cut into classes. Before any class holds all parts of a chunk
there were as many transfers between classes as classes that hold a part, less one; each other class that wants the sum
needs one more. (For single ranks and an ALLREDUCE of n: 2 (n - 1), the count behind its bandwidth bound.) *Trees*: a
plan of this encoding adds each chunk up at its root and spreads it from there. So for the parts each rank but the root
sends once, for the sums each receives once, over the links of that phase; links that cost most are loaded least if
each takes its cheapest. This bound alone rests on the root.

*Gossip*: every rank must get the sum of all, and a copy of a chunk is never sent while it is added to. Cut time into
rounds as long as the shortest message, and put each message into the round in which it starts. Then a round's messages
read what was there before the round, and a rank is in it the receiver of one message for the chunk or the sender of
some. Let M count, for ranks v and u, the paths by which u's part has got into v's copy: a round with one sender for d
receivers multiplies the norm of M by at most the larger root of x - 1/x = sqrt(d). In the end all n * n entries are at
least 1, so the norm is at least n. (For d = 1 the root is the golden ratio: the bound on half-duplex gossip.) And who
has the sum first has it after ceil(log2 n) rounds, and others only after one more.

*Across cuts*: take a set of ranks and all the others. A chunk that ranks inside hold parts of and ranks outside want
must cross at least once. Where it crosses just once, that crossing carries all parts from inside, so they have been
added up there before; and every rank outside that wants the sum has it by means of that crossing, so it is still to be
spread. A chunk that crosses early, without some parts, crosses again with these; one that crosses late, too late to be
spread, has crossed before. So with n chunks and n crossings the ports stand still both before and after; with one
crossing more, which is early or late but not both, before or after; only with two more need they never stand still.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.cuts import one_of_each_orbit, ports_of
from gapless.encodings.taccl.bounds.link_costs import SIDES, all_through_s, distances_s, most_at_once, rounds_to_reach
from gapless.encodings.taccl.chunked import Chunked
from gapless.topologies.topology import Topology

__all__ = [
    "Kind", "across_cuts_s", "crossing_bound_s", "crossings", "doubling_bound_s", "gossip_bound_s", "gossip_rounds",
    "kinds_of", "pairs_latency_s", "partitions_of", "trees_bound_s",
]  # fmt: skip

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Kind:
    """`count` chunks of a sum that are alike: who holds parts of it, who wants it, and which links it may use."""

    holders: tuple[int, ...]
    wants: tuple[int, ...]
    links: Ids
    count: int


def kinds_of(problem: Chunked) -> list[Kind]:
    """The chunks of a problem that reduces, those left out that nobody wants."""
    collective, allowed = problem.collective, problem.logical.allowed
    alike: dict[tuple[tuple[int, ...], tuple[int, ...], bytes], list[int]] = {}
    for chunk, (holders, wants) in enumerate(zip(collective.contributors, collective.destinations, strict=True)):
        if wants:
            alike.setdefault(
                (holders, wants, allowed[chunk].tobytes() if problem.sketch is not None else b""), []
            ).append(chunk)
    return [
        Kind(holders, wants, np.flatnonzero(allowed[chunks[0]]), len(chunks))
        for (holders, wants, _), chunks in alike.items()
    ]


def doubling_bound_s(problem: Chunked, kinds: list[Kind]) -> float:
    """The least time for any sum that is wanted, over the fastest link that its chunk may use."""
    return max((_doublings(kind.holders) * float(problem.duration_s[kind.links].min()) for kind in kinds), default=0.0)


def pairs_latency_s(problem: Chunked, kinds: list[Kind]) -> float:
    """The longest of the shortest paths from a rank that holds a part to a rank that wants the sum."""
    topology, best_s = problem.logical.topology, 0.0
    everyone = np.arange(topology.device_count)
    known: dict[bytes, NDArray[np.float64]] = {}
    for kind in kinds:
        key = kind.links.tobytes()
        if key not in known:
            known[key] = distances_s(topology, problem.duration_s, everyone, kind.links)
        best_s = max(best_s, float(known[key][np.ix_(kind.holders, kind.wants)].max()))
    return best_s


def gossip_bound_s(problem: Chunked, kinds: list[Kind]) -> float:
    """Seconds for the sums that all of their contributors want; 0 where there are none."""
    best_s = 0.0
    for kind in kinds:
        if len(kind.holders) > 1 and set(kind.holders) <= set(kind.wants):
            rounds = gossip_rounds(len(kind.holders), most_at_once(problem.logical.topology, kind.links))
            best_s = max(best_s, rounds * float(problem.duration_s[kind.links].min()))
    return best_s


def gossip_rounds(ranks: int, receivers: int) -> int:
    """The least rounds for `ranks` ranks to get the sum of all, where one sends to `receivers` others at once."""
    growth = (math.sqrt(receivers) + math.sqrt(receivers + 4)) / 2
    by_norm = math.ceil(math.log(ranks) / math.log(growth) - 1e-9)
    return max(by_norm, (ranks - 1).bit_length() + 1)


def crossing_bound_s(problem: Chunked, kinds: list[Kind], may_group: Mask) -> float:
    """The largest bound over cuts into single ranks, into nodes, and into the ranks of one node and all others."""
    topology = problem.logical.topology
    usable = problem.logical.allowed.any(axis=0)
    best_s = 0.0
    for class_of in partitions_of(topology):
        needed = sum(kind.count * crossings(kind, class_of) for kind in kinds)
        between = np.flatnonzero((class_of[topology.link_source] != class_of[topology.link_target]) & usable)
        if needed and len(between):
            best_s = max(best_s, *_all_over_s(problem, may_group, between, needed))
    return best_s


def _all_over_s(problem: Chunked, may_group: Mask, links: Ids, count: int) -> list[float]:
    """When `count` chunks can have crossed some links, by the ports at either side."""
    found = [ports_of(problem, may_group, links, side) for side in SIDES]
    return [all_through_s(ports.head_s, ports.chunk_s, count) for ports in found]


def partitions_of(topology: Topology) -> list[Ids]:
    """`class_of[r]` for each partition of the ranks."""
    ranks, node = np.arange(topology.device_count), topology.node_of
    if topology.node_count == 1:
        return [ranks]
    alone = [np.where(node == number, ranks, topology.device_count) for number in range(topology.node_count)]
    return [ranks, node, *alone]


def crossings(kind: Kind, class_of: Ids) -> int:
    """How many times a chunk must be sent from one class to another."""
    holding, wanting = set(class_of[list(kind.holders)].tolist()), set(class_of[list(kind.wants)].tolist())
    first_elsewhere = not holding & wanting  # then the first to hold all parts is one more, on either side
    return len(holding) - 1 + len(wanting) - 1 + first_elsewhere


def _doublings(holders: tuple[int, ...]) -> int:
    """The transfers one after the other that it takes to add up the parts of some ranks."""
    return (len(holders) - 1).bit_length()


def across_cuts_s(problem: Chunked, kinds: list[Kind], may_group: Mask, symmetry: Sequence[Ids]) -> float:
    """The largest bound over the cuts around each node, in both directions; 0 for a single node.

    `symmetry`: permutations of the ranks that keep the problem.
    """
    topology = problem.logical.topology
    if topology.node_count == 1:
        return 0.0
    nodes = [tuple(topology.ranks_of_node(node)) for node in range(topology.node_count)]
    best_s = 0.0
    for members in one_of_each_orbit(nodes, symmetry):
        inside = np.zeros(topology.device_count, dtype=np.bool_)
        inside[list(members)] = True
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
    before_s = min(_beside_s(problem, kind, out, inside, before=True) for kind in crossing)
    after_s = min(_beside_s(problem, kind, out, ~inside, before=False) for kind in crossing)
    count, best_s = sum(kind.count for kind in crossing), 0.0
    all_over_s = [_all_over_s(problem, may_group, leaving, count + more) for more in range(3)]
    for exact_s, one_more_s, two_more_s in zip(*all_over_s, strict=True):  # by the ports at either side
        least_s = min(exact_s + before_s + after_s, one_more_s + min(before_s, after_s), two_more_s)
        best_s = max(best_s, least_s)
    return best_s


def _beside_s(problem: Chunked, kind: Kind, out: Mask, side: Mask, before: bool) -> float:
    """Before a crossing the least time in which the parts of all holders are one sum at a rank that it may start from.

    After it, from the chunk's entry at some rank until all that want it have it. `side`: the ranks on that side.
    """
    topology, crossing = problem.logical.topology, kind.links[out[kind.links]]
    ends = np.unique((topology.link_source if before else topology.link_target)[crossing])
    if not len(ends):
        return 0.0
    links = kind.links[side[topology.link_source[kind.links]] & side[topology.link_target[kind.links]]]
    distance_s = distances_s(topology, problem.duration_s, ends, links, backwards=before)
    ranks = list(kind.holders if before else kind.wants)
    ports = most_at_once(topology, links)
    rounds = _doublings(kind.holders) if before else rounds_to_reach(len(ranks), ports)
    rounds_s = rounds * float(problem.duration_s[links].min(initial=np.inf)) if rounds else 0.0
    return _finite(max(float(distance_s[:, ranks].max(axis=1).min()), rounds_s))


def _finite(time_s: float) -> float:
    """0 where there is no path: a chunk that can't cross just once, for which nothing is known."""
    return time_s if np.isfinite(time_s) else 0.0


def trees_bound_s(problem: Chunked) -> float:
    """The largest mean load of the switch sides and NICs of one kind, whatever trees parts and sums take."""
    return max(_mean_load_s(problem, between, side) for between in (False, True) for side in SIDES)


def _mean_load_s(problem: Chunked, between_nodes: bool, side: int) -> float:
    """The mean over the resources at one side of the links inside, or between, nodes; no schedule is shorter."""
    topology = problem.logical.topology
    start, end = topology.held_start[:-1], topology.held_start[1:]
    counted = (topology.is_inter_node == between_nodes) & (end > start)
    resources = np.unique(topology.held[start[counted] if side == 0 else end[counted] - 1])
    if not len(resources):
        return 0.0
    loaded = np.bincount(topology.held_by, weights=np.isin(topology.held, resources), minlength=len(topology.links))
    cost_s = problem.occupancy_s * loaded
    total_s = 0.0
    for phase in problem.phases:
        spread = phase.problem
        for rank in range(topology.device_count):
            into = np.flatnonzero(spread.logical.topology.link_target == rank)
            chunks = np.flatnonzero(spread.wanted[:, rank])
            if len(chunks):
                paths_s = np.where(spread.usable[np.ix_(chunks, into)], cost_s[into], np.inf)
                total_s += float(paths_s.min(axis=1).sum())
    return total_s / len(resources)
