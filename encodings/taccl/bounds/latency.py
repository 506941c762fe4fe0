"""Latency: how long chunks travel, each alone in the network, over the shortest paths that it may take."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.topologies.topology import Topology

__all__ = ["distances_s", "farthest_s"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


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
