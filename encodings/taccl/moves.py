"""Moves: the routings of all phases as one list of sends in the order in which time runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.milp.tree_routing import Routing

__all__ = ["Moves", "moves_of"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Moves:
    """One send a row; a row stands behind those that it needs.

    `chunk`, `link`: int64, links as the logical topology numbers them. `needs[k]`: the sends that must be over before
    send k starts. `phase[k]`: int64. `reduces[k]`: bool, whether send k carries a part of a sum; where its target holds
    no part from the start (`fills[k]`) the first to arrive is a copy, and the others are added to it.
    """

    chunk: Ids
    link: Ids
    needs: tuple[tuple[int, ...], ...]
    phase: Ids
    reduces: NDArray[np.bool_]
    fills: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.chunk)


def moves_of(problem: Chunked, routings: Sequence[Routing]) -> Moves:
    """The moves of a problem from the trees of its phases.

    A backward phase runs its trees from the leaves to the root: a rank sends a sum on once all parts are in. The next
    phase spreads a sum once it is complete at its home.
    """
    chunk, link, needs, phase = [], [], [], []
    complete: dict[int, tuple[int, ...]] = {}
    base = 0
    for number, (part, routing) in enumerate(zip(problem.phases, routings, strict=True)):
        count = len(routing)
        if part.backwards:
            needs += _inverted_needs(routing)
            chunk.append(routing.chunk[::-1])
            link.append(routing.link[::-1])
            roots = count - 1 - np.flatnonzero(routing.parent < 0)
            for k, its_chunk in zip(roots.tolist(), routing.chunk[::-1][roots].tolist(), strict=True):
                complete[its_chunk] = (*complete.get(its_chunk, ()), k)
        else:
            needs += [
                (base + parent,) if parent >= 0 else complete.get(its_chunk, ())
                for parent, its_chunk in zip(routing.parent.tolist(), routing.chunk.tolist(), strict=True)
            ]
            chunk.append(routing.chunk)
            link.append(routing.link)
        phase.append(np.full(count, number))
        base += count
    chunks, links, phases = np.concatenate(chunk), np.concatenate(link), np.concatenate(phase)
    reduces = np.array([part.backwards for part in problem.phases], dtype=np.bool_)[phases]
    target = problem.logical.topology.link_target[links]
    return Moves(chunks, links, tuple(needs), phases, reduces, reduces & ~_holds_part(problem)[chunks, target])


def _inverted_needs(routing: Routing) -> list[tuple[int, ...]]:
    """Row k of the inverse is row count - 1 - k of the routing; it needs the inverses of that row's children."""
    children: list[list[int]] = [[] for _ in range(len(routing))]
    for k, parent in enumerate(routing.parent.tolist()):
        if parent >= 0:
            children[parent].append(len(routing) - 1 - k)
    return [tuple(sorted(its)) for its in reversed(children)]


def _holds_part(problem: Chunked) -> NDArray[np.bool_]:
    """`holds[c, r]`: whether rank r holds (a part of) chunk c at the start."""
    holds = np.zeros((problem.collective.chunk_count, problem.collective.rank_count), dtype=np.bool_)
    for rank, buffer in enumerate(problem.collective.inputs):
        holds[list(buffer), rank] = True
    return holds
