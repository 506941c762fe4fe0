"""Sends: which chunk goes over which link, the one table that every method fills; and how it becomes a schedule.

A method routes chunks along trees (`Routing`), phase by phase. `sends_of` puts the phases together in the order in
which time runs, list scheduling or a model gives each send its start and its place in a transfer, and `to_schedule`
lowers the whole. Methods that build transfers one by one fill the table by `sends_in_turn`; those that plan on orbits
unfold them to columns, phase by phase, which `lowered` puts together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.quotient import Columns
from gapless.ir.collective import Collective
from gapless.ir.schedule import EventKind, Ragged, Schedule
from gapless.ir.simulate import retime
from gapless.topologies.topology import Topology

__all__ = [
    "Routing", "Sends", "Times", "Transfer", "fills_of", "in_turn", "lowered", "sends_in_turn", "sends_of",
    "to_schedule", "turned_back",
]  # fmt: skip


@dataclass(frozen=True)
class Routing:
    """The tree of each chunk, one send a row, parents before children.

    `chunk`, `link`: int64. `parent[k]`: the send that brings the chunk to where send k starts, -1 at the owner.
    """

    chunk: Ids
    link: Ids
    parent: Ids

    def __len__(self) -> int:
        return len(self.chunk)

    def that_lead_to(self, wanted: Mask) -> Mask:
        """The sends that are `wanted`, bool, shape (rows,), and those on the paths to them."""
        useful, parents = wanted.tolist(), self.parent.tolist()
        for row in range(len(parents) - 1, -1, -1):  # children stand behind their parents
            if useful[row] and parents[row] >= 0:
                useful[parents[row]] = True
        return np.array(useful, dtype=np.bool_)

    def part(self, kept: Mask) -> Routing:
        """Some of the sends, with their parents."""
        number = np.append(np.cumsum(kept) - 1, -1)
        return Routing(self.chunk[kept], self.link[kept], number[self.parent[kept]])


@dataclass(frozen=True)
class Sends:
    """One chunk over one link a row; a row stands behind those that it needs.

    `chunk`, `link`: int64, links as the logical topology numbers them. `needs[k]`: the sends that must be over before
    send k starts; () for all where the order of the starts says it. `phase[k]`: int64. `reduces[k]`: bool, whether send
    k carries a part of a sum; where its target holds no part from the start (`fills[k]`) the first to arrive is a copy,
    and the others are added to it.
    """

    chunk: Ids
    link: Ids
    needs: tuple[tuple[int, ...], ...]
    phase: Ids
    reduces: Mask
    fills: Mask

    def __len__(self) -> int:
        return len(self.chunk)


class Transfer(NamedTuple):
    """Chunks over a link together, in a step of the pipeline of its piece; pieces are independent of each other."""

    link: int
    chunks: tuple[int, ...]
    reduces: bool = False
    step: int = 0
    piece: int = 0


def sends_of(problem: Chunked, routings: Sequence[Routing]) -> Sends:
    """The sends of a problem from the trees of its phases.

    A backward phase runs its trees from the leaves to the root: a rank sends a sum on once all parts are in. The next
    phase spreads a sum once it is complete at its root.
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
            for k in (count - 1 - np.flatnonzero(routing.parent < 0)).tolist():
                summed = int(routing.chunk[count - 1 - k])
                complete[summed] = (*complete.get(summed, ()), k)
        else:
            needs += [
                (base + parent,) if parent >= 0 else complete.get(spread, ())
                for parent, spread in zip(routing.parent.tolist(), routing.chunk.tolist(), strict=True)
            ]
            chunk.append(routing.chunk)
            link.append(routing.link)
        phase.append(np.full(count, number))
        base += count
    chunks, links, phases = np.concatenate(chunk), np.concatenate(link), np.concatenate(phase)
    reduces = np.array([part.backwards for part in problem.phases], dtype=np.bool_)[phases]
    return Sends(chunks, links, tuple(needs), phases, reduces, fills_of(problem, chunks, links, reduces))


def fills_of(problem: Chunked, chunks: Ids, links: Ids, reduces: Mask) -> Mask:
    """`Sends.fills` of sends of parts to ranks that hold none at the start."""
    if not reduces.any():
        return reduces
    target = problem.logical.topology.link_target[links]
    return np.asarray(reduces & ~_holds_part(problem)[chunks, target])


@dataclass(frozen=True)
class Times:
    """When each send starts and ends, float; `place`: int64, 0 for the first of a transfer, 1 for the one that joins
    it, and so on: they share link, start and end.
    """

    start_s: Floats
    end_s: Floats
    place: Ids

    @property
    def makespan_s(self) -> float:
        """The end of the last."""
        return float(self.end_s.max(initial=0.0))


def sends_in_turn(transfers: Sequence[Transfer], problem: Chunked | None = None) -> tuple[Sends, Times]:
    """The sends of transfers, at times that only number these (0, 1, 2, ...).

    `problem`: to be given where a rank without a part of a sum may forward others.
    """
    lengths = [len(transfer.chunks) for transfer in transfers]
    number = np.repeat(np.arange(len(transfers)), lengths)
    first = np.append(0, np.cumsum(lengths))[:-1]
    link = np.array([transfer.link for transfer in transfers], dtype=np.int64)[number]
    reduces = np.array([transfer.reduces for transfer in transfers], dtype=np.bool_)[number]
    chunk = np.array([chunk for transfer in transfers for chunk in transfer.chunks], dtype=np.int64)
    fills = np.zeros_like(reduces) if problem is None else fills_of(problem, chunk, link, reduces)
    sends = Sends(chunk, link, (), np.zeros_like(link), reduces, fills)
    start_s = number.astype(np.float64)
    return sends, Times(start_s, start_s + np.float64(1), np.arange(len(number)) - first[number])


def to_schedule(
    topology: Topology, collective: Collective, chunk_bytes: int, sends: Sends, times: Times, name: str = "",
    retimed: bool = True,
) -> Schedule:  # fmt: skip
    """One transfer for each send, or for each group of sends that share link and start, and are added or copied alike.

    `retimed`: each as early as possible in the order of the times; else at these times, but where the topology has
    congestion: only the whole says how many connections a port has.
    """
    start_s, place = times.start_s, times.place
    reduces = _adds(topology, sends, start_s)
    order = np.lexsort((place, sends.link, start_s))  # groups become runs
    begins = place[order] == 0
    if sends.fills.any():
        order = order[np.lexsort((reduces[order], np.cumsum(begins)))]
        begins |= np.diff(reduces[order], prepend=False)
    first = np.flatnonzero(begins)
    count, head = len(first), order[first]
    schedule = Schedule(
        graph=collective.graph(chunk_bytes),
        topology=topology,
        kind=np.full(count, int(EventKind.TRANSFER)),
        start_s=start_s[head],
        end_s=times.end_s[head],
        place=sends.link[head],
        op=np.full(count, -1),
        implementation=np.full(count, -1),
        reduces=reduces[head],
        moves=Ragged(np.append(first, len(order)).astype(np.int64), sends.chunk[order]),
        freed_tensor=Ragged.empty(count),
        freed_device=Ragged.empty(count),
        name=name or f"{collective.name} on {topology.name}",
    )
    return retime(schedule) if retimed or topology.congestion else schedule


def _adds(topology: Topology, sends: Sends, start_s: Floats) -> Mask:
    """Whether each send adds to what its target holds; the first part that comes to a rank without one is a copy."""
    reduces = sends.reduces.copy()
    target = topology.link_target[sends.link]
    filled: set[tuple[int, int]] = set()
    rows = np.flatnonzero(sends.fills)
    for k in rows[np.argsort(start_s[rows], kind="stable")].tolist():
        cell = (int(sends.chunk[k]), int(target[k]))
        if cell not in filled:
            filled.add(cell)
            reduces[k] = False
    return reduces


def _inverted_needs(routing: Routing) -> list[tuple[int, ...]]:
    """Row k of the inverse is row count - 1 - k of the routing; it needs the inverses of that row's children."""
    children: list[list[int]] = [[] for _ in range(len(routing))]
    for k, parent in enumerate(routing.parent.tolist()):
        if parent >= 0:
            children[parent].append(len(routing) - 1 - k)
    return [tuple(sorted(rows)) for rows in reversed(children)]


def _holds_part(problem: Chunked) -> Mask:
    """`holds[c, r]`: whether rank r holds (a part of) chunk c at the start."""
    holds = np.zeros((problem.collective.chunk_count, problem.collective.rank_count), dtype=np.bool_)
    for rank, buffer in enumerate(problem.collective.inputs):
        holds[list(buffer), rank] = True
    return holds


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
