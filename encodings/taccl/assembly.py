"""From the sends of a board to a table to be put in order, and from the unfolded columns to a schedule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.list_scheduling import Table
from gapless.encodings.taccl.symmetry.quotient import Columns, QuotientProblem
from gapless.schedule import EventKind, Ragged, Schedule

__all__ = ["reversed_columns", "table_of", "to_schedule"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def table_of(
    problem: Chunked, board: QuotientProblem, chunk: Ids, link: Ids, parent: Ids, one_at_a_time: bool
) -> Table:
    """The sends of a board's chunks as rows to be put in order, parents before children.

    `one_at_a_time`: whether a rank may send a chunk to one rank only at a time; backwards in time, where the chunk is a
    sum, that is to add one part at a time.
    """
    topology = board.topology
    own = (board.group_count + board.rotations.link_orbit[link]).tolist()
    clocks = [(clock, *board.groups[number]) for clock, number in zip(own, link.tolist(), strict=True)]
    if one_at_a_time:
        first = board.group_count + len(topology.links)
        copies = (first + chunk * topology.device_count + topology.link_source[link]).tolist()
        clocks = [(copy, *its) for copy, its in zip(copies, clocks, strict=True)]
    return Table(
        needs=[(row,) if row >= 0 else () for row in parent.tolist()],
        link=own,
        clocks=clocks,
        alpha_s=topology.alpha_s[link],
        beta_s=problem.duration_s[link] - topology.alpha_s[link],
        may_join=problem.may_group[link],
    )


def reversed_columns(moves: Columns) -> Columns:
    """The sends backwards in time, each on its link turned round (which has the same number), in order of starts."""
    until_s = float(moves.end_s.max(initial=0.0))
    order = np.argsort(until_s - moves.end_s, kind="stable")
    return Columns(
        chunk=moves.chunk[order],
        link=moves.link[order],
        start_s=until_s - moves.end_s[order],
        end_s=until_s - moves.start_s[order],
        place=moves.place[order],
    )


def to_schedule(problem: Chunked, parts: Sequence[tuple[Columns, bool]]) -> Schedule:
    """Columns one after the other as a schedule of the problem; the flag says whether they add up what they move."""
    begin_s, pieces = 0.0, []
    for moves, reduces in parts:
        order = np.lexsort((moves.place, moves.link, moves.start_s))
        columns = [moves.chunk, moves.link, moves.start_s + begin_s, moves.end_s + begin_s, moves.place]
        pieces.append([*(column[order] for column in columns), np.full(len(order), reduces)])
        begin_s += float(moves.end_s.max(initial=0.0))
    chunk, link, start_s, end_s, place, adds = (np.concatenate(column) for column in zip(*pieces, strict=True))
    first = np.flatnonzero(place == 0)
    count = len(first)
    return Schedule(
        graph=problem.graph,
        topology=problem.logical.topology,
        kind=np.full(count, int(EventKind.TRANSFER)),
        start_s=start_s[first],
        end_s=end_s[first],
        place=link[first],
        op=np.full(count, -1),
        implementation=np.full(count, -1),
        reduces=adds[first],
        moves=Ragged(np.append(first, len(chunk)).astype(np.int64), chunk),
        freed_tensor=Ragged.empty(count),
        freed_device=Ragged.empty(count),
        name=f"{problem.collective.name} on {problem.topology.name}",
    )
