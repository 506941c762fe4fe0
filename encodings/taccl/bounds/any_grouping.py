"""Lower bounds for plans that may send any chunks together on any link: what whole messages can reach at best.

They hold for the chunks of the problem, which are whole, and for every grouping. `gathering` and `doors` count what a
rank, or a node, can have by when; `spreading` counts whom a chunk, or a word of a chunk, can have reached. For sums the
bounds are those of the phases backwards and forwards, and those that follow from adding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.arrival import Doors, arrivals_s, earliest_s
from gapless.encodings.taccl.bounds.cuts import any_cut_bound_s
from gapless.encodings.taccl.bounds.gossip import gossip_bound_s
from gapless.encodings.taccl.bounds.makespan import bandwidth_bound_s
from gapless.encodings.taccl.bounds.reduction import crossing_bound_s, doubling_bound_s, pairs_latency_s
from gapless.encodings.taccl.bounds.spreading import influence_bound_s, spreading_bound_s
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.rotations import find_rotations

__all__ = ["GroupedBounds", "grouped_bounds", "phase_bounds"]

Ids = NDArray[np.int64]

_SMALL = 2_000_000
"""Pairs of chunk and link up to which cuts are looked at chunk by chunk."""
_MOST_CHUNKS = 300
"""Chunks that one rank must get, up to which they are counted one by one."""


@dataclass(frozen=True)
class GroupedBounds:
    """Seconds; `latency_s`: shortest ways. `doors_s`: cuts around ranks and nodes. `gathering_s`: what a rank or a node
    can have by when. `spreading_s`: how many ranks can know of something by when. `reduction_s`, `gossip_s`: for sums,
    how fast parts come together, and come to all.
    """

    latency_s: float = 0.0
    doors_s: float = 0.0
    gathering_s: float = 0.0
    spreading_s: float = 0.0
    reduction_s: float = 0.0
    gossip_s: float = 0.0

    @property
    def best_s(self) -> float:
        """The largest."""
        return max(self.by_name.values())

    @property
    def by_name(self) -> dict[str, float]:
        """By name, without the unit."""
        return {its.name[:-2]: getattr(self, its.name) for its in fields(self)}


def grouped_bounds(problem: Chunked, parts: list[GroupedBounds] | None = None) -> GroupedBounds:
    """Bounds that hold however the problem's chunks are grouped; `parts`: those of its phases, where they are known."""
    parts = phase_bounds(problem) if parts is None else parts
    if not problem.collective.reduces:
        return parts[0]
    everywhere = np.ones(problem.link_count, dtype=np.bool_)
    small = problem.collective.chunk_count * problem.link_count <= _SMALL
    return GroupedBounds(
        latency_s=max(pairs_latency_s(problem) if small else 0.0, *(its.latency_s for its in parts)),
        doors_s=max(crossing_bound_s(problem, everywhere), *(its.doors_s for its in parts)),
        gathering_s=max(its.gathering_s for its in parts),
        spreading_s=max(its.spreading_s for its in parts),
        reduction_s=doubling_bound_s(problem),
        gossip_s=gossip_bound_s(problem),
    )


def phase_bounds(problem: Chunked) -> list[GroupedBounds]:
    """The same for each phase alone."""
    return [_spread_bounds(phase.problem, phase.backwards) for phase in problem.phases]


def _spread_bounds(problem: Chunked, one_at_a_time: bool) -> GroupedBounds:
    """Of a problem that doesn't reduce; `one_at_a_time`: a rank sends a chunk to one rank at a time."""
    cells = problem.collective.chunk_count * problem.link_count
    if cells <= _SMALL:
        latency_s = float(problem.earliest_s[problem.wanted].max(initial=0.0))
        doors_s = bandwidth_bound_s(problem, np.ones(problem.link_count, dtype=np.bool_))
    else:
        latency_s = any_cut_bound_s(problem.logical.topology, problem.collective, problem.chunk_bytes)
        doors_s = latency_s
    return GroupedBounds(
        latency_s=latency_s,
        doors_s=doors_s,
        gathering_s=max((_gathering_s(problem, ranks, chunks) for ranks, chunks in _classes(problem)), default=0.0),
        spreading_s=max(spreading_bound_s(problem, one_at_a_time), influence_bound_s(problem, one_at_a_time)),
    )


def _classes(problem: Chunked) -> Iterator[tuple[list[int], Ids]]:
    """Ranks that want the same chunks from elsewhere, and these chunks: all of them, and those from other nodes."""
    topology, count = problem.logical.topology, problem.collective.rank_count
    orbit = np.arange(count) if problem.sketch is not None else find_rotations(topology).rank_orbit
    uniform = len({len(buffer) for buffer in problem.collective.inputs}) == 1
    ranks = np.unique(orbit).tolist() if uniform else list(range(count))
    nodes = np.array(topology.node_of_device)
    seen: dict[bytes, tuple[list[int], Ids]] = {}
    held = problem.wanted.copy()
    shared = np.flatnonzero(problem.wanted.sum(axis=1) > 1)  # its owner counts as one of those that must have it
    held[shared, problem.owners[shared]] = True
    several = 1 < topology.node_count < count
    for rank in ranks:
        apart = [np.ones(len(problem.owners), dtype=np.bool_)]
        if several:
            apart.append(nodes[problem.owners] != nodes[rank])
        for away in apart:
            chunks = np.flatnonzero(held[:, rank] & away)
            if 0 < len(chunks) <= _MOST_CHUNKS and problem.wanted[chunks, rank].any():
                seen.setdefault(chunks.tobytes(), ([], chunks))[0].append(rank)
    return iter(seen.values())


def _gathering_s(problem: Chunked, ranks: list[int], chunks: Ids) -> float:
    """When the last of the ranks can have all chunks; and where a node wants them, when they are in and spread."""
    topology = problem.logical.topology
    own = np.bincount(problem.owners[chunks], minlength=topology.device_count)
    doors = Doors.of(topology, problem.chunk_bytes)
    had_s = earliest_s(doors, own)
    best_s = max(float(had_s[rank, len(chunks)]) for rank in ranks)
    nodes = np.array(topology.node_of_device)
    inside = nodes == nodes[ranks[0]]
    alone = not own[inside].any() and inside.sum() > 1
    if alone and problem.wanted[np.ix_(chunks, np.flatnonzero(inside))].all():
        best_s = max(best_s, arrivals_s(topology, problem.chunk_bytes, inside, had_s))
    return best_s
