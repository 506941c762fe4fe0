"""The exact bandwidth bounds without latencies: they hold however chunks are cut and grouped.

In pieces as small as one likes, what the linear programs of `concurrent_flow` and `packing` find takes no longer, but
for latencies. Sums are looked at backwards in time, as the spreading of their chunks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.collective import Collective
from gapless.encodings.taccl.bounds.concurrent_flow import ConcurrentFlow, concurrent_flow
from gapless.encodings.taccl.bounds.packing import pack
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.sketch.phases import is_spread_backwards
from gapless.options import SolveOptions
from gapless.topologies.topology import Topology

__all__ = ["any_bandwidth_s_per_byte", "flow_of_chunks", "is_allgather"]

Floats = NDArray[np.float64]

_CHUNK_BYTES = 10**6
"""Of the problems that the phases are taken from; what they take isn't looked at."""
_LIMIT_S = 20.0
"""For one linear program; without its answer the cuts have to do."""


def any_bandwidth_s_per_byte(topology: Topology, collective: Collective) -> float:
    """Seconds for each byte of a chunk that no schedule can beat.

    0 where the collective is of another kind, or some link takes no time.
    """
    rate_s = topology.beta_s_per_byte
    if not (rate_s > 0).all() or not is_spread_backwards(collective):
        return 0.0
    options, found_s = SolveOptions(time_limit_s=_LIMIT_S), [0.0]
    for phase in Chunked(topology, collective, _CHUNK_BYTES).phases:
        network = phase.problem.logical.topology
        if is_allgather(phase.problem):
            found_s.append(pack(network, rate_s, options).time_s * phase.problem.collective.chunks_per_rank)
        elif (flow := flow_of_chunks(phase.problem, rate_s, options)) is not None:
            found_s.append(flow.time_s)
    return max(found_s)


def is_allgather(problem: Chunked) -> bool:
    """Whether every rank has as many chunks as any other, all wanted by all others."""
    per_rank = np.bincount(problem.owners, minlength=problem.collective.rank_count)
    everywhere = problem.wanted.sum() == len(problem.owners) * (problem.collective.rank_count - 1)
    return bool(everywhere and (per_rank == problem.collective.chunks_per_rank).all())


def flow_of_chunks(
    problem: Chunked, occupancy_s: Floats, options: SolveOptions | None, short: bool = False
) -> ConcurrentFlow | None:
    """The flow of all chunks from their owners to the ranks that want them, None where some are wanted by several."""
    wanted_by = problem.wanted.sum(axis=1)
    if wanted_by.max(initial=0) > 1:
        return None
    some = np.flatnonzero(wanted_by)
    count = problem.collective.rank_count
    demand = np.zeros((count, count), dtype=np.int64)
    np.add.at(demand, (problem.owners[some], problem.wanted[some].argmax(axis=1)), 1)
    return concurrent_flow(problem.logical.topology, occupancy_s, demand, options, short)
