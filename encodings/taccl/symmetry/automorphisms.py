"""Symmetry without an expert: permutations of the ranks that keep a logical topology as it is.

Two kinds are tried: rotations within groups of consecutive ranks (nodes of a cluster, axes of a torus, bits of a
hypercube), and what a graph matcher finds among the ranks of one node, carried out in all nodes at once (among all
ranks where each is a node by itself). Of those that hold, a group that acts freely is kept: no rank stays where it is,
so that symmetric trees need not be stars. Unlike in `rotations`, resources may stay in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.collective import Collective
from gapless.encodings.taccl.parameters import Sketches
from gapless.encodings.taccl.symmetry.groups import Images, free_closure
from gapless.encodings.taccl.symmetry.orbits import automorphism, rotation
from gapless.encodings.taccl.symmetry.rotations import rotation_candidates
from gapless.errors import InputError
from gapless.topologies.topology import Topology

__all__ = ["free_symmetry"]

Ids = NDArray[np.int64]

_DEFAULTS = Sketches()


def free_symmetry(
    topology: Topology, collective: Collective, allowed: NDArray[np.bool_], parameters: Sketches = _DEFAULTS
) -> tuple[tuple[int, ...], ...]:
    """Generators of a group of automorphisms that acts freely on the ranks, as rank -> image; empty if none is found.

    Larger groups are preferred greedily; each generator keeps links, costs, resources, the collective, and which chunk
    is allowed on which link (`allowed[c, l]`).
    """
    images = Images(topology)
    ranks = np.arange(topology.device_count)
    group = ranks[None, :]
    chosen: list[Ids] = []
    for permutation in _candidates(topology, parameters):
        if (group == permutation).all(axis=1).any() or images.of(permutation) is None:
            continue
        larger = free_closure(group, [*chosen, permutation], ranks)
        if larger is None or not _is_kept(permutation, topology, collective, allowed):
            continue
        chosen.append(permutation)
        group = larger
    return tuple(tuple(permutation.tolist()) for permutation in chosen)


def _is_kept(permutation: Ids, topology: Topology, collective: Collective, allowed: NDArray[np.bool_]) -> bool:
    """Whether relays and collective are kept as well."""
    try:
        return automorphism(permutation, topology, collective, allowed, "auto") is not None
    except InputError:
        return False


def _candidates(topology: Topology, parameters: Sketches) -> Iterator[Ids]:
    count = topology.device_count
    yield from (rotation(offset, size, count) for offset, size in rotation_candidates(count))
    local_count = topology.ranks_per_node
    size = local_count if local_count > 1 else count
    if size <= parameters.most_matched:
        yield from _matched(topology, size, parameters.automorphisms)


def _matched(topology: Topology, local_count: int, most: int) -> Iterator[Ids]:
    """Automorphisms of the first node's graph without a fixed rank, carried out in every node."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(local_count))
    for link in np.flatnonzero(np.maximum(topology.link_source, topology.link_target) < local_count).tolist():
        costs = float(topology.alpha_s[link]), float(topology.beta_s_per_byte[link])
        graph.add_edge(int(topology.link_source[link]), int(topology.link_target[link]), costs=costs)
    matcher = nx.algorithms.isomorphism.DiGraphMatcher(graph, graph, edge_match=lambda a, b: a["costs"] == b["costs"])
    for match in islice(matcher.isomorphisms_iter(), most):
        local = np.array([match[rank] for rank in range(local_count)])
        if (local != np.arange(local_count)).all():
            starts = np.arange(0, topology.device_count, local_count)
            yield (starts[:, None] + local[None, :]).reshape(-1)
