"""From sends on a network without orbits, phase by phase, to a schedule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.sends import Sends, Times, fills_of, to_schedule
from gapless.encodings.taccl.symmetry.quotient import Columns
from gapless.schedule import Schedule

__all__ = ["in_turn", "lowered", "turned_back"]

_MOST_RETIMED = 200_000
"""Sends up to which each is timed anew, as early as their order allows."""


def turned_back(columns: Columns) -> Columns:
    """The sends backwards in time, each on its link turned round (which has the same number), in order of starts."""
    until_s = float(columns.end_s.max(initial=0.0))
    order = np.argsort(until_s - columns.end_s, kind="stable")
    start_s, end_s = until_s - columns.end_s[order], until_s - columns.start_s[order]
    return Columns(columns.chunk[order], columns.link[order], start_s, end_s, columns.place[order])


def in_turn(found: Sequence[Columns]) -> list[Columns]:
    """The phases, each begun when the one before is over."""
    begin_s = np.cumsum([0.0, *(float(columns.end_s.max(initial=0.0)) for columns in found)]).tolist()
    return [
        Columns(each.chunk, each.link, each.start_s + at_s, each.end_s + at_s, each.place)
        for each, at_s in zip(found, begin_s, strict=False)
    ]


def lowered(problem: Chunked, found: Sequence[Columns], retimed: bool) -> Schedule:
    """The phases at their times; or `retimed`, if there are not too many sends, each send as early as it can be."""
    phase = np.repeat(np.arange(len(found)), [len(columns) for columns in found])
    chunk, link, start_s, end_s, place = (
        np.concatenate([getattr(columns, name) for columns in found])
        for name in ("chunk", "link", "start_s", "end_s", "place")
    )
    reduces = np.array([part.backwards for part in problem.phases], dtype=np.bool_)[phase]
    sends = Sends(chunk, link, (), phase, reduces, fills_of(problem, chunk, link, reduces))
    retimed = bool(sends.fills.any()) or (retimed and len(chunk) <= _MOST_RETIMED)
    network, times = problem.logical.topology, Times(start_s, end_s, place)
    return to_schedule(network, problem.collective, problem.chunk_bytes, sends, times, retimed=retimed)
