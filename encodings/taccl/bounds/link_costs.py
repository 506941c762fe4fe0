"""What links cost and let through: shortest paths, for chunks each alone in the network, and ports.

A port is the links that exclude each other at one of their ends: one switch side or one NIC. Whatever the bound, chunks
that get over some links pass their ports one message after the other. Links without resources are ports of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.topologies.topology import Topology

__all__ = [
    "SIDES", "all_through_s", "bisected", "distances_s", "farthest_s", "least_time_s", "links_into", "links_within",
    "most_at_once", "port_of_links", "rate_bytes_per_s", "rounds_to_reach", "sides_of",
]  # fmt: skip


def distances_s(
    topology: Topology, cost_s: Floats, starts: Ids, links: Ids | None = None, backwards: bool = False
) -> Floats:
    """`distance[k, r]`: the cost of the cheapest path from `starts[k]` to rank r (backwards: from r), inf without one.

    `cost_s[l]`: of each link; `links`: those that paths may use. Bellman and Ford's algorithm, for all starts at once.
    """
    tail, head = topology.link_source, topology.link_target
    if backwards:
        tail, head = head, tail
    order = np.argsort(head, kind="stable") if links is None else links[np.argsort(head[links], kind="stable")]
    distance_s = np.full((len(starts), topology.device_count), np.inf)
    distance_s[np.arange(len(starts)), starts] = 0.0
    if not len(order):
        return distance_s
    heads, first = np.unique(head[order], return_index=True)
    tail, cost_s = tail[order], cost_s[order]
    while True:
        shorter_s = np.minimum.reduceat(distance_s[:, tail] + cost_s, first, axis=1)
        shorter_s = np.minimum(distance_s[:, heads], shorter_s)
        if np.array_equal(shorter_s, distance_s[:, heads]):
            return distance_s
        distance_s[:, heads] = shorter_s


def farthest_s(
    topology: Topology, cost_s: Floats, sources: Mask, targets: Mask, starts: Ids, links: Ids | None = None
) -> float:
    """The longest of the shortest paths from `starts` to the ranks that want what these have.

    `sources[c, r]`, `targets[c, r]`: whether rank r has, or wants, chunk c (a part of its sum, the sum).
    """
    latest_s = 0.0
    for start in starts.tolist():
        wanted = targets[sources[:, start]].any(axis=0)
        if wanted.any():
            distance_s = distances_s(topology, cost_s, np.array([start]), links)[0]
            latest_s = max(latest_s, float(distance_s[wanted].max()))
    return latest_s


SIDES = (0, -1)
"""Where links exclude each other: at their source, or at their target."""
_LAST_DIGITS = 1e-12
"""Where a search for a time ends that halves what is left; it stays below the time."""
_NO_TIME_S = 1e-30
"""Stands for the time of a chunk that takes none."""


def sides_of(topology: Topology, sets: Iterable[Sequence[int]]) -> Iterator[Mask]:
    """Each set of ranks, and then all others: bool, shape (ranks,)."""
    for ranks in sets:
        inside = np.zeros(topology.device_count, dtype=np.bool_)
        inside[list(ranks)] = True
        yield from (inside, ~inside)


def links_into(topology: Topology, inside: Mask) -> Ids:
    """The links that lead into a set of ranks."""
    return np.flatnonzero(~inside[topology.link_source] & inside[topology.link_target])


def links_within(topology: Topology, inside: Mask) -> Ids:
    """The links between ranks of a set."""
    return np.flatnonzero(inside[topology.link_source] & inside[topology.link_target])


def port_of_links(topology: Topology, links: Ids, side: int) -> Ids:
    """The first (side 0) or last (-1) resource of some links; a number of its own where one has none. int64."""
    start, end = topology.held_start[links], topology.held_start[links + 1]
    port = len(topology.resources) + links
    some = end > start
    port[some] = topology.held[start[some] if side == 0 else end[some] - 1]
    return port


def most_at_once(topology: Topology, links: Ids) -> int:
    """The most transfers that one rank sends at once over some links, at least 1."""
    rank = topology.link_source[links]
    counts = []
    for side in SIDES:
        pairs = np.unique(rank * (1 << 32) + port_of_links(topology, links, side))
        counts.append(np.bincount(pairs >> 32, minlength=topology.device_count))
    return max(1, int(np.minimum(*counts).max(initial=0)))


def rate_bytes_per_s(topology: Topology, links: Ids) -> float:
    """The most that these links carry together."""
    with np.errstate(divide="ignore"):
        rate = 1 / topology.beta_s_per_byte[links]
    sums = []
    for side in SIDES:
        ports, port = np.unique(port_of_links(topology, links, side), return_inverse=True)
        fastest = np.zeros(len(ports))
        np.maximum.at(fastest, port, rate)
        sums.append(float(fastest.sum()))
    return min(sums)


def rounds_to_reach(ranks: int, ports: int) -> int:
    """The least rounds in which one that has a chunk can bring it to so many ranks, itself included: (1 + p)^k >= n."""
    rounds, reached = 0, 1
    while reached < ranks:
        rounds, reached = rounds + 1, reached * (1 + ports)
    return rounds


def all_through_s(head_s: Floats, chunk_s: Floats, count: int, most: Ids | None = None) -> float:
    """When `count` chunks can be through ports that never pause, at most `most[p]` of them through port p.

    Of fewer than `count` that can be through at all, when they are.
    """
    most = np.full(len(head_s), count) if most is None else most
    count = min(count, int(most.sum()))
    each_s = np.maximum(chunk_s, _NO_TIME_S)

    def are_through(time_s: float) -> bool:
        through = np.floor(np.maximum(time_s - head_s, 0.0) / each_s * (1 + 1e-12))
        return bool(np.minimum(through, most).sum() >= count)

    return bisected(are_through, 0.0, float((head_s + most * chunk_s).max(initial=0.0)), _LAST_DIGITS)


def bisected(is_enough: Callable[[float], bool], low_s: float, high_s: float, last_digits: float) -> float:
    """A time that is too little, near one that is enough: `low_s` is too little, and `high_s` enough.

    `last_digits`: where the search ends, relative to the time.
    """
    while high_s - low_s > last_digits * high_s:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if is_enough(middle_s) else (middle_s, high_s)
    return low_s


def least_time_s(is_enough: Callable[[float], bool], low_s: float, high_s: float, last_digits: float) -> float:
    """The same where `high_s` may be too little, and is doubled until it is enough."""
    while not is_enough(high_s):
        low_s, high_s = high_s, 2 * high_s
    return bisected(is_enough, low_s, high_s, last_digits)
