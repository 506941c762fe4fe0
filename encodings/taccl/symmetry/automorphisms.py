"""Automorphisms: permutations of the ranks that keep a logical topology, those that a sketch asks for and others.

Without an expert two kinds are tried: rotations within groups of consecutive ranks (nodes of a cluster, axes of a
torus, bits of a hypercube), and what a graph matcher finds among the ranks of one node, carried out in all nodes at
once (among all ranks where each is a node by itself). Of those that hold, a group that acts freely is kept: no rank
stays where it is, so that symmetric trees need not be stars. Unlike in `rotations`, resources may stay in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import networkx as nx
import numpy as np

from gapless.array_types import Ids, Mask
from gapless.encodings.taccl.parameters import Sketches
from gapless.encodings.taccl.symmetry.rotations import Images, free_closure, rotation, rotation_candidates
from gapless.errors import InputError
from gapless.ir.collective import Collective
from gapless.topologies.topology import Topology

__all__ = ["Automorphism", "automorphism", "free_symmetry"]


@dataclass(frozen=True)
class Automorphism:
    """A permutation of ranks with the chunks and links that it carries along; int64 arrays, item -> image."""

    ranks: Ids
    chunks: Ids
    links: Ids


def automorphism(
    ranks: Ids, topology: Topology, collective: Collective, allowed: Mask, where: str
) -> Automorphism | None:
    """Extend a permutation of ranks to chunks and links, if it keeps topology, collective and relays as they are.

    `allowed[c, l]`: whether chunk c may use link l. Raises `InputError` with the first thing of the topology or the
    relays that would not be kept; `where` opens the message. None where it is the collective that isn't kept: one with
    a root has fewer symmetries than the machine, and a sketch may serve them all.
    """
    links = _image_of_links(ranks, topology, where)
    _check_resources(links, topology, where)
    chunks = _image_of_chunks(ranks, collective)
    if chunks is None:
        return None
    broken = np.argwhere(allowed != allowed[np.ix_(chunks, links)])
    if len(broken):
        chunk, link = (int(number) for number in broken[0])
        image = topology.link_name(int(links[link]))
        raise InputError(
            f"{where}: is no automorphism: chunk {chunk} on link {topology.link_name(link)} would become "
            f"chunk {chunks[chunk]} on link {image}, and the sketch allows only one of the two"
        )
    return Automorphism(ranks, chunks, links)


def _image_of_links(ranks: Ids, topology: Topology, where: str) -> Ids:
    source, target = ranks[topology.link_source], ranks[topology.link_target]
    images = Images(topology).links_between(source, target)
    for link in np.flatnonzero(images < 0)[:1].tolist():
        raise InputError(
            f"{where}: is no automorphism: link {topology.link_name(link)} would become "
            f"{source[link]}->{target[link]}, which is no link here; is it meant for another machine?"
        )
    costs = np.stack([topology.alpha_s, topology.beta_s_per_byte])
    for link in np.flatnonzero((costs != costs[:, images]).any(axis=0))[:1].tolist():
        raise InputError(
            f"{where}: is no automorphism: link {topology.link_name(link)} would become "
            f"{topology.link_name(int(images[link]))}, whose alpha or beta differs"
        )
    return images


_Signature = tuple[int, frozenset[int], frozenset[int]]
"""What makes a chunk: its root, the ranks that hold (a part of) it at the start, and those that want it."""


def _image_of_chunks(ranks: Ids, collective: Collective) -> Ids | None:
    def signature(chunk: int, carry: Sequence[int]) -> _Signature:
        return (
            carry[root[chunk]],
            frozenset(carry[rank] for rank in contributors[chunk]),
            frozenset(carry[rank] for rank in destinations[chunk]),
        )

    root, contributors, destinations = collective.roots, collective.contributors, collective.destinations
    identity = range(collective.rank_count)
    by_signature: dict[_Signature, list[int]] = {}
    for chunk in range(collective.chunk_count):
        by_signature.setdefault(signature(chunk, identity), []).append(chunk)
    images = np.empty(collective.chunk_count, dtype=np.int64)
    carried: dict[_Signature, int] = {}
    carry = ranks.tolist()
    for chunk in range(collective.chunk_count):
        image = signature(chunk, carry)
        number = carried[image] = carried.get(image, -1) + 1  # chunks of one rank's data keep their order
        if number >= len(by_signature.get(image, ())):
            return None
        images[chunk] = by_signature[image][number]
    return images


def _check_resources(images: Ids, topology: Topology, where: str) -> None:
    """Links that share a resource must go to links that share one."""
    users: dict[int, set[int]] = {}
    for link, resource in zip(topology.held_by.tolist(), topology.held.tolist(), strict=True):
        users.setdefault(resource, set()).add(link)
    groups = {frozenset(links) for links in users.values()}
    for resource, links in sorted(users.items()):
        if frozenset(images[sorted(links)].tolist()) not in groups:
            raise InputError(
                f"{where}: is no automorphism: the links that share {topology.resources[resource]!r} would become "
                "links that share nothing"
            )


_DEFAULTS = Sketches()


def free_symmetry(
    topology: Topology, collective: Collective, allowed: Mask, parameters: Sketches = _DEFAULTS
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


def _is_kept(permutation: Ids, topology: Topology, collective: Collective, allowed: Mask) -> bool:
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
