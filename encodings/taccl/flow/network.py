"""The network of a matching: links and chunks of a quotient problem, as all tries share them, and partners of ports.

A set of chunks is a whole number with a bit for each chunk, so that what a link may take is the `and` of a few of them.

Three nodes on rails send to each other: where a NIC may send to either of the others, two of them often send to each
other, and the third is idle. Where each sends to one only, and all take in from another one, all are busy all the time.
So each port that leads into a bottleneck set may be given one partner, and none waits for another (`closed_links`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gapless.array_types import Ids, Mask
from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import BottleneckSet
from gapless.encodings.taccl.bounds.link_costs import distances_s
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.quotient import QuotientProblem

__all__ = ["Network", "Ports", "closed_links", "contested_ports", "network_of"]

_SAME_TIME = 1e-9
"""Distances that differ by this share are equal: sums of the same terms in another order."""


@dataclass(frozen=True)
class Network:
    """Links and chunks of a quotient problem. Bit b of a set of chunks is its chunk `chunks[b]`, owned by `owner[b]`.

    `alpha_s`, `chunk_s`: what a send takes, and each chunk in it. `kind[l]`: a number for links of the same costs.
    `may_pass[l]`: chunks that may take link l. `next_links[l]`: links to be looked at when link l is done. `enters[l]`:
    the bottleneck sets that it leads into; `outside[s]`: chunks whose owner isn't in set s. `have`, `need`, `want`: for
    each rank, chunks that it has at the start, may be given, and is to end with. `lacking[b]`: how many ranks want
    chunk b. `single`: chunks that one rank wants, which leave the rank that sends them. `to_go[r]`: the chunks by how
    far it is from rank r to where they are wanted, farthest first, empty where that is equal for all. `one_at_a_time`:
    a rank sends a chunk to one rank at a time, as where parts are added up backwards in time.
    """

    source: list[int]
    target: list[int]
    alpha_s: list[float]
    chunk_s: list[float]
    kind: list[int]
    clocks: list[tuple[int, ...]]
    clock_count: int
    links_of: list[list[int]]
    next_links: list[tuple[int, ...]]
    may_pass: list[int]
    enters: list[tuple[int, ...]]
    outside: list[int]
    chunks: list[int]
    owner: list[int]
    have: list[int]
    need: list[int]
    want: list[int]
    lacking: list[int]
    single: int
    to_go: list[list[int]]
    one_at_a_time: bool

    @property
    def kinds(self) -> int:
        """How many kinds of links there are."""
        return max(self.kind) + 1

    @cached_property
    def shares_clocks(self) -> bool:
        """Whether some clock is held by several links."""
        held = [clock for links in self.links_of for link in links for clock in self.clocks[link]]
        return len(set(held)) < len(held)


def network_of(
    problem: Chunked,
    quotient: QuotientProblem,
    sets: Sequence[BottleneckSet] = (),
    one_at_a_time: bool = False,
    seed: int = 0,
) -> Network:
    """The quotient of a problem that doesn't reduce, its chunks numbered by chance, so that any may come first."""
    topology, ranks = quotient.topology, quotient.topology.device_count
    chunks = np.random.default_rng(seed).permutation(len(quotient.chunks))
    owner, wanted = np.array(quotient.owner)[chunks], quotient.wanted[chunks]
    lacking, everything = wanted.sum(axis=1), (1 << len(chunks)) - 1
    chunk_s = quotient.duration_s - topology.alpha_s
    kind = np.unique(np.stack([topology.alpha_s, chunk_s]), axis=1, return_inverse=True)[1].ravel()
    have = [_bits(owner == rank) for rank in range(ranks)]
    sets_of = [{number for number, members in enumerate(sets) if rank in members} for rank in range(ranks)]
    source, target = topology.link_source.tolist(), topology.link_target.tolist()
    return Network(
        source=source,
        target=target,
        alpha_s=topology.alpha_s.tolist(),
        chunk_s=chunk_s.tolist(),
        kind=kind.tolist(),
        clocks=quotient.groups,
        clock_count=quotient.group_count,
        links_of=quotient.links_of,
        next_links=_next_links(quotient, one_at_a_time),
        may_pass=_may_pass(problem, quotient, chunks, wanted),
        enters=[tuple(sorted(sets_of[end] - sets_of[start])) for start, end in zip(source, target, strict=True)],
        outside=[everything & ~_bits(np.isin(owner, members)) for members in sets],
        chunks=chunks.tolist(),
        owner=owner.tolist(),
        have=have,
        need=[everything & ~held for held in have],
        want=[_bits(column) for column in wanted.T],
        lacking=lacking.tolist(),
        single=_bits(lacking == 1),
        to_go=_to_go(quotient, wanted),
        one_at_a_time=one_at_a_time,
    )


def _bits(mask: Mask) -> int:
    """A set of chunks from a mask over them."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _next_links(quotient: QuotientProblem, one_at_a_time: bool) -> list[tuple[int, ...]]:
    """The links that share a clock with each, lead away from its end, or from its start, where that was sending."""
    usable = {link for links in quotient.links_of for link in links}
    by_clock: dict[int, list[int]] = {}
    for link, clocks in enumerate(quotient.groups):
        for clock in clocks:
            by_clock.setdefault(clock, []).append(link)
    found = []
    for clocks, start, end in zip(
        quotient.groups, quotient.topology.link_source.tolist(), quotient.topology.link_target.tolist(), strict=True
    ):
        links = {link for clock in clocks for link in by_clock[clock]}.union(quotient.links_of[end])
        found.append(tuple(sorted(usable & (links.union(quotient.links_of[start]) if one_at_a_time else links))))
    return found


def _to_go(quotient: QuotientProblem, wanted: Mask) -> list[list[int]]:
    """The chunks by how far it is from each rank to the last that wants them, farthest first."""
    topology = quotient.topology
    if (wanted.sum(axis=1) == topology.device_count - 1).all():
        return [[] for _ in range(topology.device_count)]
    ends, which = np.unique(wanted, axis=0, return_inverse=True)
    to_rank_s = distances_s(topology, quotient.duration_s, np.arange(topology.device_count), backwards=True)
    to_go_s = np.stack([to_rank_s[end].max(axis=0, initial=0.0) for end in ends])[which.ravel()]
    return [[_bits(column == value) for value in np.unique(column)[::-1]] for column in to_go_s.T]


def _may_pass(problem: Chunked, quotient: QuotientProblem, chunks: Ids, wanted: Mask) -> list[int]:
    """Those that a sketch lets pass each link; a chunk that only some ranks want must come nearer to one of these."""
    topology = quotient.topology
    source, target, links = topology.link_source, topology.link_target, len(topology.links)
    allowed = np.ones((len(chunks), links), dtype=np.bool_)
    if not problem.is_free:
        allowed &= problem.usable[quotient.chunks[chunks]]
    nearer: dict[tuple[bytes, bytes], Mask] = {}
    for row in np.flatnonzero(wanted.sum(axis=1) < topology.device_count - 1).tolist():
        key = wanted[row].tobytes(), b"" if problem.is_free else allowed[row].tobytes()
        if key not in nearer:
            ends, usable = np.flatnonzero(wanted[row]), np.flatnonzero(allowed[row])
            to_go_s = distances_s(topology, quotient.duration_s, ends, usable, backwards=True)
            nearer[key] = np.any(to_go_s[:, target] < to_go_s[:, source] * (1 - _SAME_TIME), axis=0)
        allowed[row] &= nearer[key]
    return [_bits(column) for column in allowed.T]


Ports = dict[int, dict[int, list[int]]]
"""By the clock that a send leaves through, and the one that it comes in through: links."""


def contested_ports(network: Network) -> Ports:
    """The ports of links into bottleneck sets that hold two clocks; none where each port has a single partner."""
    ports: Ports = {}
    for links in network.links_of:
        for link in links:
            if network.enters[link] and len(network.clocks[link]) == 2:
                leaves, comes = network.clocks[link]
                ports.setdefault(leaves, {}).setdefault(comes, []).append(link)
    partners = [comes for ends in ports.values() for comes in ends]
    is_contested = any(len(ends) > 1 for ends in ports.values()) or len(set(partners)) < len(partners)
    return ports if is_contested else {}


def closed_links(ports: Ports, chance: random.Random) -> frozenset[int]:
    """The links between ports that aren't partners, where as many as can be have one, else by chance."""
    partner: dict[int, int] = {}
    leaves = list(ports)
    chance.shuffle(leaves)
    for port in leaves:
        _find_partner(port, ports, partner, chance, set())
    return frozenset(
        link
        for port, ends in ports.items()
        for comes, links in ends.items()
        if partner.get(comes) != port
        for link in links
    )


def _find_partner(port: int, ports: Ports, partner: dict[int, int], chance: random.Random, seen: set[int]) -> bool:
    """Find a port a partner, if need be by finding another one for the port that has it (an augmenting path)."""
    for comes in chance.sample(list(ports[port]), len(ports[port])):
        if comes in seen:
            continue
        seen.add(comes)
        if comes not in partner or _find_partner(partner[comes], ports, partner, chance, seen):
            partner[comes] = port
            return True
    return False
