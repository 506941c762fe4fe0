"""Lower bounds by cuts, for chunks as they are, and what sums have besides.

No plan brings what a set of ranks wants in faster than the ports around the set let it. The chunks that it wants from
outside come in over the links that lead into it; of links that exclude each other (one switch side, one NIC) a single
one works at a time, so by any instant only so many whole chunks are in. The last chunk to come in must still be spread
inside the set, and the first can't come in before it has reached the boundary.

Sums:

*Doubling*: a rank adds to a sum one part at a time, so a copy holds at most twice as many parts after a transfer as the
largest did when it started. *Crossings*: let the ranks be cut into classes. Before any class holds all parts of a chunk
there were as many transfers between classes as classes that hold a part, less one; each other class that wants the sum
needs one more. (For single ranks and an ALLREDUCE of n: 2 (n - 1), the count behind its bandwidth bound.)

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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.link_costs import (
    SIDES,
    all_through_s,
    distances_s,
    links_into,
    most_at_once,
    port_of_links,
    rounds_to_reach,
    sides_of,
)
from gapless.encodings.taccl.chunked import Chunked
from gapless.topologies.topology import Topology

__all__ = [
    "Kind", "Ports", "across_cuts_s", "crossed_links", "crossing_bound_s", "crossings", "cuts_bound_s",
    "doubling_bound_s", "gossip_bound_s", "gossip_rounds", "kinds_of", "one_of_each_orbit", "partitions_of", "ports_of",
]  # fmt: skip


@dataclass(frozen=True)
class Ports:
    """Ports of some links: the k-th whole chunk is through port p at `head_s[p] + k * chunk_s[p]` at the earliest.

    `links`: sorted by their ports, those of port p from `first[p]` on.
    """

    links: Ids
    first: Ids
    head_s: Floats
    chunk_s: Floats


def ports_of(problem: Chunked, may_group: Mask, links: Ids, side: int) -> Ports:
    """The ports of links, one or more, where chunks may travel together on the links of `may_group`.

    The head is the latency that a message of any number of chunks has, where all links of the port may group.
    """
    topology = problem.logical.topology
    port = port_of_links(topology, links, side)
    order = np.argsort(port, kind="stable")
    links, first = links[order], np.unique(port[order], return_index=True)[1]
    alpha_s, grouped = topology.alpha_s[links], may_group[links]
    occupied_s = problem.duration_s[links] - np.where(grouped, alpha_s, 0.0)
    all_grouped = np.logical_and.reduceat(grouped, first)
    head_s = np.where(all_grouped, np.minimum.reduceat(alpha_s, first), 0.0)
    return Ports(links, first, head_s, np.minimum.reduceat(occupied_s, first))


@dataclass(frozen=True)
class _Cut:
    """The links into a set of ranks, and the chunks that it wants from outside.

    `usable[c, l]`: whether the c-th of them may use the l-th link; `early_s[c, l]`: when it can be there, inf if not.
    """

    inside: Mask
    entering: Ids
    needed: Ids
    usable: Mask
    early_s: Floats

    def with_chunks(self, chosen: Mask) -> _Cut:
        """The same for some of the chunks."""
        return _Cut(self.inside, self.entering, self.needed[chosen], self.usable[chosen], self.early_s[chosen])


def cuts_bound_s(problem: Chunked, may_group: Mask, most_times: int, symmetry: Sequence[Ids]) -> float:
    """The largest bound over the cuts around each rank and each node, in both directions.

    `may_group[l]`: whether chunks may travel together on link l. `most_times`: see `BoundParameters.cut_times`.
    `symmetry`: permutations of the ranks that keep the problem.
    """
    topology = problem.logical.topology
    ranks = [(rank,) for rank in range(topology.device_count)]
    several = [tuple(node) for node in topology.nodes if 1 < len(node) < topology.device_count]
    sides = sides_of(topology, one_of_each_orbit([*ranks, *several], symmetry))
    return max((_cut_bound_s(problem, may_group, side, most_times) for side in sides), default=0.0)


def one_of_each_orbit(sets: list[tuple[int, ...]], permutations: Sequence[Ids]) -> Iterator[tuple[int, ...]]:
    """Cuts that a symmetry carries onto each other have the same bound."""
    seen: set[tuple[int, ...]] = set()
    for ranks in sets:
        if ranks not in seen:
            yield ranks
        fresh = {ranks}
        while fresh := fresh - seen:
            seen |= fresh
            fresh = {tuple(sorted(images[list(members)].tolist())) for members in fresh for images in permutations}


def _cut_bound_s(problem: Chunked, may_group: Mask, inside: Mask, most_times: int) -> float:
    """The bound of one set of ranks: bool, shape (ranks,).

    It is taken for all chunks that the set wants from outside, and for those alone that can't be at its boundary before
    some time: what comes late over a slow link still has to come in through the same ports.
    """
    topology = problem.logical.topology
    needed = np.flatnonzero((problem.wanted & inside).any(axis=1) & ~inside[problem.owners])
    entering = links_into(topology, inside)
    if not len(needed):
        return 0.0
    usable = problem.usable[np.ix_(needed, entering)]
    early_s = np.where(usable, problem.earliest_s[np.ix_(needed, topology.link_source[entering])], np.inf)
    cut = _Cut(inside, entering, needed, usable, early_s)
    at_boundary_s = early_s.min(axis=1)
    times_s = np.unique(at_boundary_s)
    chosen = np.unique(np.linspace(0, len(times_s) - 1, most_times).astype(np.int64))
    return max(
        _bound_of_chunks_s(problem, may_group, cut.with_chunks(at_boundary_s >= time_s))
        for time_s in times_s[chosen].tolist()
    )


def _bound_of_chunks_s(problem: Chunked, may_group: Mask, cut: _Cut) -> float:
    """When all of the cut's chunks are in, and those of a single port that have no other way, and the tail."""
    best_s = 0.0
    for side in SIDES:
        ports = ports_of(problem, may_group, cut.entering, side)
        place = np.searchsorted(cut.entering, ports.links)
        uses = np.logical_or.reduceat(cut.usable[:, place], ports.first, axis=1)
        used = uses.any(axis=0)
        head_s = ports.head_s + np.minimum.reduceat(cut.early_s.min(axis=0)[place], ports.first)
        head_s, chunk_s, uses = head_s[used], ports.chunk_s[used], uses[:, used]
        best_s = max(best_s, all_through_s(head_s, chunk_s, len(cut.needed), uses.sum(axis=0)))
        only = (uses & (uses.sum(axis=1) == 1)[:, None]).sum(axis=0)
        best_s = max(best_s, float((head_s + only * chunk_s).max(initial=0.0, where=only > 0)))
    return best_s + _tail_s(problem, cut)


def _tail_s(problem: Chunked, cut: _Cut) -> float:
    """The least time from a chunk's first entry until every rank of the set that wants it has it."""
    topology, inside = problem.logical.topology, cut.inside
    links = np.asarray(problem.usable[cut.needed].any(axis=0))
    entries = np.unique(topology.link_target[cut.entering[cut.usable.any(axis=0)]])
    within = np.flatnonzero(links & inside[topology.link_source] & inside[topology.link_target])
    spread_s = distances_s(topology, problem.duration_s, entries, within).min(axis=0, initial=np.inf)
    return float(np.where(problem.wanted[cut.needed] & inside, spread_s, 0.0).max(axis=1).min())


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
    topology, usable = problem.logical.topology, np.asarray(problem.logical.allowed.any(axis=0))
    crossed = crossed_links(topology, kinds, partitions_of(topology), usable)
    return max((max(_all_over_s(problem, may_group, links, count)) for count, links in crossed), default=0.0)


def crossed_links(
    topology: Topology, kinds: list[Kind], partitions: Iterable[Ids], usable: Mask | None = None
) -> Iterator[tuple[int, Ids]]:
    """How many chunks must be sent between classes of a partition, and the links between them; where there are any."""
    for class_of in partitions:
        count = sum(kind.count * crossings(kind, class_of) for kind in kinds)
        between = class_of[topology.link_source] != class_of[topology.link_target]
        links = np.flatnonzero(between if usable is None else between & usable)
        if count and len(links):
            yield count, links


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
    sides = sides_of(topology, one_of_each_orbit(list(map(tuple, topology.nodes)), symmetry))
    return max((_out_of_s(problem, kinds, may_group, side) for side in sides), default=0.0)


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
