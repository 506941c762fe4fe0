"""Rings through all ranks that share no bandwidth, as channels of a ring algorithm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.topologies.ring import fastest_ring
from gapless.topologies.topology import Topology

__all__ = ["disjoint_rings", "local_rings", "rail_rings"]

_MOST_RINGS = 8


def disjoint_rings(topology: Topology, most: int = _MOST_RINGS) -> list[list[int]]:
    """Rings as ranks in order, the fastest first, so many at most; ranks by number where no ring exists.

    A link that is k times as fast as the slowest has room for k rings, and one that holds a resource for one. Links
    between nodes have room for all, as rings share the network interfaces; all but the first visit node after node.
    """
    room, is_far, holders = _room(topology), _is_far(topology), _near_links_of_resources(topology)
    start, held = topology.held_start.tolist(), topology.held.tolist()
    rings: list[list[int]] = []
    while len(rings) < most:
        left = np.flatnonzero(room > 0)
        try:
            ring = fastest_ring(replace(topology, links=topology.columns.part(left)))
        except InputError:
            break
        links = left[ring].tolist()
        crossings = int(is_far[links].sum())
        if rings and crossings > topology.node_count:  # no ring that visits node after node is left
            break
        for number in np.flatnonzero(~is_far[links]).tolist():  # it takes its place, and all of what it holds
            room[links[number]] -= 1
            for resource in held[start[links[number]] : start[links[number] + 1]]:
                room[holders[resource]] = 0
        rings.append(topology.link_source[links].tolist())
        if crossings == len(links):  # nothing inside a node was used: the next ring would be the same
            break
    return rings or [list(range(topology.device_count))]


def local_rings(topology: Topology) -> list[list[list[int]]]:
    """For each node its disjoint rings, as ranks of the whole topology; a lone rank is a ring."""
    found = []
    for node in range(topology.node_count):
        ranks = topology.ranks_of_node(node)
        if len(ranks) == 1:
            found.append([ranks])
            continue
        inside = Topology(f"node {node}", (0,) * len(ranks), topology.links_among(ranks)[0], topology.resources)
        found.append([[ranks[local] for local in ring] for ring in disjoint_rings(inside)])
    return found


def rail_rings(nodes: list[list[int]], ring: list[int]) -> list[list[int]]:
    """A ring for each rail: every one leaves a node, and enters the next, at another rank, so that all NICs are busy.

    `nodes[m]`: the ranks of node m, as many in each; `ring`: one through the ranks of node 0. Every other node is
    passed the other way round, so that a ring stays on its rail where it goes from node to node.
    """
    order = [nodes[0].index(rank) for rank in ring]
    rings = []
    for start in range(len(order)):
        around = [*order[start:], *order[:start]]
        turns = (around if number % 2 == 0 else around[::-1] for number in range(len(nodes)))
        rings.append([nodes[number][local] for number, turn in enumerate(turns) for local in turn])
    return rings


def _room(topology: Topology) -> NDArray[np.int64]:
    """How many rings each link has room for."""
    is_far, beta_s = _is_far(topology), topology.beta_s_per_byte
    slowest_s = float(beta_s[~is_far].max(initial=0.0))
    times = np.round(slowest_s / np.where(beta_s > 0, beta_s, np.inf))
    is_single = (np.diff(topology.held_start) > 0) | (beta_s == 0)
    room = np.where(is_single, 1, np.clip(times, 1, _MOST_RINGS))
    return np.asarray(np.where(is_far, _MOST_RINGS, room), dtype=np.int64)


def _is_far(topology: Topology) -> NDArray[np.bool_]:
    """Which links lead from node to node, bool; none where every rank is a node of its own, as on a torus."""
    alone = topology.node_count == topology.device_count
    return np.zeros(len(topology.links), dtype=np.bool_) if alone else topology.is_inter_node


def _near_links_of_resources(topology: Topology) -> list[NDArray[np.int64]]:
    """For each resource the links inside nodes that hold it."""
    is_far, held = _is_far(topology), [list[int]() for _ in topology.resources]
    for number, resource in zip(topology.held_by.tolist(), topology.held.tolist(), strict=True):
        if not is_far[number]:
            held[resource].append(number)
    return [np.array(links, dtype=np.int64) for links in held]
