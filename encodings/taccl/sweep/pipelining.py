"""Pipelining: a plan whose chunks are cut into pieces that follow each other along the same paths.

A rank sends the first piece on while it receives the second. It costs an alpha for each piece; for large buffers that
is little beside what it saves at the end of long paths. Instances don't do the same: they travel side by side.
"""

from __future__ import annotations

import numpy as np

from gapless.collective import divided
from gapless.encodings.taccl.ordering.sends import Transfer, sends_in_turn, to_schedule
from gapless.encodings.taccl.sweep.candidates import Candidate

__all__ = ["pipelined"]


def pipelined(candidate: Candidate, pieces: int) -> Candidate:
    """The candidate with each transfer as `pieces` transfers in a row, each of one piece of all that it moves."""
    old = candidate.schedule
    collective, chunk_bytes = divided(candidate.collective, pieces), -(-int(old.graph.size_bytes[0]) // pieces)
    transfers = [
        Transfer(int(old.place[event]), tuple((old.moves[event] * pieces + piece).tolist()), bool(old.reduces[event]))
        for event in np.argsort(old.start_s, kind="stable").tolist()
        for piece in range(pieces)
    ]
    schedule = to_schedule(old.topology, collective, chunk_bytes, *sends_in_turn(transfers), old.name, retimed=False)
    title = f"{candidate.name} in {pieces} pieces"
    return Candidate(title, collective, schedule, candidate.is_baseline, candidate.sketch)
