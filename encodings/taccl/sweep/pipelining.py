"""Pipelining: a plan whose chunks are cut into pieces that follow each other along the same paths.

A rank sends the first piece on while it receives the second. It costs an alpha for each piece; for large buffers that
is little beside what it saves at the end of long paths. Instances don't do the same: they travel side by side.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.encodings.taccl.baselines.cut import refined
from gapless.encodings.taccl.sweep.candidates import Candidate
from gapless.schedule import Ragged

__all__ = ["pipelined"]


def pipelined(candidate: Candidate, pieces: int) -> Candidate:
    """The candidate with each transfer as `pieces` transfers in a row, each of one piece of all that it moves."""
    old = candidate.schedule
    collective = refined(candidate.collective, pieces)
    order = np.argsort(old.start_s, kind="stable")
    event = np.repeat(order, pieces)
    piece = np.tile(np.arange(pieces), len(order))
    lists = old.moves.take(event)
    moves = Ragged(lists.start, lists.values * pieces + np.repeat(piece, lists.lengths))
    count = len(event)
    chunk_bytes = -(-int(old.graph.size_bytes[0]) // pieces)
    schedule = replace(
        old,
        graph=collective.graph(chunk_bytes),
        kind=old.kind[event],
        start_s=np.arange(count, dtype=np.float64),
        end_s=np.arange(1, count + 1, dtype=np.float64),
        place=old.place[event],
        op=old.op[event],
        implementation=old.implementation[event],
        reduces=old.reduces[event],
        moves=moves,
        freed_tensor=Ragged.empty(count),
        freed_device=Ragged.empty(count),
    )
    return Candidate(f"{candidate.name} in {pieces} pieces", collective, schedule, candidate.is_baseline)
