"""Resizing: a plan for equal shares becomes one for unlike shares, in the same order, each send as early as it can be.

A share is cut into as many pieces as it had chunks. What has no bytes is left out, and so is a message of nothing else.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.encodings.taccl.unequal.problem import Unequal, UnequalInChunks
from gapless.ir.amounts import pieces_of
from gapless.ir.schedule import Ragged, Schedule
from gapless.ir.simulate import retime

__all__ = ["resized"]


def resized(problem: Unequal, schedule: Schedule, shares: list[list[int]]) -> tuple[UnequalInChunks, Schedule]:
    """The plan for a question whose shares are cut into the chunks of another plan, and the question so cut.

    `shares`: for each share, in the order of `Amounts.rows`, the chunks that it had there.
    """
    sizes = [size for row in problem.amounts.rows for size in row]
    pieces = [pieces_of(size, len(chunks)) if chunks else [] for size, chunks in zip(sizes, shares, strict=True)]
    collective = problem.amounts.cut(pieces)
    number = np.full(schedule.graph.tensor_count, -1, dtype=np.int64)
    numbered = [chunk for chunks, kept in zip(shares, pieces, strict=True) for chunk in chunks[: len(kept)]]
    number[numbered] = np.arange(len(numbered))
    chunk = number[schedule.moves.values]
    is_kept = chunk >= 0
    lengths = np.bincount(schedule.moves.owner[is_kept], minlength=len(schedule))
    events = np.flatnonzero(lengths)
    count = len(events)
    made = replace(
        schedule,
        graph=collective.graph(0),
        kind=schedule.kind[events],
        start_s=schedule.start_s[events],
        end_s=schedule.end_s[events],
        place=schedule.place[events],
        op=schedule.op[events],
        implementation=schedule.implementation[events],
        reduces=schedule.reduces[events],
        moves=Ragged(np.append(0, np.cumsum(lengths[events])), chunk[is_kept]),
        freed_tensor=Ragged.empty(count),
        freed_device=Ragged.empty(count),
        name=f"{collective.name} on {schedule.topology.name}",
    )
    return UnequalInChunks(problem, collective), retime(made)
