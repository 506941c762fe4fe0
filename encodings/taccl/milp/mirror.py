"""Mirror: where the second phase of a sum is the first one seen from elsewhere, one routing serves both.

A sum is built backwards in time and on reversed links (phases.py), and spread forwards. If some permutation of the
ranks carries the one problem to the other, links to links of the same costs and chunks to chunks, it carries routings,
too: an ALLREDUCE takes one routing MILP instead of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.encodings.taccl.symmetry.groups import resources_of, rotation
from gapless.encodings.taccl.symmetry.rotations import rotation_candidates

__all__ = ["Mirror", "find_mirror"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Mirror:
    """What a permutation makes of the first phase's chunks and links in the second; int64 arrays, item -> image."""

    chunks: Ids
    links: Ids

    def image(self, routing: Routing) -> Routing:
        """A routing of the first phase in the second."""
        return Routing(self.chunks[routing.chunk], self.links[routing.link], routing.parent)


def find_mirror(problem: Chunked) -> Mirror | None:
    """The first permutation found that carries the first of two phases to the second, None if there is none."""
    if len(problem.phases) != 2:
        return None
    first, second = (phase.problem for phase in problem.phases)
    for ranks in _candidates(problem.collective.rank_count):
        links = _image_of_links(ranks, first, second)
        chunks = None if links is None else _image_of_chunks(ranks, first, second)
        if links is None or chunks is None:
            continue
        same_wishes = np.array_equal(first.wanted, second.wanted[np.ix_(chunks, ranks)])
        if same_wishes and np.array_equal(first.usable, second.usable[np.ix_(chunks, links)]):
            return Mirror(chunks, links)
    return None


def _candidates(count: int) -> Iterator[Ids]:
    yield np.arange(count)
    for offset, size in rotation_candidates(count):
        yield rotation(offset, size, count)


def _image_of_links(ranks: Ids, first: Chunked, second: Chunked) -> Ids | None:
    """Links by their ends; None unless costs are kept, and what shares a resource shares one again."""
    here, there = first.logical.topology, second.logical.topology
    count, number = here.device_count, len(here.links)
    key = there.link_source * count + there.link_target
    order = np.argsort(key, kind="stable")
    wanted = ranks[here.link_source] * count + ranks[here.link_target]
    if len(key) != number or not number or (np.diff(key[order]) == 0).any():
        return None
    place = np.minimum(np.searchsorted(key[order], wanted), number - 1)
    links = order[place]
    kept = (key[links] == wanted).all() and (first.duration_s == second.duration_s[links]).all()
    if not kept or (first.occupancy_s != second.occupancy_s[links]).any():
        return None
    mine, theirs = resources_of(here), resources_of(there).take(links)
    if (mine.lengths != theirs.lengths).any():
        return None
    pairs = np.unique(np.stack([mine.values, theirs.values]), axis=1)
    one_to_one = len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1]
    return np.asarray(links, dtype=np.int64) if one_to_one else None


def _image_of_chunks(ranks: Ids, first: Chunked, second: Chunked) -> Ids | None:
    """The k-th chunk of a rank becomes the k-th of its image; None where that has fewer or more."""
    by_owner = np.argsort(second.owners, kind="stable")
    carried = ranks[first.owners]
    order = np.argsort(carried, kind="stable")
    if not np.array_equal(carried[order], second.owners[by_owner]):
        return None
    chunks = np.empty(len(order), dtype=np.int64)
    chunks[order] = by_owner
    return chunks
