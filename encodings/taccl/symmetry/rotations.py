"""Rotations: symmetries that a topology has by itself, found without a sketch, as one group that moves everything.

A rotation takes rank r to (r + offset) mod size within its group of `size` consecutive ranks: node to node, NIC to NIC,
around a ring, along a side of a torus. Those that keep the topology as it is are put together as long as none but the
identity leaves a rank or a resource where it is. Then the images of one send under the group use different links and
different resources: they can all start at the same time, and one send stands for all of them. Such a group acts freely:
an element is known by where it takes the first thing, and there are at most as many as things.

Sets of ranks are masks: the bits of a number, whose images under a permutation are looked up byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gapless.array_types import Ids
from gapless.ir.schedule import Ragged
from gapless.topologies.topology import Topology

__all__ = [
    "Image", "Images", "Rotations", "automorphic_rotations", "find_rotations", "free_closure", "image_of",
    "image_table", "lanes_of", "no_rotations", "orbits", "resources_of", "rotation", "rotation_candidates", "subgroup",
]  # fmt: skip


@dataclass(frozen=True)
class Image:
    """A permutation of the ranks with the links and resources that it carries along; int64 arrays, item -> image."""

    ranks: Ids
    links: Ids
    resources: Ids


def resources_of(topology: Topology) -> Ragged:
    """The resources that each link holds."""
    return Ragged(topology.held_start, topology.held)


def lanes_of(topology: Topology) -> list[tuple[int, ...]]:
    """What each link holds: itself under its own number, and its resources, numbered behind the links."""
    start, held = topology.held_start.tolist(), (len(topology.links) + topology.held).tolist()
    return [(link, *held[first:last]) for link, (first, last) in enumerate(pairwise(start))]


class Images:
    """The links of a topology, looked up by their ends: `of` says what a permutation makes of them."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        key = topology.link_source * topology.device_count + topology.link_target
        self._order = np.argsort(key, kind="stable")
        self._sorted = key[self._order]
        self._held = resources_of(topology)
        self.has_parallel_links = bool((self._sorted[1:] == self._sorted[:-1]).any())
        self.used_resources = np.unique(self._held.values)

    def links_between(self, sources: Ids, targets: Ids) -> Ids:
        """The link from each source to its target, -1 where there is none; of parallel links the first."""
        key = sources * self._topology.device_count + targets
        place = np.minimum(np.searchsorted(self._sorted, key), max(len(self._sorted) - 1, 0))
        return np.where(self._sorted[place] == key, self._order[place], -1)

    def of(self, ranks: Ids) -> Image | None:
        """The permutation with links and resources; None where it is no automorphism, or links share both ends."""
        topology = self._topology
        if self.has_parallel_links or not len(self._sorted):
            return None
        links = self.links_between(ranks[topology.link_source], ranks[topology.link_target])
        costs = (topology.alpha_s, topology.beta_s_per_byte)
        kept = (links >= 0).all() and all((cost == cost[links]).all() for cost in costs)
        if not kept or (self._held.lengths != self._held.lengths[links]).any():
            return None
        resources = np.arange(len(topology.resources))
        there = self._held.take(links).values
        resources[self._held.values] = there
        if (resources[self._held.values] != there).any() or len(np.unique(resources)) < len(resources):
            return None
        return Image(ranks, links, resources)


def free_closure(group: Ids, generators: list[Ids], moved: Ids) -> Ids | None:
    """The group that `generators` make, None if it doesn't act freely; `group`: what all but the last make, (g, n).

    `moved`: the things that may not stay in their places, thing 0 among them. The group's own elements come first.
    """
    of_first = {int(element[0]): element for element in group}
    cosets, pending = [group], [generators[-1]]
    while pending:
        element = pending.pop()
        known = of_first.get(int(element[0]))
        if known is not None:
            if not np.array_equal(known, element):
                return None
            continue
        coset = element[group]
        if (coset[:, moved] == moved).any() or not of_first.keys().isdisjoint(coset[:, 0].tolist()):
            return None
        of_first.update(zip(coset[:, 0].tolist(), coset, strict=True))
        cosets.append(coset)
        pending += [generator[element] for generator in generators]
    return np.concatenate(cosets)


def rotation(offset: int, group: int, rank_count: int) -> Ids:
    """Rank r goes to (r + offset) mod group within its group of consecutive ranks."""
    rank = np.arange(rank_count)
    return np.asarray(rank // group * group + (rank % group + offset) % group)


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


_BITS = 8
_BYTE = 1 << _BITS


def image_table(images: Sequence[int]) -> list[list[int]]:
    """For each byte of a mask, what a permutation makes of each of its values; `images[r]`: where it takes rank r."""
    table = []
    for first in range(0, len(images), _BITS):
        bits = images[first : first + _BITS]
        row = [0] * _BYTE
        for value in range(1, _BYTE):
            low = (value & -value).bit_length() - 1
            row[value] = row[value & (value - 1)] | (1 << bits[low] if low < len(bits) else 0)
        table.append(row)
    return table


def image_of(table: list[list[int]], mask: int) -> int:
    """The image of a set."""
    found = 0
    for row in table:
        found |= row[mask & (_BYTE - 1)]
        mask >>= _BITS
    return found


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
