"""Lower bounds that stay quick on a thousand ranks: shortest ways, cuts found by flows on orbits, all chunks' flow."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.any_chunking import flow_of_chunks, is_allgather
from gapless.encodings.taccl.bounds.bandwidth import Bottleneck, Network, allgather_bottlenecks, bottleneck
from gapless.encodings.taccl.bounds.concurrent_flow import ConcurrentFlow
from gapless.encodings.taccl.bounds.makespan import combinatorial_bounds
from gapless.encodings.taccl.bounds.packing import pack
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.quotient import QuotientProblem
from gapless.options import SolveOptions

__all__ = ["LargeBounds", "large_bounds"]

Ids = NDArray[np.int64]

_SMALL = 100_000
"""Pairs of chunk and link up to which bounds chunk by chunk are quick."""
_MOST_ORBITS = 20_000
"""Link orbits up to which trees are packed; above, cuts alone have to do."""


@dataclass(frozen=True)
class LargeBounds:
    """Seconds. `bandwidth_s` is the exact one (see `packing`, `concurrent_flow`) where `exact`, else that of the cuts.

    `bottlenecks`: the cuts found. `door_s`: the bound around ranks and nodes that counts latencies and the way to and
    from the doors (see `bounds`), 0 where the problem is too large for it. `flow`: where chunks have one destination,
    what carries them all in the least time; None where its program is too large.
    """

    latency_s: float
    door_s: float
    bandwidth_s: float
    exact: bool
    bottlenecks: tuple[Bottleneck, ...]
    flow: ConcurrentFlow | None = None

    @property
    def best_s(self) -> float:
        """The largest."""
        return max(self.latency_s, self.door_s, self.bandwidth_s)


def large_bounds(problem: Chunked, board: QuotientProblem, options: SolveOptions | None = None) -> LargeBounds:
    """Bounds for the problem's chunks, each sent on its own inside a node and grouped at will between nodes."""
    latency_s = _latency_s(board)
    small = problem.collective.chunk_count * problem.link_count <= _SMALL
    door_s = combinatorial_bounds(problem).best_s if small else 0.0
    if not is_allgather(problem):
        cuts = tuple(_cuts(problem, board))
        time_s = max(cut.time_s for cut in cuts)
        flow = flow_of_chunks(problem, problem.occupancy_s, options, short=True)
        if flow is None:
            return LargeBounds(latency_s, door_s, time_s, False, cuts)
        return LargeBounds(latency_s, door_s, max(time_s, flow.time_s), flow.exact, cuts, flow)
    topology, rotations = board.topology, board.rotations
    cuts = tuple(allgather_bottlenecks(topology, problem.occupancy_s, rotations))
    time_s, exact = max(cut.time_s for cut in cuts), False
    if len(np.unique(rotations.link_orbit)) <= _MOST_ORBITS:
        packing = pack(topology, problem.occupancy_s, options, rotations)
        time_s, exact = max(time_s, packing.time_s), packing.exact
    return LargeBounds(latency_s, door_s, time_s * problem.collective.chunks_per_rank, exact, cuts)


def _cuts(problem: Chunked, board: QuotientProblem) -> list[Bottleneck]:
    """The bottleneck into one rank and one node of each orbit, and into all the others."""
    topology = board.topology
    network, count = Network.of(topology, problem.occupancy_s), topology.device_count
    carried = board.rotations.rank_orbit
    nodes = [topology.ranks_of_node(node) for node in range(topology.node_count)]
    sets: set[tuple[int, ...]] = {(rank,) for rank in np.unique(carried).tolist()}
    if len(nodes) > 1:
        kinds = {tuple(sorted(carried[ranks].tolist())): tuple(ranks) for ranks in reversed(nodes)}
        sets |= set(kinds.values())
    sets |= {tuple(sorted(set(range(count)) - set(ranks))) for ranks in sets}
    found = []
    for ranks in sorted(sets):
        inside = np.array(ranks)
        wanted = problem.wanted[:, inside].any(axis=1)
        owned = np.bincount(problem.owners[wanted], minlength=count)
        found.append(bottleneck(network, owned, inside))
    return found


def _latency_s(board: QuotientProblem) -> float:
    """The longest of the shortest ways of the board's chunks, each alone in the network."""
    known: dict[int, NDArray[np.float64]] = {}
    latest_s = 0.0
    for owner, wanted in zip(board.owner, board.wanted, strict=True):
        if owner not in known:
            known[owner] = _distances_s(board, owner)
        latest_s = max(latest_s, float(known[owner][wanted].max(initial=0.0)))
    return latest_s


def _distances_s(board: QuotientProblem, owner: int) -> NDArray[np.float64]:
    """The time of the shortest way from a rank to every other, float, inf where there is none."""
    distance_s = [np.inf] * board.topology.device_count
    distance_s[owner] = 0.0
    target, duration_s = board.topology.link_target.tolist(), board.duration_s.tolist()
    heap = [(0.0, owner)]
    while heap:
        so_far_s, rank = heapq.heappop(heap)
        if so_far_s > distance_s[rank]:
            continue
        for link in board.links_of[rank]:
            through_s = so_far_s + duration_s[link]
            if through_s < distance_s[target[link]]:
                distance_s[target[link]] = through_s
                heapq.heappush(heap, (through_s, target[link]))
    return np.array(distance_s)
