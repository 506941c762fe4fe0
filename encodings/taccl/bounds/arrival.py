"""Arrival: by when a rank can have h of some chunks, whatever is grouped; a bound that counts latencies and bytes.

A rank's last message through a port (links that exclude each other at its end) of x chunks starts when its sender has
x of them and the port has brought y - x before. So the earliest time for y chunks through a port follows from those for
fewer, and that for h chunks at a rank from its ports together. What is left out can only help: a sender sends to
several ranks at once through one port of its own, and chunks may come twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.latency import distances_s
from gapless.encodings.taccl.bounds.ports import SIDES, port_of_links
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.orbits import orbits
from gapless.encodings.taccl.symmetry.rotations import find_rotations
from gapless.topologies.topology import Topology

__all__ = ["arrival_bound_s", "earliest_s"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class _Links:
    """Links of one port with the same costs, those for one chunk: from any of `senders`."""

    senders: tuple[int, ...]
    alpha_s: float
    beta_s: float


_Port = tuple[_Links, ...]


def arrival_bound_s(problem: Chunked, most_chunks: int) -> float:
    """When a rank, or a node, can have all that it wants, of a problem that doesn't reduce.

    Ranks that want more than `most_chunks` are left out.
    """
    classes = _classes(problem, most_chunks)
    return max((_class_bound_s(problem, ranks, chunks) for ranks, chunks in classes), default=0.0)


def earliest_s(topology: Topology, alpha_s: Floats, beta_s: Floats, own: Ids) -> Floats:
    """`earliest[r, h]`: seconds before which rank r can't have h of the chunks, of which it has `own[r]` at the start.

    Float of shape (ranks, chunks + 1), inf for what it never has. Links cost `alpha_s`, and `beta_s` a chunk. The
    equations have one solution, since every message takes time: it is approached from above, where only what can be
    reached is ever written.
    """
    into = [np.flatnonzero(topology.link_target == rank) for rank in range(topology.device_count)]
    ports = [_ports(topology, alpha_s, beta_s, links, -1) for links in into]
    readers = [set(topology.link_target[topology.link_source == rank].tolist()) for rank in range(len(own))]
    table = np.full((len(own), int(own.sum()) + 1), np.inf)
    for rank, count in enumerate(own.tolist()):
        table[rank, : count + 1] = 0.0
    dirty = set(range(len(own)))
    while dirty:
        changed = set()
        for rank in sorted({reader for sender in dirty for reader in readers[sender]}):
            row = _at_rank(ports[rank], table, int(own[rank]))
            if (row < table[rank] * (1 - 1e-12)).any():
                table[rank] = np.minimum(row, table[rank])
                changed.add(rank)
        dirty = changed
    return table


def _classes(problem: Chunked, most_chunks: int) -> Iterator[tuple[list[int], Ids]]:
    """Ranks that want the same chunks from elsewhere, and these chunks: all of them, and those from other nodes."""
    topology, count = problem.logical.topology, problem.collective.rank_count
    if problem.sketch is not None:
        orbit = orbits([images.ranks for images in problem.logical.symmetry], count)
    elif len({len(buffer) for buffer in problem.collective.inputs}) == 1:
        orbit = find_rotations(topology).rank_orbit
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
            if 0 < len(chunks) <= most_chunks and problem.wanted[chunks, rank].any():
                seen.setdefault(chunks.tobytes(), ([], chunks))[0].append(rank)
    return iter(seen.values())


def _class_bound_s(problem: Chunked, ranks: list[int], chunks: Ids) -> float:
    """When the last of the ranks can have all chunks; and where a node wants them, when they are in and spread."""
    topology = problem.logical.topology
    own = np.bincount(problem.owners[chunks], minlength=topology.device_count)
    beta_s = topology.beta_s_per_byte * problem.chunk_bytes
    had_s = earliest_s(topology, topology.alpha_s, beta_s, own)
    best_s = max(float(had_s[rank, len(chunks)]) for rank in ranks)
    inside = topology.node_of == topology.node_of[ranks[0]]
    from_elsewhere = not own[inside].any() and inside.sum() > 1
    if from_elsewhere and problem.wanted[np.ix_(chunks, np.flatnonzero(inside))].all():
        best_s = max(best_s, _node_bound_s(topology, beta_s, inside, had_s))
    return best_s


def _node_bound_s(topology: Topology, beta_s: Floats, inside: Mask, had_s: Floats) -> float:
    """Before this, a set of ranks can't have all of the chunks of `had_s` spread among them; none is inside at first.

    The last chunk to come in must still go from where it came in to all others. Through several ports it may come in
    at several ranks at once; through a single one, to another rank no sooner than a message later.
    """
    entering = np.flatnonzero(~inside[topology.link_source] & inside[topology.link_target])
    ports = [_ports(topology, topology.alpha_s, beta_s, entering, side) for side in SIDES]
    all_in_s = max(float(_at_rank(one_side, had_s, 0)[-1]) for one_side in ports)
    duration_s = topology.alpha_s + beta_s
    apart_s = distances_s(topology, duration_s, np.unique(topology.link_target[entering]))[:, inside]
    if min(map(len, ports)) > 1:
        return all_in_s + float(apart_s.min(axis=0).max())
    again_s = float(duration_s[entering].min())
    return all_in_s + float(np.minimum(apart_s, again_s).max(axis=1).min())


def _ports(topology: Topology, alpha_s: Floats, beta_s: Floats, links: Ids, side: int) -> tuple[_Port, ...]:
    """Links by what they hold at one side, and in a port by their costs."""
    ports: dict[int, dict[tuple[float, float], set[int]]] = {}
    for link, port in zip(links.tolist(), port_of_links(topology, links, side).tolist(), strict=True):
        costs = float(alpha_s[link]), float(beta_s[link])
        ports.setdefault(port, {}).setdefault(costs, set()).add(int(topology.link_source[link]))
    return tuple(
        tuple(_Links(tuple(sorted(senders)), *costs) for costs, senders in by_costs.items())
        for by_costs in ports.values()
    )


def _at_rank(ports: tuple[_Port, ...], table: Floats, own: int) -> Floats:
    """The earliest times for 0, 1, 2, ... chunks behind these ports, `own` of which are there at the start."""
    count = table.shape[1] - 1
    through = [_through(port, table)[1:] for port in ports]
    every = np.sort(np.concatenate(through)) if through else np.empty(0)
    row = np.full(count + 1, np.inf)
    row[: own + 1] = 0.0
    fresh = every[: count - own]
    row[own + 1 : own + 1 + len(fresh)] = fresh
    return row


def _through(port: _Port, table: Floats) -> Floats:
    """When y chunks can have come through a port, for y = 0, 1, 2, ..."""
    count = table.shape[1] - 1
    brought = np.full(count + 1, np.inf)
    brought[0] = 0.0
    sizes = np.arange(1, count + 1)
    single = len(port) == 1 and len(port[0].senders) == 1
    had = [table[list(links.senders), 1:].min(axis=0) for links in port]
    took = [links.alpha_s + links.beta_s * sizes for links in port]
    for y in range(1, count + 1):
        before = brought[y - 1 :: -1]  # before a last message of 1, 2, ..., y chunks
        for had_s, took_s in zip(had, took, strict=True):
            ready = np.maximum(before, had_s[y - 1] if single else had_s[:y])
            brought[y] = min(brought[y], float((ready + took_s[:y]).min()))
    return brought
