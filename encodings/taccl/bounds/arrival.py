"""Arrival: by when a rank can have so much of some chunks, whatever is grouped; a bound for latencies and bytes.

A rank's last message through a port (links that exclude each other at its end) of x chunks starts when its sender has
x of them and the port has brought y - x before. So the earliest time for y chunks through a port follows from those for
fewer, and that for h chunks at a rank from its ports together. What is left out can only help: a sender sends to
several ranks at once through one port of its own, and chunks may come twice.

*Not back*: what a rank first gets from a sender, this hasn't got from that rank. So of what a sender has, the ports
that lead to it from the receiver alone don't count. (Where ranks are alike, and one stands for all, they do.)

*In units*: where chunks may be cut, bytes are counted in units, rounded up. A message of x bytes then counts as i units
and takes no less than alpha + beta * (i - 1) units, since the last one may be all but empty; all messages of a port
together take alpha and its bytes at least, of which the last unit counts for nothing either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.link_costs import SIDES, distances_s, links_into, port_of_links
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.rotations import find_rotations, orbits
from gapless.topologies.topology import Topology

__all__ = ["Costs", "arrival_bound_s", "earliest_s", "fluid_arrival_bound_s"]


_MOST_UNITS = 240
"""Units that bytes are counted in, at most; and fewer, so that pairs of them times links stay below `_MOST_STEPS`."""
_MOST_STEPS = 3_000_000
_MOST_CLASSES = 4
"""Sets of chunks that are looked at in units, in the order of the ranks that want them."""


@dataclass(frozen=True)
class Costs:
    """A message of n chunks (or units) over link l takes `alpha_s[l] + beta_s[l] * (n - slack)`."""

    alpha_s: Floats
    beta_s: Floats
    slack: int = 0


@dataclass(frozen=True)
class _Ports:
    """Ports in front of ranks, and their links in groups of the same costs, those of port p from `first[p]` on.

    `rank[p]`: where port p leads. Of each group g, `port[g]`, `senders[g]`, `alpha_s[g]`, `beta_s[g]`, and whether it
    is `alone[g]`: all that comes through its port is from one sender.
    """

    rank: Ids
    first: Ids
    port: Ids
    senders: tuple[Ids, ...]
    alpha_s: Floats
    beta_s: Floats
    alone: Mask
    slack: int


def arrival_bound_s(problem: Chunked, most_chunks: int) -> float:
    """When a rank, or a node, can have all that it wants in whole chunks, of a problem that doesn't reduce.

    Ranks that want more than `most_chunks` are left out.
    """
    topology = problem.logical.topology
    costs = Costs(topology.alpha_s, topology.beta_s_per_byte * problem.chunk_bytes)
    rotated, best_s = find_rotations(topology).rank_orbit, 0.0
    for ranks, chunks in _classes(problem, rotated):
        if len(chunks) <= most_chunks:
            own = np.bincount(problem.owners[chunks], minlength=topology.device_count)
            best_s = max(best_s, _class_bound_s(problem, ranks, chunks, own, costs, _kept(rotated, own)))
    return best_s


def fluid_arrival_bound_s(problem: Chunked) -> float:
    """The same in chunks of whatever size."""
    topology, best_s = problem.logical.topology, 0.0
    rotated = find_rotations(topology).rank_orbit
    for number, (ranks, chunks) in enumerate(_classes(problem, rotated)):
        own = np.bincount(problem.owners[chunks], minlength=topology.device_count)
        common = int(np.gcd.reduce(own))
        orbit = _kept(rotated, own)
        groups = len(topology.links) * len(np.unique(orbit)) / topology.device_count
        most = min(_MOST_UNITS, int(np.sqrt(_MOST_STEPS / groups)))
        units = most * common // int(own.sum())
        if number >= _MOST_CLASSES or not units:
            break
        beta_s = topology.beta_s_per_byte * (problem.chunk_bytes * common / units)
        costs = Costs(topology.alpha_s, beta_s, slack=1)
        best_s = max(best_s, _class_bound_s(problem, ranks, chunks, own // common * units, costs, orbit))
    return best_s


def earliest_s(topology: Topology, costs: Costs, own: Ids, orbit: Ids) -> Floats:
    """`earliest[r, h]`: seconds before which rank r can't have h of the chunks, of which it has `own[r]` at the start.

    Float of shape (ranks, chunks + 1), inf for what it never has; `orbit[r]`: a rank that is like rank r. In units it
    is before these times that a rank can't have more than h - 1. The equations are approached from above, where only
    what can be reached is ever written; whatever solves them is a bound, since messages obey them one by one.
    """
    firsts, place = np.unique(orbit, return_inverse=True)
    into = np.flatnonzero(np.isin(topology.link_target, firsts))
    ports = _ports(topology, costs, into, port_of_links(topology, into, -1), topology.link_target[into])
    table = np.full((len(own), int(own.sum()) + 1), np.inf)
    for rank, count in enumerate(own.tolist()):
        table[rank, : count + 1] = 0.0
    brought = np.full((len(ports.rank), table.shape[1]), np.inf)
    while True:
        had = _had(ports, table) if len(firsts) < len(own) else _had_apart(ports, table, brought, own)
        nearer = np.minimum(_through(ports, had), brought)
        if not (nearer < brought * (1 - 1e-12)).any():
            return table
        brought = nearer
        rows = np.stack([_at_rank(brought[ports.rank == rank], int(own[rank])) for rank in firsts.tolist()])
        table = np.minimum(rows, table[firsts])[place]


def _kept(orbit: Ids, own: Ids) -> Ids:
    """The orbits of rotations that keep what each rank owns: these, or every rank alone; int64."""
    return orbit if np.array_equal(own[orbit], own) else np.arange(len(own))


def _classes(problem: Chunked, rotated: Ids) -> Iterator[tuple[list[int], Ids]]:
    """Ranks that want the same chunks from elsewhere, and these chunks: all of them, and those from other nodes."""
    topology, count = problem.logical.topology, problem.collective.rank_count
    if problem.sketch is not None:
        orbit = orbits([images.ranks for images in problem.logical.symmetry], count)
    elif len({len(buffer) for buffer in problem.collective.inputs}) == 1:
        orbit = rotated
    else:
        orbit = np.arange(count)
    nodes = topology.node_of
    seen: dict[bytes, tuple[list[int], Ids]] = {}
    held = problem.wanted.copy()
    shared = np.flatnonzero(problem.wanted.sum(axis=1) > 1)  # its owner counts as one of those that must have it
    held[shared, problem.owners[shared]] = True
    for rank in np.unique(orbit).tolist():
        masks = [np.ones(len(problem.owners), dtype=np.bool_)]
        if 1 < topology.node_count < count:
            masks.append(nodes[problem.owners] != nodes[rank])
        for away in masks:
            chunks = np.flatnonzero(held[:, rank] & away)
            if len(chunks) and problem.wanted[chunks, rank].any():
                seen.setdefault(chunks.tobytes(), ([], chunks))[0].append(rank)
    return iter(seen.values())


def _class_bound_s(problem: Chunked, ranks: list[int], chunks: Ids, own: Ids, costs: Costs, orbit: Ids) -> float:
    """When the last of the ranks can have all chunks; and where a node wants them, when they are in and spread.

    `own[r]`: what rank r has of them at the start, in chunks or units.
    """
    topology = problem.logical.topology
    had_s = earliest_s(topology, costs, own, orbit)
    best_s = float(had_s[ranks, -1].max())
    inside = topology.node_of == topology.node_of[ranks[0]]
    from_elsewhere = not own[inside].any() and inside.sum() > 1
    if from_elsewhere and problem.wanted[np.ix_(chunks, np.flatnonzero(inside))].all():
        best_s = max(best_s, _node_bound_s(topology, costs, inside, had_s))
    return best_s


def _node_bound_s(topology: Topology, costs: Costs, inside: Mask, had_s: Floats) -> float:
    """Before this, a set of ranks can't have all of the chunks of `had_s` spread among them; none is inside at first.

    The last chunk to come in must still go from where it came in to all others. Through several ports it may come in
    at several ranks at once; through a single one, to another rank no sooner than a message later.
    """
    entering = links_into(topology, inside)
    anywhere = np.zeros_like(entering)
    ports = [_ports(topology, costs, entering, port_of_links(topology, entering, side), anywhere) for side in SIDES]
    all_in_s = max(float(_at_rank(_through(one_side, _had(one_side, had_s)), 0)[-1]) for one_side in ports)
    duration_s = costs.alpha_s + costs.beta_s * (1 - costs.slack)
    apart_s = distances_s(topology, duration_s, np.unique(topology.link_target[entering]))[:, inside]
    if min(len(one_side.rank) for one_side in ports) > 1:
        return all_in_s + float(apart_s.min(axis=0).max())
    again_s = float(duration_s[entering].min())
    return all_in_s + float(np.minimum(apart_s, again_s).max(axis=1).min())


def _ports(topology: Topology, costs: Costs, links: Ids, port_of_link: Ids, end_of_link: Ids) -> _Ports:
    """Links by their ends and ports, and in a port by their costs."""
    groups: dict[tuple[int, int, float, float], set[int]] = {}
    for link, port, end in zip(links.tolist(), port_of_link.tolist(), end_of_link.tolist(), strict=True):
        key = end, port, float(costs.alpha_s[link]), float(costs.beta_s[link])
        groups.setdefault(key, set()).add(int(topology.link_source[link]))
    keys = sorted(groups)
    ends = np.array([key[:2] for key in keys], dtype=np.int64).reshape(-1, 2)
    _, first, port, sizes = np.unique(
        ends[:, 0] * (1 << 32) + ends[:, 1], return_index=True, return_inverse=True, return_counts=True
    )
    senders = tuple(np.array(sorted(groups[key])) for key in keys)
    return _Ports(
        rank=ends[first, 0],
        first=first,
        port=port,
        senders=senders,
        alpha_s=np.array([key[2] for key in keys]),
        beta_s=np.array([key[3] for key in keys]),
        alone=(sizes[port] == 1) & (np.array([len(ranks) for ranks in senders], dtype=np.int64) == 1),
        slack=costs.slack,
    )


def _at_rank(brought: Floats, own: int) -> Floats:
    """The earliest times for 0, 1, 2, ... chunks behind these ports, `own` of which are there at the start."""
    count = brought.shape[1] - 1
    every = np.sort(brought[:, 1:].ravel())
    row = np.full(count + 1, np.inf)
    row[: own + 1] = 0.0
    fresh = every[: count - own]
    row[own + 1 : own + 1 + len(fresh)] = fresh
    return row


def _had(ports: _Ports, table: Floats) -> Floats:
    """`had[g, x]`: when some sender of group g can have x chunks; float of shape (groups, chunks + 1)."""
    rows = [table[senders].min(axis=0) for senders in ports.senders]
    return np.stack(rows) if rows else table[:0]


def _had_apart(ports: _Ports, table: Floats, brought: Floats, own: Ids) -> Floats:
    """The same without what has come to the sender from the receiver alone; `brought`: see `_through`."""
    only_from = np.full(len(ports.rank), -1)
    for group in np.flatnonzero(ports.alone).tolist():
        only_from[ports.port[group]] = ports.senders[group][0]
    known: dict[tuple[int, int], Floats] = {}

    def apart(sender: int, receiver: int) -> Floats:
        into = ports.rank == sender
        back = into & (only_from == receiver)
        if not back.any():
            return np.asarray(table[sender])
        if (sender, receiver) not in known:
            known[sender, receiver] = _at_rank(brought[into & ~back], int(own[sender]))
        return known[sender, receiver]

    receivers = ports.rank[ports.port].tolist()
    rows = [
        np.min([apart(sender, receiver) for sender in senders.tolist()], axis=0)
        for senders, receiver in zip(ports.senders, receivers, strict=True)
    ]
    return np.stack(rows) if rows else table[:0]


def _through(ports: _Ports, had: Floats) -> Floats:
    """`brought[p, y]`: when y chunks can have come through port p; float of shape (ports, chunks + 1)."""
    count = had.shape[1] - 1
    brought = np.full((len(ports.rank), count + 1), np.inf)
    brought[:, 0] = 0.0
    if not len(ports.senders):
        return brought
    units = np.arange(1, count + 1) - ports.slack
    took = ports.alpha_s[:, None] + ports.beta_s[:, None] * units
    least_s = np.minimum.reduceat(had[:, 1] + ports.alpha_s, ports.first)[:, None]
    least_s = least_s + np.minimum.reduceat(ports.beta_s, ports.first)[:, None] * units
    for y in range(1, count + 1):
        before = brought[ports.port, y - 1 :: -1]  # before a last message of 1, 2, ..., y chunks
        ready = np.maximum(before, np.where(ports.alone[:, None], had[:, y : y + 1], had[:, 1 : y + 1]))
        brought[:, y] = np.minimum.reduceat((ready + took[:, :y]).min(axis=1), ports.first)
        brought[:, y] = np.maximum(brought[:, y], least_s[:, y - 1])
    return brought
