"""Rotations: symmetries that a topology has by itself, found without a sketch, as one group that moves everything.

A rotation takes rank r to (r + offset) mod size within its group of `size` consecutive ranks: node to node, NIC to NIC,
around a ring, along a side of a torus. Those that keep the topology as it is are put together as long as none but the
identity leaves a rank or a resource where it is. Then the images of one send under the group use different links and
different resources: they can all start at the same time, and one send stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.symmetry.groups import Image, Images, free_closure, orbits, resources_of, rotation
from gapless.topologies.topology import Topology

__all__ = ["Rotations", "automorphic_rotations", "find_rotations", "no_rotations", "rotation_candidates", "subgroup"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Rotations:
    """A group of g rotations of a topology; element 0 is the identity.

    `ranks`: int64, shape (g, ranks), the image of each rank. `link_orbit`, `resource_orbit`: int64, the smallest link,
    and resource, that each can be carried to. `generators`: (offset, size), as a sketch would write them.
    """

    topology: Topology
    ranks: Ids
    link_orbit: Ids
    resource_orbit: Ids
    generators: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def rank_orbit(self) -> Ids:
        """The smallest rank that each rank can be carried to, int64."""
        return np.asarray(self.ranks.min(axis=0))

    def link_images(self, links: Ids) -> Ids:
        """`images[g, k]`: the link that rotation g makes of the k-th of some links, int64."""
        if len(self) == 1:
            return links[None, :]  # parallel links have the same ends
        topology = self.topology
        ends = self.ranks[:, topology.link_source[links]], self.ranks[:, topology.link_target[links]]
        return Images(topology).links_between(*ends)


def no_rotations(topology: Topology) -> Rotations:
    """The group of the identity alone."""
    return _group(topology, np.arange(topology.device_count)[None, :], [], [])


def subgroup(rotations: Rotations, generators: Sequence[tuple[int, int]]) -> Rotations:
    """Those that some of the generators make."""
    topology, count = rotations.topology, rotations.topology.device_count
    images = [image for pair in generators if (image := Images(topology).of(rotation(*pair, count))) is not None]
    found = {row.tobytes(): row for row in [np.arange(count)]}
    fresh = list(found.values())
    while fresh:
        made = [image.ranks[row] for row in fresh for image in images]
        fresh = list({row.tobytes(): row for row in made if row.tobytes() not in found}.values())
        found |= {row.tobytes(): row for row in fresh}
    return _group(topology, np.stack(list(found.values())), images, list(generators))


def find_rotations(topology: Topology) -> Rotations:
    """The largest group that a greedy choice finds: rotations that make large orbits come first."""
    count = topology.device_count
    table = Images(topology)
    group = np.arange(count + len(topology.resources))[None, :]  # ranks first, then resources
    moved = np.append(np.arange(count), count + table.used_resources)
    images: list[Image] = []
    elements: list[Ids] = []
    generators: list[tuple[int, int]] = []
    for offset, size in rotation_candidates(count):
        permutation = rotation(offset, size, count)
        if (group[:, :count] == permutation).all(axis=1).any():
            continue
        image = table.of(permutation)
        if image is None:
            continue
        element = np.append(image.ranks, count + image.resources)
        larger = free_closure(group, [*elements, element], moved)
        if larger is not None:
            group = larger
            images.append(image)
            elements.append(element)
            generators.append((offset, size))
    found = _group(topology, group[:, :count], images, generators)
    return found if _holds_one_of_each_orbit(found) else no_rotations(topology)


def automorphic_rotations(topology: Topology) -> list[Image]:
    """All rotations that keep the topology as it is, whether or not they leave something in its place."""
    table, count = Images(topology), topology.device_count
    found: list[Image] = []
    kept: list[tuple[int, int]] = []
    for offset, size in rotation_candidates(count):
        if any(offset % other == 0 for other, group in kept if group == size):
            continue  # it is another one, some times over
        image = table.of(rotation(offset, size, count))
        if image is not None:
            kept.append((offset, size))
            found.append(image)
    return found


def rotation_candidates(count: int) -> Iterator[tuple[int, int]]:
    """(offset, size), those with more images of a rank first."""
    divisors = [size for size in range(1, count + 1) if count % size == 0]
    pairs = [(offset, size) for size in divisors for offset in divisors if offset < size and size % offset == 0]
    return iter(sorted(pairs, key=lambda pair: (-(pair[1] // pair[0]), pair[1])))


def _group(topology: Topology, ranks: Ids, images: list[Image], generators: list[tuple[int, int]]) -> Rotations:
    return Rotations(
        topology=topology,
        ranks=ranks,
        link_orbit=orbits([image.links for image in images], len(topology.links)),
        resource_orbit=orbits([image.resources for image in images], len(topology.resources)),
        generators=tuple(generators),
    )


def _holds_one_of_each_orbit(group: Rotations) -> bool:
    """Whether no link holds two resources of one orbit, which its images would hold at once."""
    held = resources_of(group.topology)
    orbit = group.resource_orbit[held.values]
    return len(np.unique(np.stack([held.owner, orbit]), axis=1).T) == len(orbit)
