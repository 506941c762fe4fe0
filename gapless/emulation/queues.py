"""Queues of an emulated cluster: one of limited bandwidth for each NIC's side, port or cable, and what passes which.

What a rank sends to another passes the queues of the link between them, one after the other; ranks without a link reach
each other along a shortest path. Of parallel links the fastest is there.
"""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np

from gapless.topologies.topology import Topology

__all__ = ["paths_of", "queues_of", "sent_at_once"]

_PATH_BYTES = 1e6
"""Of the message for which paths between ranks without a link are shortest."""


def queues_of(topology: Topology) -> tuple[list[float], list[list[int]]]:
    """Bandwidths of all queues, bytes/s; and for each link those that it passes.

    A resource's queue is as fast as the fastest link that holds it. A link that is slower than all that it holds, or
    holds nothing, has one of its own besides.
    """
    with np.errstate(divide="ignore"):
        rate = 1 / topology.beta_s_per_byte
    of_resource = np.zeros(len(topology.resources))
    np.maximum.at(of_resource, topology.held, rate[topology.held_by])
    rates, passed = of_resource.tolist(), list[list[int]]()
    for link, own in enumerate(rate.tolist()):
        held = topology.held[topology.held_start[link] : topology.held_start[link + 1]].tolist()
        if not held or own < min(rates[resource] for resource in held):
            held = [len(rates), *held]
            rates.append(own)
        passed.append([queue for queue in held if rates[queue] < np.inf])
    return rates, passed


def sent_at_once(topology: Topology) -> float:
    """Bytes per second that all ranks send at once, if each link is only held up by the first queue that it passes."""
    rates, passed = queues_of(topology)
    return sum(rates[queue] for queue in {queues[0] for queues in passed if queues})


def paths_of(topology: Topology) -> dict[tuple[int, int], list[int]]:
    """For each pair of ranks that are joined, the queues from one to the other, each at most once."""
    _, passed = queues_of(topology)
    network = topology.to_networkx(_PATH_BYTES)
    paths = {}
    for source, targets in nx.all_pairs_dijkstra_path(network, weight="duration_s"):
        for target, ranks in targets.items():
            if source != target:
                hops = [(source, target)] if network.has_edge(source, target) else pairwise(ranks)
                links = (network.edges[hop]["link"] for hop in hops)
                paths[source, target] = list(dict.fromkeys(queue for link in links for queue in passed[link]))
    return paths
