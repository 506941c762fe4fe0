"""Symmetry without an expert: permutations of the ranks that keep a logical topology as it is.

Three kinds are tried: rotations within groups of consecutive ranks (nodes of a cluster, axes of a torus, bits of a
hypercube), and what a graph matcher finds among the ranks of one node, carried out in all nodes at once. Of those that
hold, a group that acts freely is kept: no rank stays where it is, so that symmetric trees need not be stars.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from planwright.collective import Collective
from planwright.encodings.taccl.logical import LogicalTopology
from planwright.encodings.taccl.symmetry import automorphism, rotation
from planwright.errors import InputError
from planwright.topologies.topology import Topology

__all__ = ["free_symmetry"]

Ids = NDArray[np.int64]

_MOST_RANKS_MATCHED = 32
"""The largest node whose ranks are given to the graph matcher."""
_MATCHES = 200
"""Automorphisms of one node that are looked at; a node with more is so symmetric that rotations find enough."""


def free_symmetry(logical: LogicalTopology, collective: Collective) -> tuple[tuple[int, ...], ...]:
    """Generators of a group of automorphisms that acts freely on the ranks, as rank -> image; empty if none is found.

    Larger groups are preferred greedily; each generator keeps links, costs, resources, relays and the collective.
    """
    topology = logical.topology
    chosen: list[tuple[int, ...]] = []
    group = {tuple(range(topology.device_count))}
    for permutation in _candidates(topology):
        key = tuple(permutation.tolist())
        if key in group or not _keeps_costs(permutation, topology):
            continue
        larger = _free_closure(group, key)
        if larger is None:
            continue
        try:
            if automorphism(permutation, topology, collective, logical.allowed, "auto") is None:
                continue
        except InputError:
            continue
        chosen.append(key)
        group = larger
    return tuple(chosen)


def _candidates(topology: Topology) -> Iterator[Ids]:
    count, local_count = topology.device_count, topology.device_count // topology.node_count
    if topology.node_count > 1:
        yield rotation(local_count, count, count)
    for group in (divisor for divisor in range(local_count, 1, -1) if local_count % divisor == 0):
        for offset in (divisor for divisor in range(1, group) if group % divisor == 0):
            yield rotation(offset, group, count)
    for offset in (k * local_count for k in range(2, topology.node_count) if topology.node_count % k == 0):
        yield rotation(offset, count, count)
    yield from _matched(topology, local_count)


def _matched(topology: Topology, local_count: int) -> Iterator[Ids]:
    """Automorphisms of the first node's graph without a fixed rank, carried out in every node."""
    if local_count > _MOST_RANKS_MATCHED:
        return
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(local_count))
    for source, target, alpha_s, beta_s in zip(
        topology.link_source.tolist(), topology.link_target.tolist(), topology.alpha_s, topology.beta_s_per_byte,
        strict=True,
    ):  # fmt: skip
        if max(source, target) < local_count:
            graph.add_edge(source, target, costs=(float(alpha_s), float(beta_s)))
    matcher = nx.algorithms.isomorphism.DiGraphMatcher(graph, graph, edge_match=lambda a, b: a["costs"] == b["costs"])
    for match in islice(matcher.isomorphisms_iter(), _MATCHES):
        local = np.array([match[rank] for rank in range(local_count)])
        if (local != np.arange(local_count)).all():
            starts = np.arange(0, topology.device_count, local_count)
            yield (starts[:, None] + local[None, :]).reshape(-1)


def _keeps_costs(permutation: Ids, topology: Topology) -> bool:
    """Whether links go to links of the same costs, by number of links: a quick look before the full one."""
    count = topology.device_count
    ends = topology.link_source * count + topology.link_target
    images = permutation[topology.link_source] * count + permutation[topology.link_target]
    there, here = np.argsort(ends, kind="stable"), np.argsort(images, kind="stable")
    return bool(
        np.array_equal(ends[there], images[here])
        and np.array_equal(topology.alpha_s[there], topology.alpha_s[here])
        and np.array_equal(topology.beta_s_per_byte[there], topology.beta_s_per_byte[here])
    )


def _free_closure(group: set[tuple[int, ...]], generator: tuple[int, ...]) -> set[tuple[int, ...]] | None:
    """The group with one more generator, None if some element other than the identity leaves a rank in place."""
    count = len(generator)
    generators = [*group, generator]
    closure, fresh = set(group), [generator]
    while fresh:
        element = fresh.pop()
        if element in closure:
            continue
        if any(rank == image for rank, image in enumerate(element)) or len(closure) >= count:
            return None
        closure.add(element)
        fresh += [tuple(other[image] for image in element) for other in generators]
        fresh += [tuple(element[image] for image in other) for other in generators]
    return closure
