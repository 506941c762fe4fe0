"""Bottleneck sets: ranks whose ports are scarce, so that a chunk should come in once and be handed on inside.

The nodes, and the sets that the bandwidth bound found narrowest. It is TACCL's equation 5.15 for sets that the topology
itself names.
"""

from __future__ import annotations

import networkx as nx
import numpy as np

from gapless.encodings.taccl.bounds.bandwidth import Bottleneck
from gapless.encodings.taccl.symmetry.rotations import Rotations
from gapless.topologies.topology import Topology

__all__ = ["BottleneckSet", "find_bottleneck_sets"]

BottleneckSet = tuple[int, ...]


def find_bottleneck_sets(
    topology: Topology, bottlenecks: list[Bottleneck], rotations: Rotations
) -> list[BottleneckSet]:
    """Sets of two ranks or more, each connected inside, any two of them nested or disjoint; narrowest first."""
    everyone = set(range(topology.device_count))
    narrow = [tuple(sorted(everyone - set(cut.behind))) for cut in sorted(bottlenecks, key=lambda cut: -cut.time_s)]
    nodes = [tuple(topology.ranks_of_node(node)) for node in range(topology.node_count)]
    found: list[BottleneckSet] = []
    known: set[BottleneckSet] = set()
    network = topology.to_networkx()
    for ranks in [*dict.fromkeys(narrow), *nodes]:
        if ranks in known or not 1 < len(ranks) < len(everyone):
            continue
        images = sorted({tuple(row) for row in np.sort(rotations.ranks[:, list(ranks)], axis=1).tolist()})
        if _is_laminar(images, found, topology.device_count) and nx.is_strongly_connected(network.subgraph(ranks)):
            found += images
            known |= set(images)
    return found


def _is_laminar(images: list[BottleneckSet], others: list[BottleneckSet], rank_count: int) -> bool:
    """Whether the images are disjoint, and nested in or disjoint from all others."""
    of_rank = np.full(rank_count, -1)
    for number, image in enumerate(images):
        if (of_rank[list(image)] >= 0).any():
            return False
        of_rank[list(image)] = number
    sizes = np.array([len(image) for image in images])
    for ranks in others:
        inside, count = np.unique(of_rank[list(ranks)], return_counts=True)
        apart = inside < 0
        if len(inside) > 1 and (apart.any() or (count != sizes[inside]).any()):
            return False
    return True
