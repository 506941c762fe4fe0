"""The exact bandwidth bound of a problem that doesn't reduce: trees packed for ALLGATHER, a flow for single targets.

Chunks that several ranks want, but not all, have the bottleneck cuts around ranks and nodes instead, and trees of all
groups packed together. Symmetries of topology and collective make orbits, so the bound is quick on a thousand ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.bottlenecks import Bottleneck, Network, allgather_bottlenecks, bottleneck
from gapless.encodings.taccl.bounds.concurrent_flow import ConcurrentFlow, concurrent_flow
from gapless.encodings.taccl.bounds.packing import joint_packing_s, pack
from gapless.encodings.taccl.bounds.parameters import BoundParameters
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.rotations import Rotations
from gapless.options import SolveOptions
from gapless.topologies.topology import Topology

__all__ = ["Bandwidth", "bottlenecks_of", "exact_bandwidth"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Bandwidth:
    """`time_s`: no plan takes less. `exact`: whether one in arbitrarily small pieces takes no longer, latencies aside.

    `bottlenecks`: the cuts found. `flow`: where chunks have one destination, what carries them all in the least time;
    None where its program is too large.
    """

    time_s: float
    exact: bool
    bottlenecks: tuple[Bottleneck, ...]
    flow: ConcurrentFlow | None = None


def exact_bandwidth(
    problem: Chunked,
    occupancy_s: Floats,
    rotations: Rotations,
    options: SolveOptions,
    parameters: BoundParameters,
    short: bool = False,
) -> Bandwidth:
    """The bound where a chunk holds link l for `occupancy_s[l]`; `rotations` keep topology and collective.

    `short`: for a plan rather than a bound, of the flows that take the least time one over short paths, and trees of
    several groups are not packed. Where the time limit of the options ends a linear program, the bound is lower than it
    could be, and not `exact`; where a chunk holds some link for no time, it is 0.
    """
    topology = problem.logical.topology
    if not (occupancy_s > 0).all():
        return Bandwidth(0.0, False, ())
    if _is_allgather(problem):
        count = problem.collective.chunks_per_rank
        if len(np.unique(rotations.link_orbit)) <= parameters.most_tree_variables:
            packing = pack(topology, occupancy_s, options, rotations)
            return Bandwidth(count * packing.time_s, packing.exact, packing.bottlenecks)
        cuts = bottlenecks_of(problem, occupancy_s, rotations)
        return Bandwidth(count * max(cut.time_s for cut in cuts), False, cuts)
    cuts = bottlenecks_of(problem, occupancy_s, rotations)
    time_s = max(cut.time_s for cut in cuts)
    if (demand := _demand(problem)) is None:
        joint_s = 0.0 if short else joint_packing_s(problem, occupancy_s, rotations, options, parameters)
        return Bandwidth(max(time_s, joint_s), False, cuts)
    flow = concurrent_flow(topology, occupancy_s, demand, options, short, parameters.most_flow_variables)
    if flow is None:
        return Bandwidth(time_s, False, cuts)
    return Bandwidth(max(time_s, flow.time_s), flow.exact, cuts, flow)


def bottlenecks_of(problem: Chunked, occupancy_s: Floats, rotations: Rotations) -> tuple[Bottleneck, ...]:
    """The cuts that `exact_bandwidth` begins with, which take no linear program; none where it is 0."""
    if not (occupancy_s > 0).all():
        return ()
    if _is_allgather(problem):
        return tuple(allgather_bottlenecks(problem.logical.topology, occupancy_s, rotations))
    return tuple(_cuts(problem, occupancy_s, rotations))


def _demand(problem: Chunked) -> Ids | None:
    """`demand[s, t]`: how many chunks rank t wants from rank s, None where some are wanted by several ranks."""
    wanted_by = problem.wanted.sum(axis=1)
    if wanted_by.max(initial=0) > 1:
        return None
    some, count = np.flatnonzero(wanted_by), problem.collective.rank_count
    demand = np.zeros((count, count), dtype=np.int64)
    np.add.at(demand, (problem.owners[some], problem.wanted[some].argmax(axis=1)), 1)
    return demand


def _is_allgather(problem: Chunked) -> bool:
    """Whether every rank has as many chunks as any other, all wanted by all others."""
    per_rank = np.bincount(problem.owners, minlength=problem.collective.rank_count)
    everywhere = problem.wanted.sum() == len(problem.owners) * (problem.collective.rank_count - 1)
    return bool(everywhere and (per_rank == problem.collective.chunks_per_rank).all())


def _cuts(problem: Chunked, occupancy_s: Floats, rotations: Rotations) -> list[Bottleneck]:
    """The bottleneck into one rank and one node of each orbit, and into all the others."""
    network, found = Network.of(problem.logical.topology, occupancy_s), []
    for ranks in _sets(problem.logical.topology, rotations):
        inside = np.array(ranks)
        wanted = problem.wanted[:, inside].any(axis=1)
        owned = np.bincount(problem.owners[wanted], minlength=problem.collective.rank_count)
        found.append(bottleneck(network, owned, inside))
    return found


def _sets(topology: Topology, rotations: Rotations) -> list[tuple[int, ...]]:
    """One rank and one node of each orbit, and the others of each."""
    orbit = rotations.rank_orbit
    nodes = [topology.ranks_of_node(node) for node in range(topology.node_count)]
    sets: set[tuple[int, ...]] = {(rank,) for rank in np.unique(orbit).tolist()}
    if len(nodes) > 1:
        kinds = {tuple(sorted(orbit[ranks].tolist())): tuple(ranks) for ranks in reversed(nodes)}
        sets |= set(kinds.values())
    everyone = set(range(topology.device_count))
    return sorted(sets | {tuple(sorted(everyone - set(ranks))) for ranks in sets})
