"""Gathering: by when a rank can have h of some chunks, whatever is grouped; a bound that counts latencies and bytes.

A rank's last message through a door (links that exclude each other at its end) of x chunks starts when its sender has
x of them and the door has brought y - x before. So the earliest time for y chunks through a door follows from those for
fewer, and that for h chunks at a rank from its doors together. What is left out can only help: a sender sends to
several ranks at once through one door of its own, and chunks may come twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.topologies.topology import Topology

__all__ = ["Doors", "arrivals_s", "earliest_s"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class _Way:
    """Links of one door with the same costs: from any of `senders`."""

    senders: tuple[int, ...]
    alpha_s: float
    beta_s: float


@dataclass(frozen=True)
class Doors:
    """`ways[r]`: the doors of rank r, each a list of ways; `beta_s` of a way is for one chunk."""

    ways: tuple[tuple[tuple[_Way, ...], ...], ...]

    @classmethod
    def of(cls, topology: Topology, chunk_bytes: int) -> Doors:
        """Of every rank of a topology."""
        return cls.with_costs(topology, topology.alpha_s, topology.beta_s_per_byte * chunk_bytes)

    @classmethod
    def with_costs(cls, topology: Topology, alpha_s: Floats, beta_s: Floats) -> Doors:
        """The same at other costs of the links, those in `beta_s` for one chunk."""
        links = [np.flatnonzero(topology.link_target == rank).tolist() for rank in range(topology.device_count)]
        return cls(tuple(_doors(topology, alpha_s, beta_s, its, -1) for its in links))


def earliest_s(doors: Doors, own: Ids) -> Floats:
    """`earliest[r, h]`: seconds before which rank r can't have h of the chunks, of which it has `own[r]` at the start.

    Float of shape (ranks, chunks + 1), inf for what it never has. The equations have one solution, since every message
    takes time: it is approached from above, where only what can be reached is ever written.
    """
    count = int(own.sum())
    table = np.full((len(own), count + 1), np.inf)
    for rank, its in enumerate(own.tolist()):
        table[rank, : its + 1] = 0.0
    dirty = set(range(len(own)))
    readers = _readers(doors)
    while dirty:
        changed = set()
        for rank in sorted({reader for sender in dirty for reader in readers[sender]}):
            row = _at_rank(doors.ways[rank], table, int(own[rank]))
            if (row < table[rank] * (1 - 1e-12)).any():
                table[rank] = np.minimum(row, table[rank])
                changed.add(rank)
        dirty = changed
    return table


def arrivals_s(topology: Topology, chunk_bytes: int, inside: Mask, had_s: Floats) -> float:
    """Before this, a set of ranks can't have all of the chunks of `had_s` spread among them; none is inside at first.

    The last chunk to come in must still go from where it came in to all others. Through several doors it may come in
    at several ranks at once; through a single one, to another rank no sooner than a message later.
    """
    entering = np.flatnonzero(~inside[topology.link_source] & inside[topology.link_target])
    costs = topology.alpha_s, topology.beta_s_per_byte * chunk_bytes
    doors = [_doors(topology, *costs, entering.tolist(), side) for side in (0, -1)]
    all_in_s = max(float(_at_rank(its, had_s, 0)[-1]) for its in doors)
    network = topology.to_networkx(chunk_bytes)
    members = np.flatnonzero(inside).tolist()
    apart_s = np.array([
        [ways.get(rank, np.inf) for rank in members]
        for entry in np.unique(topology.link_target[entering]).tolist()
        for ways in [nx.single_source_dijkstra_path_length(network, entry, weight="duration_s")]
    ])  # fmt: skip
    if min(map(len, doors)) > 1:
        return all_in_s + float(apart_s.min(axis=0).max())
    again_s = float((costs[0] + costs[1])[entering].min())
    return all_in_s + float(np.minimum(apart_s, again_s).max(axis=1).min())


def _doors(
    topology: Topology, alpha_s: Floats, beta_s: Floats, links: list[int], side: int
) -> tuple[tuple[_Way, ...], ...]:
    """Links by what they hold at one side, and in a door by their costs."""
    doors: dict[tuple[bool, int], dict[tuple[float, float], set[int]]] = {}
    for number in links:
        first, last = topology.held_start[number : number + 2].tolist()
        key = (True, int(topology.held[first if side == 0 else last - 1])) if last > first else (False, number)
        costs = float(alpha_s[number]), float(beta_s[number])
        doors.setdefault(key, {}).setdefault(costs, set()).add(int(topology.link_source[number]))
    return tuple(
        tuple(_Way(tuple(sorted(senders)), *costs) for costs, senders in its.items()) for its in doors.values()
    )


def _readers(doors: Doors) -> list[set[int]]:
    """Who may get something from each rank."""
    readers: list[set[int]] = [set() for _ in doors.ways]
    for rank, its in enumerate(doors.ways):
        for door in its:
            for way in door:
                for sender in way.senders:
                    readers[sender].add(rank)
    return readers


def _at_rank(doors: tuple[tuple[_Way, ...], ...], table: Floats, own: int) -> Floats:
    """The earliest times for 0, 1, 2, ... chunks behind these doors, `own` of which are there at the start."""
    count = table.shape[1] - 1
    through = [_through(door, table)[1:] for door in doors]
    every = np.sort(np.concatenate(through)) if through else np.empty(0)
    row = np.full(count + 1, np.inf)
    row[: own + 1] = 0.0
    fresh = every[: count - own]
    row[own + 1 : own + 1 + len(fresh)] = fresh
    return row


def _through(door: tuple[_Way, ...], table: Floats) -> Floats:
    """When y chunks can have come through a door, for y = 0, 1, 2, ..."""
    count = table.shape[1] - 1
    brought = np.full(count + 1, np.inf)
    brought[0] = 0.0
    sizes = np.arange(1, count + 1)
    single = len(door) == 1 and len(door[0].senders) == 1
    had = [table[list(way.senders), 1:].min(axis=0) for way in door]
    took = [way.alpha_s + way.beta_s * sizes for way in door]
    for y in range(1, count + 1):
        before = brought[y - 1 :: -1]  # before a last message of 1, 2, ..., y chunks
        for its_had, its_took in zip(had, took, strict=True):
            ready = np.maximum(before, its_had[y - 1] if single else its_had[:y])
            brought[y] = min(brought[y], float((ready + its_took[:y]).min()))
    return brought
