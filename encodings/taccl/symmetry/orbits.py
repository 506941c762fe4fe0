"""Symmetry: the automorphisms that a sketch asks for, and the orbits that take their place in the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.collective import Collective
from gapless.encodings.taccl.symmetry.roots import roots_of
from gapless.errors import InputError
from gapless.topologies.topology import Topology

__all__ = ["Automorphism", "automorphism", "orbits", "rotation"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Automorphism:
    """A permutation of ranks with the chunks and links that it carries along; int64 arrays, item -> image."""

    ranks: Ids
    chunks: Ids
    links: Ids


def rotation(offset: int, group: int, rank_count: int) -> Ids:
    """Rank r goes to (r + offset) mod group within its group of consecutive ranks."""
    rank = np.arange(rank_count)
    return np.asarray(rank // group * group + (rank % group + offset) % group)


def automorphism(
    ranks: Ids, topology: Topology, collective: Collective, allowed: NDArray[np.bool_], where: str
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


def orbits(permutations: Sequence[Ids], count: int) -> Ids:
    """`label[i]`: the smallest item that i can be carried to, the same for all of an orbit; int64, shape (count,)."""
    label = np.arange(count)
    while True:
        before = label
        for permutation in permutations:
            image = label[permutation]
            label = np.minimum(label, image)
            np.minimum.at(label, permutation, image)
        label = label[label]
        if np.array_equal(label, before):
            return label


def _image_of_links(ranks: Ids, topology: Topology, where: str) -> Ids:
    number_of = {(link.source, link.target): number for number, link in enumerate(topology.links)}
    images = np.empty(len(topology.links), dtype=np.int64)
    for number, link in enumerate(topology.links):
        ends = int(ranks[link.source]), int(ranks[link.target])
        image = number_of.get(ends)
        if image is None:
            raise InputError(
                f"{where}: is no automorphism: link {topology.link_name(number)} would become {ends[0]}->{ends[1]}, "
                "which is not in the logical topology"
            )
        other = topology.links[image]
        if (other.alpha_s, other.beta_s_per_byte) != (link.alpha_s, link.beta_s_per_byte):
            raise InputError(
                f"{where}: is no automorphism: link {topology.link_name(number)} would become "
                f"{topology.link_name(image)}, whose alpha or beta differs"
            )
        images[number] = image
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

    root, contributors, destinations = roots_of(collective), collective.contributors, collective.destinations
    identity = range(collective.rank_count)
    by_signature: dict[_Signature, list[int]] = {}
    for chunk in range(collective.chunk_count):
        by_signature.setdefault(signature(chunk, identity), []).append(chunk)
    images = np.empty(collective.chunk_count, dtype=np.int64)
    carried: dict[_Signature, int] = {}
    carry = ranks.tolist()
    for chunk in range(collective.chunk_count):
        image = signature(chunk, carry)
        part = carried[image] = carried.get(image, -1) + 1  # parts of one rank's data keep their order
        if part >= len(by_signature.get(image, ())):
            return None
        images[chunk] = by_signature[image][part]
    return images


def _check_resources(links: Ids, topology: Topology, where: str) -> None:
    """Links that share a resource must go to links that share one."""
    users: dict[int, set[int]] = {}
    for number, link in enumerate(topology.links):
        for resource in link.resources:
            users.setdefault(resource, set()).add(number)
    groups = {frozenset(its) for its in users.values()}
    for resource, its in sorted(users.items()):
        if frozenset(int(links[number]) for number in its) not in groups:
            raise InputError(
                f"{where}: is no automorphism: the links that share {topology.resources[resource]!r} would become "
                "links that share nothing"
            )
