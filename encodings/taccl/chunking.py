"""Chunking: into how many chunks a rank's data are best cut, where no sketch says it.

Few chunks pay few latencies, many let a rank hand on the beginning of what it is still receiving, and share out over
unlike links and several ways. Which weighs more depends on size and machine, so a handful of numbers is tried with the
greedy.
"""

from __future__ import annotations

from gapless.collective import collective_by_name
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.options import Deadline, SolveOptions
from gapless.topologies.topology import Topology

__all__ = ["best_chunking"]

_NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16)
_MOST_MOVES = 60_000
"""Sends of chunks to ranks: beyond, one chunk a rank is taken (what is large is in many pieces already)."""
_TRY_S = 0.5
_ALL_S = 5.0
"""What one number may take, and all of them: a try that has begun is finished, which may take longer."""
_WORSE = 1.3
"""Larger numbers are not tried once one is this much worse than the best."""


def best_chunking(
    topology: Topology, collective: str, input_bytes: int, root: int | None = None, target: int | None = None
) -> int:
    """The number of chunks of one rank's data (ALLTOALL, SCATTER: for one rank) with which the greedy is fastest."""
    if topology.device_count < 2:
        return 1
    tried = []
    for number in _NUMBERS:
        cut = number * topology.device_count if collective == "alltoall" else number
        definition = collective_by_name(collective, topology.device_count, cut, root, target)
        moves = definition.chunk_count * topology.device_count
        chunks = max(len(buffer) for buffer in definition.inputs)
        if moves > _MOST_MOVES or chunks > input_bytes:
            break
        tried.append((number, definition, -(-input_bytes // chunks)))
    best, best_s = 1, float("inf")
    deadline = Deadline(SolveOptions(time_limit_s=_ALL_S))
    for number, definition, chunk_bytes in tried if len(tried) > 1 else []:
        if deadline.over:
            break
        problem = Chunked(topology, definition, chunk_bytes, method="greedy")
        found = plan_greedy(problem, SolveOptions(time_limit_s=_TRY_S, gap=1e-3)).solution
        if found.objective is None or found.objective > _WORSE * best_s:
            break
        if found.objective < best_s * (1 - 1e-9):
            best, best_s = number, found.objective
    return best
