"""Symmetry: the automorphisms that a sketch asks for, and the orbits that take their place in the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.collective import Collective
from gapless.encodings.taccl.symmetry.groups import Images
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
