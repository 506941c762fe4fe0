"""Routers: which model routes a problem that doesn't reduce, and where one routing serves both phases of a sum.

Chunks with several destinations take trees (`tree_routing.py`); where every chunk has one at most, paths are enough
(`path_routing.py`).

A sum is built backwards in time and on reversed links (`sketch/phases.py`), and spread forwards. If some permutation of
the ranks carries the one problem to the other, links to links of the same costs and chunks to chunks, it carries
routings, too: an ALLREDUCE takes one routing MILP instead of two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Ids
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.milp.path_routing import path_router
from gapless.encodings.taccl.milp.router import Router
from gapless.encodings.taccl.milp.tree_routing import tree_router
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.encodings.taccl.symmetry.rotations import Images, resources_of, rotation, rotation_candidates
from gapless.errors import InputError
from gapless.model import Model
from gapless.solution import Solution

__all__ = ["Mirror", "find_mirror", "router_of", "routing_model", "takes_paths"]


def takes_paths(problem: Chunked) -> bool:
    """Whether every chunk has one destination at most."""
    return bool((problem.wanted.sum(axis=1) <= 1).all())


def router_of(problem: Chunked, solve: Callable[[Model], Solution] | None = None, at_least_s: float = 0.0) -> Router:
    """The router that fits a problem.

    `solve` is for a linear program whose solution makes a better choice of paths; `at_least_s`: a lower bound on the
    makespan, below which no choice of paths is worth looking for.
    """
    return path_router(problem, solve, at_least_s) if takes_paths(problem) else tree_router(problem)


def routing_model(problem: Chunked) -> Model:
    """The routing MILP that minimises the time, for writing to a file.

    Raises `InputError` where there are two, one for each phase.
    """
    if len(problem.phases) > 1:
        raise InputError(
            f"{problem.collective.name}: has a routing model a phase; write those of reducescatter and allgather"
        )
    return router_of(problem.phases[0].problem).least_time_model()


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
    count = problem.collective.rank_count
    rotations = (rotation(offset, size, count) for offset, size in rotation_candidates(count))
    for ranks in (np.arange(count), *rotations):
        links = _image_of_links(ranks, first, second)
        chunks = None if links is None else _image_of_chunks(ranks, first, second)
        if links is None or chunks is None:
            continue
        same_wishes = np.array_equal(first.wanted, second.wanted[np.ix_(chunks, ranks)])
        if same_wishes and np.array_equal(first.usable, second.usable[np.ix_(chunks, links)]):
            return Mirror(chunks, links)
    return None


def _image_of_links(ranks: Ids, first: Chunked, second: Chunked) -> Ids | None:
    """Links by their ends; None unless costs are kept, and what shares a resource shares one again."""
    here, there = first.logical.topology, second.logical.topology
    table = Images(there)
    if table.has_parallel_links or not len(here.links) or len(here.links) != len(there.links):
        return None
    links = table.links_between(ranks[here.link_source], ranks[here.link_target])
    kept = (links >= 0).all() and (first.duration_s == second.duration_s[links]).all()
    if not kept or (first.occupancy_s != second.occupancy_s[links]).any():
        return None
    mine, theirs = resources_of(here), resources_of(there).take(links)
    if (mine.lengths != theirs.lengths).any():
        return None
    pairs = np.unique(np.stack([mine.values, theirs.values]), axis=1)
    one_to_one = len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1]
    return links if one_to_one else None


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
