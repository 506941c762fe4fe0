"""Ports: links that exclude each other at one of their ends, one switch side or one NIC, and what they let through.

Whatever the bound, chunks that get over some links pass their ports one message after the other. Links without
resources are ports of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.topologies.topology import Topology

__all__ = [
    "SIDES", "Ports", "all_through_s", "most_at_once", "port_of_links", "ports_of", "rate_bytes_per_s",
    "rounds_to_reach",
]  # fmt: skip

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SIDES = (0, -1)
"""Where links exclude each other: at their source, or at their target."""
_LAST_DIGITS = 1e-12
"""Where a search for a time ends that halves what is left; it stays below the time."""
_NO_TIME_S = 1e-30
"""Stands for the time of a chunk that takes none."""


def port_of_links(topology: Topology, links: Ids, side: int) -> Ids:
    """The first (side 0) or last (-1) resource of some links; a number of its own where one has none. int64."""
    start, end = topology.held_start[links], topology.held_start[links + 1]
    port = len(topology.resources) + links
    some = end > start
    port[some] = topology.held[start[some] if side == 0 else end[some] - 1]
    return port


def most_at_once(topology: Topology, links: Ids, into: bool = False) -> int:
    """The most transfers that one rank sends (or receives) at once over some links, at least 1."""
    rank = (topology.link_target if into else topology.link_source)[links]
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


def all_through_s(head_s: Floats, chunk_s: Floats, count: int, most: Ids | None = None) -> float:
    """When `count` chunks can be through ports that never pause, at most `most[p]` of them through port p.

    Of fewer than `count` that can be through at all, when they are.
    """
    most = np.full(len(head_s), count) if most is None else most
    count = min(count, int(most.sum()))
    each_s = np.maximum(chunk_s, _NO_TIME_S)
    low_s, high_s = 0.0, float((head_s + most * chunk_s).max(initial=0.0))
    while high_s - low_s > _LAST_DIGITS * high_s:  # too early by `low_s`, early enough by `high_s`
        middle_s = (low_s + high_s) / 2
        through = np.floor(np.maximum(middle_s - head_s, 0.0) / each_s * (1 + 1e-12))
        low_s, high_s = (low_s, middle_s) if np.minimum(through, most).sum() >= count else (middle_s, high_s)
    return low_s
