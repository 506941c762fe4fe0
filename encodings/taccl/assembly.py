"""From the sends of a board to a schedule: put in order, set in time, and unfolded under the rotations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planwright.encodings.taccl.board import Board, Moves
from planwright.encodings.taccl.ordering import Ordering
from planwright.encodings.taccl.problem import Problem
from planwright.encodings.taccl.sends import Sends
from planwright.schedule import EventKind, Ragged, Schedule

__all__ = ["as_sends", "moves_of", "settle", "to_schedule"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def as_sends(problem: Problem, board: Board, link: Ids, parent: Ids) -> Sends:
    """The sends of a board's chunks as rows to be put in order, parents before children."""
    topology = board.topology
    first = board.group_count  # a link's own number tells links apart that hold the same clocks
    orbit = (first + board.rotations.link_orbit[link]).tolist()
    return Sends(
        row_of=np.arange(len(link)),
        parent=parent.tolist(),
        link=orbit,
        groups=[(own, *board.groups[number]) for own, number in zip(orbit, link.tolist(), strict=True)],
        alpha_s=topology.alpha_s[link],
        beta_s=problem.duration_s[link] - topology.alpha_s[link],
        may_join=problem.may_group[link],
        after=[[] for _ in range(len(link))],
    )


def settle(ordering: Ordering) -> Ordering:
    """The same order and grouping, each transfer as early as possible, with durations that are not rounded."""
    sends, place = ordering.sends, ordering.place.tolist()
    transfers = _transfers(ordering)
    end_s = [0.0] * len(sends)
    start_s = np.zeros(len(sends))
    free: dict[int, float] = {}
    for rows in transfers:
        at_s = max(free.get(group, 0.0) for group in sends.groups[rows[0]])
        at_s = max([at_s, *(end_s[sends.parent[row]] for row in rows if sends.parent[row] >= 0)])
        over_s = at_s + float(sends.alpha_s[rows[0]] + sends.beta_s[rows[0]] * len(rows))
        for row in rows:
            start_s[row], end_s[row] = at_s, over_s
        free.update(dict.fromkeys(sends.groups[rows[0]], over_s))
    return Ordering(sends, start_s, np.array(place, dtype=np.int64), max(end_s, default=0.0), ordering.variant)


def _transfers(ordering: Ordering) -> list[list[int]]:
    """The rows of each transfer, transfers in order of their starts."""
    sends, place = ordering.sends, ordering.place
    order = np.lexsort((place, np.array(sends.link), ordering.start_s))
    transfers: list[list[int]] = []
    for row in order.tolist():
        if place[row] > 0:
            transfers[-1].append(row)
        else:
            transfers.append([row])
    return transfers


def moves_of(board: Board, chunk: Ids, link: Ids, ordering: Ordering) -> Moves:
    """All sends of the collective, in order of their starts; `chunk`, `link`: of each row of the ordering."""
    end_s = np.zeros(len(chunk))
    sends = ordering.sends
    for rows in _transfers(ordering):
        end_s[rows] = ordering.start_s[rows[0]] + float(sends.alpha_s[rows[0]] + sends.beta_s[rows[0]] * len(rows))
    return board.columns(chunk, link, ordering.start_s, end_s, ordering.place)


def to_schedule(problem: Problem, moves: Moves) -> Schedule:
    """The moves as a schedule of the problem, in order of their starts."""
    order = np.lexsort((moves.place, moves.link, moves.start_s))
    first = np.flatnonzero(moves.place[order] == 0)
    rows = order[first]
    count = len(first)
    return Schedule(
        graph=problem.graph,
        topology=problem.logical.topology,
        kind=np.full(count, int(EventKind.TRANSFER)),
        start_s=moves.start_s[rows],
        end_s=moves.end_s[rows],
        place=moves.link[rows],
        op=np.full(count, -1),
        implementation=np.full(count, -1),
        reduces=np.zeros(count, dtype=np.bool_),
        moves=Ragged(np.append(first, len(order)).astype(np.int64), moves.chunk[order]),
        freed_tensor=Ragged.empty(count),
        freed_device=Ragged.empty(count),
        name=f"{problem.collective.name} on {problem.topology.name}",
    )
