"""From the ordered sends of a routing to a schedule in the graph IR."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planwright.encodings.taccl.ordering import Ordering
from planwright.encodings.taccl.problem import Problem
from planwright.encodings.taccl.routing import Routing
from planwright.schedule import EventKind, Ragged, Schedule
from planwright.simulate import retime

__all__ = ["to_schedule"]


def to_schedule(problem: Problem, routing: Routing, ordering: Ordering) -> Schedule:
    """One transfer a send, or a group of joined sends, in the order of the ordering, each as early as possible."""
    row = ordering.sends.row_of
    order = np.lexsort((ordering.place[row], ordering.start_s[row], routing.link))  # groups become runs
    row, link, chunk = row[order], routing.link[order], routing.chunk[order]
    start_s = ordering.start_s[row]
    first = np.flatnonzero(ordering.place[row] == 0)
    count = len(first)
    moves = Ragged(np.append(first, len(order)).astype(np.int64), chunk)
    duration_s = _durations(problem, link[first], moves)
    schedule = Schedule(
        graph=problem.graph,
        topology=problem.logical.topology,
        kind=np.full(count, int(EventKind.TRANSFER)),
        start_s=start_s[first],
        end_s=start_s[first] + duration_s,
        place=link[first],
        op=np.full(count, -1),
        implementation=np.full(count, -1),
        reduces=np.zeros(count, dtype=np.bool_),
        moves=moves,
        freed_tensor=Ragged.empty(count),
        freed_device=Ragged.empty(count),
        name=f"{problem.collective.name} on {problem.topology.name}",
    )
    return retime(schedule)


def _durations(problem: Problem, link: NDArray[np.int64], moves: Ragged) -> NDArray[np.float64]:
    topology = problem.logical.topology
    return np.asarray(topology.alpha_s[link] + topology.beta_s_per_byte[link] * problem.chunk_bytes * moves.lengths)
