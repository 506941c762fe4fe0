"""From ordered sends to a schedule in the graph IR."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.milp.ordering import Ordering
from gapless.encodings.taccl.moves import Moves
from gapless.schedule import EventKind, Ragged, Schedule
from gapless.simulate import retime

__all__ = ["to_schedule"]


def to_schedule(problem: Chunked, moves: Moves, ordering: Ordering) -> Schedule:
    """One transfer a send, or a group of joined sends, in the order of the ordering, each as early as possible."""
    row = ordering.sends.row_of
    order = np.lexsort((ordering.place[row], ordering.start_s[row], moves.link))  # groups become runs
    row, link, chunk = row[order], moves.link[order], moves.chunk[order]
    start_s = ordering.start_s[row]
    first = np.flatnonzero(ordering.place[row] == 0)
    count = len(first)
    moved = Ragged(np.append(first, len(order)).astype(np.int64), chunk)
    duration_s = _durations(problem, link[first], moved)
    schedule = Schedule(
        graph=problem.graph,
        topology=problem.logical.topology,
        kind=np.full(count, int(EventKind.TRANSFER)),
        start_s=start_s[first],
        end_s=start_s[first] + duration_s,
        place=link[first],
        op=np.full(count, -1),
        implementation=np.full(count, -1),
        reduces=_reduces(problem, moves, ordering)[order][first],
        moves=moved,
        freed_tensor=Ragged.empty(count),
        freed_device=Ragged.empty(count),
        name=f"{problem.collective.name} on {problem.topology.name}",
    )
    return retime(schedule)


def _reduces(problem: Chunked, moves: Moves, ordering: Ordering) -> NDArray[np.bool_]:
    """Whether each send adds to what its target holds; the first part that comes to a rank without one is a copy."""
    reduces = moves.reduces.copy()
    target = problem.logical.topology.link_target[moves.link]
    filled: set[tuple[int, int]] = set()
    for k in np.argsort(ordering.start_s[ordering.sends.row_of], kind="stable").tolist():
        cell = (int(moves.chunk[k]), int(target[k]))
        if moves.fills[k] and cell not in filled:
            filled.add(cell)
            reduces[k] = False
    return reduces


def _durations(problem: Chunked, link: NDArray[np.int64], moved: Ragged) -> NDArray[np.float64]:
    topology = problem.logical.topology
    return np.asarray(topology.alpha_s[link] + topology.beta_s_per_byte[link] * problem.chunk_bytes * moved.lengths)
