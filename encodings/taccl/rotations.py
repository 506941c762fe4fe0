"""Rotations: symmetries that a topology has by itself, found without a sketch, as one group that moves everything.

A rotation takes rank r to (r + offset) mod size within its group of `size` consecutive ranks: node to node, NIC to NIC,
around a ring, along a side of a torus. Those that keep the topology as it is are put together as long as they commute
and none but the identity leaves a rank or a resource where it is. Then the images of one send under the group use
different links and different resources: they can all start at the same time, and one send stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planwright.encodings.taccl.symmetry import orbits, rotation
from planwright.schedule import Ragged
from planwright.topologies.topology import Topology

__all__ = ["Rotations", "find_rotations", "no_rotations", "resources_of"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Rotations:
    """A group of g rotations; element 0 is the identity.

    `ranks`: int64, shape (g, ranks), the image of each rank. `link_orbit`, `resource_orbit`: int64, the smallest link,
    and resource, that each can be carried to. `generators`: (offset, size), as a sketch would write them.
    """

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


@dataclass(frozen=True)
class _Image:
    """One rotation with the links and resources that it carries along, int64 each."""

    ranks: Ids
    links: Ids
    resources: Ids


def resources_of(topology: Topology) -> Ragged:
    """The resources that each link holds."""
    return Ragged(topology.held_start, topology.held)


def no_rotations(topology: Topology) -> Rotations:
    """The group of the identity alone."""
    return _group(topology, np.arange(topology.device_count)[None, :], [], [])


def find_rotations(topology: Topology) -> Rotations:
    """The largest group that a greedy choice finds: rotations that make large orbits come first."""
    count = topology.device_count
    table = _LinkTable(topology)
    group = np.arange(count + len(topology.resources))[None, :]  # ranks first, then resources
    moved = np.append(np.arange(count), count + table.used)
    images: list[_Image] = []
    generators: list[tuple[int, int]] = []
    for offset, size in _candidates(count):
        permutation = rotation(offset, size, count)
        known = (group[:, :count] == permutation).all(axis=1).any()
        if known or not all(_commute(permutation, image.ranks) for image in images):
            continue
        image = table.image(permutation)
        if image is None:
            continue
        larger = _closure(group, np.append(image.ranks, count + image.resources))
        if _is_free(larger[:, moved], moved):
            group = larger
            images.append(image)
            generators.append((offset, size))
    ranks = group[:, :count]
    found = _group(topology, ranks, images, generators)
    return found if _one_of_an_orbit(topology, found) else no_rotations(topology)


def _group(topology: Topology, ranks: Ids, images: list[_Image], generators: list[tuple[int, int]]) -> Rotations:
    return Rotations(
        ranks=ranks,
        link_orbit=orbits([image.links for image in images], len(topology.links)),
        resource_orbit=orbits([image.resources for image in images], len(topology.resources)),
        generators=tuple(generators),
    )


def _candidates(count: int) -> Iterator[tuple[int, int]]:
    """(offset, size), those with more images of a rank first."""
    divisors = [size for size in range(1, count + 1) if count % size == 0]
    pairs = [(offset, size) for size in divisors for offset in divisors if offset < size and size % offset == 0]
    return iter(sorted(pairs, key=lambda pair: (-(pair[1] // pair[0]), pair[1])))


def _commute(one: Ids, other: Ids) -> bool:
    return bool(np.array_equal(one[other], other[one]))


def _closure(group: Ids, permutation: Ids) -> Ids:
    """The group and a permutation that commutes with it: all products, the group's own first."""
    parts, power = [group], permutation
    while not (group == power).all(axis=1).any():
        parts.append(power[group])
        power = permutation[power]
    return np.concatenate(parts)


def _is_free(group: Ids, identity: Ids) -> bool:
    """Whether nothing but the identity leaves anything where it is."""
    return not bool((group[1:] == identity).any())


def _one_of_an_orbit(topology: Topology, group: Rotations) -> bool:
    """Whether no link holds two resources of one orbit, which its images would hold at once."""
    held = resources_of(topology)
    orbit = group.resource_orbit[held.values]
    return len(np.unique(np.stack([held.owner, orbit]), axis=1).T) == len(orbit)


class _LinkTable:
    """The links of a topology, to be looked up by their ends."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._key = topology.link_source * topology.device_count + topology.link_target
        self._order = np.argsort(self._key, kind="stable")
        self._sorted = self._key[self._order]
        self._held = resources_of(topology)
        self._parallel = bool((self._sorted[1:] == self._sorted[:-1]).any())
        self.used = np.unique(self._held.values)

    def image(self, ranks: Ids) -> _Image | None:
        """The permutation with links and resources, None where it is no automorphism of the topology."""
        topology = self._topology
        if self._parallel or not len(self._key):
            return None
        key = ranks[topology.link_source] * topology.device_count + ranks[topology.link_target]
        place = np.minimum(np.searchsorted(self._sorted, key), len(key) - 1)
        links = self._order[place]
        costs = (topology.alpha_s, topology.beta_s_per_byte)
        kept = (self._sorted[place] == key).all() and all((cost == cost[links]).all() for cost in costs)
        if not kept or (self._held.lengths != self._held.lengths[links]).any():
            return None
        resources = np.arange(len(topology.resources))
        there = self._held.take(links).values
        resources[self._held.values] = there
        if (resources[self._held.values] != there).any() or len(np.unique(resources)) < len(resources):
            return None
        return _Image(ranks, links, resources)
