"""The quotient problem: one chunk of each orbit, for synthesis where a MILP has too many variables.

Under a group of rotations that leaves no rank and no resource in its place, the sends of one orbit can all start at the
same time. So it is enough to plan for one chunk of each orbit, with a clock for each orbit of resources: 1,023 sends
instead of a million for an ALLGATHER on 1,024 ranks. `QuotientProblem.columns` turns that plan into the whole one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.groups import resources_of
from gapless.encodings.taccl.symmetry.rotations import Rotations, find_rotations, no_rotations
from gapless.topologies.topology import Topology

__all__ = ["Columns", "QuotientProblem", "quotient_problem", "rotations_of"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Sends as columns: `chunk` (its number in the collective) over `link` from `start_s` to `end_s`.

    `place`: int64, 0 for the first chunk of a transfer, 1 for the one that joins it, and so on.
    """

    chunk: Ids
    link: Ids
    start_s: Floats
    end_s: Floats
    place: Ids

    def __len__(self) -> int:
        return len(self.chunk)


@dataclass(frozen=True)
class QuotientProblem:
    """One chunk of each orbit, `chunks`, with `owner[c]` and `wanted[c, r]` for the c-th of them.

    `groups[l]`: the clocks that a send over link l holds: orbits of its resources, or of the link where it has none;
    numbered from 0. `images[g, c]`: the chunk that rotation g makes of the c-th one. Links from each rank: `links_of`.
    """

    topology: Topology
    rotations: Rotations
    chunks: Ids
    images: Ids
    owner: list[int]
    wanted: NDArray[np.bool_]
    groups: list[tuple[int, ...]]
    group_count: int
    duration_s: Floats
    links_of: list[list[int]]

    def columns(self, chunk: Ids, link: Ids, start_s: Floats, end_s: Floats, place: Ids) -> Columns:
        """All images of sends of these chunks (`chunk` is a place in `chunks`), in order of their starts."""
        copies = len(self.rotations)
        every = np.argsort(np.tile(start_s, copies), kind="stable")
        return Columns(
            chunk=self.images[:, chunk].ravel()[every],
            link=self.rotations.link_images(link).ravel()[every],
            start_s=np.tile(start_s, copies)[every],
            end_s=np.tile(end_s, copies)[every],
            place=np.tile(place, copies)[every],
        )

    def with_single_ports(self) -> QuotientProblem | None:
        """The same with one link for each path between two resources of different nodes; None where that is all.

        Chunks that leave by one NIC for another then share a link, and can be grouped.
        """
        topology = self.topology
        held = resources_of(topology)
        shared = np.flatnonzero(topology.is_inter_node & (held.lengths > 0))
        kept: dict[tuple[int, ...], tuple[int, int]] = {}
        for link in shared.tolist():
            key, choice = tuple(held[link].tolist()), (int(self.rotations.link_orbit[link]), link)
            kept[key] = min(kept.get(key, choice), choice)
        closed = set(shared.tolist()) - {link for _, link in kept.values()}
        if not closed:
            return None
        return replace(self, links_of=[[link for link in links if link not in closed] for links in self.links_of])


def quotient_problem(problem: Chunked, rotations: Rotations | None = None) -> QuotientProblem:
    """The quotient of a problem whose chunks may use every link; `rotations` are looked for unless given.

    Rotations that move a chunk to one that the collective doesn't have (away from a root) are not used.
    """
    topology = problem.logical.topology
    rotations, images = rotations_of(problem, rotations)
    chunks = np.flatnonzero((images.min(axis=0) == images[0]) & problem.wanted.any(axis=1))
    held = resources_of(topology)
    orbits, of_resource = np.unique(rotations.resource_orbit, return_inverse=True)
    link_orbit = (len(orbits) + rotations.link_orbit).tolist()
    numbers = of_resource[held.values].tolist()
    start = held.start.tolist()
    groups = [
        tuple(numbers[first:last]) if last > first else (link_orbit[link],)
        for link, (first, last) in enumerate(itertools.pairwise(start))
    ]
    links_of: list[list[int]] = [[] for _ in range(topology.device_count)]
    for link, source in enumerate(topology.link_source.tolist()):
        links_of[source].append(link)
    return QuotientProblem(
        topology=topology,
        rotations=rotations,
        chunks=chunks,
        images=images[:, chunks],
        owner=problem.owners[chunks].tolist(),
        wanted=problem.wanted[chunks],
        groups=groups,
        group_count=len(orbits) + len(topology.links),
        duration_s=problem.duration_s,
        links_of=links_of,
    )


def rotations_of(problem: Chunked, rotations: Rotations | None = None) -> tuple[Rotations, Ids]:
    """The rotations that keep a problem, and `images[g, c]`: where rotation g takes chunk c.

    Those of the topology, or those given, if each of them has a counterpart for every chunk, else the identity alone.
    """
    topology = problem.logical.topology
    rotations = find_rotations(topology) if rotations is None else rotations
    images = _images(problem, rotations)
    return (no_rotations(topology), np.arange(len(problem.owners))[None, :]) if images is None else (rotations, images)


def _images(problem: Chunked, rotations: Rotations) -> Ids | None:
    """`images[g, c]`: where rotation g takes chunk c, None where it has no counterpart.

    Chunks that go from one rank to all others, or to a single one (itself where nobody else wants it), are known by
    these two ends; the k-th of several alike goes to the k-th.
    """
    ranks = problem.collective.rank_count
    if len(rotations) == 1:
        return np.arange(len(problem.owners))[None, :]
    wanted_by = problem.wanted.sum(axis=1)
    if not np.isin(wanted_by, (0, 1, ranks - 1)).all():
        return None
    only = np.select([wanted_by == 0, wanted_by == 1], [problem.owners, problem.wanted.argmax(axis=1)], ranks)
    moved = np.concatenate([rotations.ranks, np.full((len(rotations), 1), ranks)], axis=1)
    key = problem.owners * (ranks + 1) + only
    order = np.argsort(key, kind="stable")
    first = np.searchsorted(key[order], key)
    rank_of_alike = np.empty_like(first)
    rank_of_alike[order] = np.arange(len(key)) - first[order]
    images = np.empty((len(rotations), len(key)), dtype=np.int64)
    for number, row in enumerate(moved):
        target = row[problem.owners] * (ranks + 1) + row[only]
        place = np.searchsorted(key[order], target) + rank_of_alike
        if place.max(initial=0) >= len(key) or (key[order][place] != target).any():
            return None
        images[number] = order[place]
    return images
