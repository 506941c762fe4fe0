"""Groups: permutations of the ranks that keep a topology as it is, their orbits, and the groups that act freely.

A group acts freely where nothing but the identity leaves anything in its place. So an element is known by where it
takes the first thing, and there are at most as many as things; the images of one send are as many sends. Sets of ranks
are masks: the bits of a number, whose images under a permutation are looked up byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.ir.schedule import Ragged
from gapless.topologies.topology import Topology

__all__ = ["Image", "Images", "free_closure", "image_of", "image_table", "orbits", "resources_of", "rotation"]


Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Image:
    """A permutation of the ranks with the links and resources that it carries along; int64 arrays, item -> image."""

    ranks: Ids
    links: Ids
    resources: Ids


def resources_of(topology: Topology) -> Ragged:
    """The resources that each link holds."""
    return Ragged(topology.held_start, topology.held)


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
