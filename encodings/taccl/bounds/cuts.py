"""Cuts: no plan brings what a set of ranks wants in faster than the ports around the set let it.

Take a set of ranks. The chunks that it wants from outside come in over the links that lead into it; of links that
exclude each other (one switch side, one NIC) a single one works at a time, so by any instant only so many whole chunks
are in. The last chunk to come in must still be spread inside the set, and the first can't come in before it has reached
the boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.link_costs import SIDES, all_through_s, distances_s, port_of_links
from gapless.encodings.taccl.chunked import Chunked

__all__ = ["Ports", "cuts_bound_s", "one_of_each_orbit", "ports_of"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


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
    nodes = [tuple(topology.ranks_of_node(node)) for node in range(topology.node_count)]
    several = [node for node in nodes if 1 < len(node) < topology.device_count]
    best_s = 0.0
    for members in one_of_each_orbit([*ranks, *several], symmetry):
        inside = np.zeros(topology.device_count, dtype=np.bool_)
        inside[list(members)] = True
        for side in (inside, ~inside):
            best_s = max(best_s, _cut_bound_s(problem, may_group, side, most_times))
    return best_s


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
    entering = np.flatnonzero(~inside[topology.link_source] & inside[topology.link_target])
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
