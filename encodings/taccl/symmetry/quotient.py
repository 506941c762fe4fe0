"""The quotient problem: one chunk, one link and one clock of each orbit, where a problem has too many variables.

Under a group of rotations that leaves no rank and no resource in its place, the sends of one orbit can all start at the
same time. So it is enough to plan for one chunk of each orbit, with a clock for each orbit of resources: 1,023 sends
instead of a million for an ALLGATHER on 1,024 ranks. `QuotientProblem.columns` turns that plan into the whole one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.rotations import (
    Rotations,
    no_rotations,
    orbits,
    resources_of,
    rotation,
    subgroup,
)
from gapless.topologies.topology import Topology

__all__ = ["Columns", "QuotientProblem", "quotient_problem", "rotations_of"]


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
    wanted: Mask
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
    rotations, every = rotations_of(problem, rotations), np.arange(len(problem.owners))
    ends = _Ends.of(problem) if len(rotations) > 1 else None
    by_generator = None if ends is None else ends.images(_generators(rotations), every)
    first = every if by_generator is None else orbits(list(by_generator), len(every))
    chunks = np.flatnonzero((first == every) & problem.wanted.any(axis=1))
    images = None if ends is None else ends.images(rotations.ranks, chunks)
    held = resources_of(topology)
    resource_orbits, of_resource = np.unique(rotations.resource_orbit, return_inverse=True)
    link_orbit = (len(resource_orbits) + rotations.link_orbit).tolist()
    numbers = of_resource[held.values].tolist()
    start = held.start.tolist()
    groups = [
        tuple(numbers[first:last]) if last > first else (link_orbit[link],)
        for link, (first, last) in enumerate(itertools.pairwise(start))
    ]
    by_source = np.argsort(topology.link_source, kind="stable")
    first_of = np.cumsum(np.bincount(topology.link_source, minlength=topology.device_count))[:-1]
    links_of: list[list[int]] = [links.tolist() for links in np.split(by_source, first_of)]
    return QuotientProblem(
        topology=topology,
        rotations=rotations,
        chunks=chunks,
        images=chunks[None, :] if images is None else images,
        owner=problem.owners[chunks].tolist(),
        wanted=problem.wanted[chunks],
        groups=groups,
        group_count=len(resource_orbits) + len(topology.links),
        duration_s=problem.duration_s,
        links_of=links_of,
    )


def rotations_of(problem: Chunked, rotations: Rotations | None = None) -> Rotations:
    """The rotations that keep a problem: of the topology's, or of those given, what the generators make that keep it.

    A generator keeps it if every chunk has a counterpart.
    """
    rotations = problem.rotations if rotations is None else rotations
    if len(rotations) == 1:
        return rotations
    ends, every = _Ends.of(problem), np.arange(len(problem.owners))
    pairs = zip(rotations.generators, _generators(rotations), strict=True)
    kept = [pair for pair, ranks in pairs if ends.images(ranks[None, :], every) is not None]
    if len(kept) == len(rotations.generators):
        return rotations
    return subgroup(rotations, kept) if kept else no_rotations(rotations.topology)


def _generators(rotations: Rotations) -> Ids:
    """Where each generator takes each rank, int64, shape (generators, ranks)."""
    count = rotations.topology.device_count
    return np.array([rotation(offset, size, count) for offset, size in rotations.generators]).reshape(-1, count)


@dataclass(frozen=True)
class _Ends:
    """Chunks by their ends: from one rank to all others, to a single one (itself where nobody else wants it), or some.

    `target[c]`: that one, the number of ranks for all others, and above that the number of a set of ranks in `sets`,
    bool, shape (sets, ranks). `key[c]`: both ends as a number; `order`: chunks by it. `place[c]`: which of those alike
    chunk c is; the k-th of several goes to the k-th.
    """

    owner: Ids
    target: Ids
    sets: Mask
    key: Ids
    order: Ids
    place: Ids

    @classmethod
    def of(cls, problem: Chunked) -> _Ends:
        """The ends of all chunks of a problem."""
        ranks, wanted_by = problem.collective.rank_count, problem.wanted.sum(axis=1)
        target = np.select([wanted_by == 0, wanted_by == 1], [problem.owners, problem.wanted.argmax(axis=1)], ranks)
        some = np.flatnonzero((wanted_by > 1) & (wanted_by < ranks - 1))
        sets, number = np.unique(problem.wanted[some], axis=0, return_inverse=True)
        target[some] = ranks + 1 + number.ravel()
        key = problem.owners * (ranks + 1 + len(sets)) + target
        order = np.argsort(key, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(key)) - np.searchsorted(key[order], key[order])
        return cls(problem.owners, target, sets, key, order, place)

    def images(self, permutations: Ids, chunks: Ids) -> Ids | None:
        """`images[g, k]`: where permutation g of the ranks takes the k-th of some chunks; None where it can't."""
        count, ranks = permutations.shape
        moved = np.full((count, ranks + 1 + len(self.sets)), ranks)
        moved[:, :ranks] = permutations
        known = {row.tobytes(): ranks + 1 + number for number, row in enumerate(self.sets)}
        for images, permutation in zip(moved, permutations, strict=True):
            carried = np.empty_like(self.sets)
            carried[:, permutation] = self.sets
            images[ranks + 1 :] = [known.get(row.tobytes(), -1) for row in carried]
        targets = moved[:, self.target[chunks]]
        wanted = moved[:, self.owner[chunks]] * moved.shape[1] + targets
        by_key = self.key[self.order]
        place = np.searchsorted(by_key, wanted) + self.place[chunks]
        if (targets < 0).any() or place.max(initial=0) >= len(by_key) or (by_key[place] != wanted).any():
            return None
        return np.asarray(self.order[place])
