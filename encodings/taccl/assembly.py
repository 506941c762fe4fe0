"""From the sends of a board to a table to be put in order, and from the unfolded columns to a schedule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planwright.encodings.taccl.board import Board, Columns
from planwright.encodings.taccl.dispatch import Table
from planwright.encodings.taccl.problem import Problem
from planwright.schedule import EventKind, Ragged, Schedule

__all__ = ["reversed_columns", "table_of", "to_schedule"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def table_of(problem: Problem, board: Board, link: Ids, parent: Ids) -> Table:
    """The sends of a board's chunks as rows to be put in order, parents before children."""
    topology = board.topology
    own = (board.group_count + board.rotations.link_orbit[link]).tolist()
    return Table(
        parent=parent.tolist(),
        link=own,
        clocks=[(clock, *board.groups[number]) for clock, number in zip(own, link.tolist(), strict=True)],
        alpha_s=topology.alpha_s[link],
        beta_s=problem.duration_s[link] - topology.alpha_s[link],
        may_join=problem.may_group[link],
    )


def to_schedule(problem: Problem, moves: Columns) -> Schedule:
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
