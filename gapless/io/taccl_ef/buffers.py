"""Buffer allocation: from a schedule's chunks to places in the input, output and scratch buffers of each rank.

Transfers are gone through in one order, which is that of the steps in every thread block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gapless.errors import InputError
from gapless.ir.collective import Collective
from gapless.ir.schedule import EventKind, Schedule
from gapless.topologies.links import Links

__all__ = [
    "MAX_RUN", "Allocation", "Copy", "Message", "Place", "Transfers", "alias_start", "allocate", "ordered_transfers",
    "transfers_of",
]  # fmt: skip

SAME_INSTANT = 1e-9
"""Of the makespan: starts closer than that are one instant, as the checker has it."""


@dataclass(frozen=True)
class Transfers:
    """By event: the ranks that it goes from and to, its chunks, whether it reduces."""

    source: list[int]
    target: list[int]
    chunks: list[list[int]]
    reduces: list[bool]


def transfers_of(schedule: Schedule) -> Transfers:
    """The events of a schedule as plain lists. Raises `InputError` where one is no transfer."""
    for event, kind in enumerate(schedule.kind.tolist()):
        if kind != EventKind.TRANSFER:
            raise InputError(f"schedule: event {event} must be a transfer, got {EventKind(kind).name.lower()}")
    links = Links.of(schedule.topology.links)
    start, chunks = schedule.moves.start.tolist(), schedule.moves.values.tolist()
    return Transfers(
        source=links.source[schedule.place].tolist(),
        target=links.target[schedule.place].tolist(),
        chunks=[chunks[begin:end] for begin, end in pairwise(start)],
        reduces=schedule.reduces.tolist(),
    )


def ordered_transfers(schedule: Schedule, transfers: Transfers, fuse: bool) -> list[int]:
    """Event numbers by start; of equal starts what ends first, then what is listed first.

    `fuse`: of equal starts, what leaves a rank comes before what arrives there, as far as there is no cycle. In the
    next round the rank then sends on what it received last, and the two steps lie side by side. Transfers that start
    together and take time don't depend on each other, so any order of them will do.
    """
    order = [int(event) for event in np.lexsort((np.arange(len(schedule)), schedule.end_s, schedule.start_s))]
    return _outgoing_first(schedule, transfers, order) if fuse else order


def _outgoing_first(schedule: Schedule, transfers: Transfers, order: list[int]) -> list[int]:
    """The same order with each instant's transfers sorted again."""
    tolerance_s = SAME_INSTANT * float(schedule.end_s.max(initial=0.0))
    start_s, end_s = schedule.start_s.tolist(), schedule.end_s.tolist()
    ordered: list[int] = []
    begin = 0
    for at in range(1, len(order) + 1):
        first_s = start_s[order[begin]]
        if at < len(order) and start_s[order[at]] - first_s <= tolerance_s:
            continue
        group = order[begin:at]
        lasting = all(end_s[event] - first_s > tolerance_s for event in group)
        ordered += _sorted_instant(transfers, group) if lasting and len(group) > 1 else group
        begin = at
    return ordered


def _sorted_instant(transfers: Transfers, group: list[int]) -> list[int]:
    """Depth first from the target of each transfer: all that leaves it comes before."""
    leaving: dict[int, list[int]] = {}
    target = transfers.target
    for event in group:
        leaving.setdefault(transfers.source[event], []).append(event)
    ordered: list[int] = []
    seen: set[int] = set()
    for root in group:
        stack = [(root, False)]
        while stack:
            event, is_done = stack.pop()
            if is_done:
                ordered.append(event)
            elif event not in seen:
                seen.add(event)
                stack.append((event, True))
                stack += [(other, False) for other in reversed(leaving.get(target[event], [])) if other not in seen]
    return ordered


MAX_RUN = 64
"""Chunks of one message, below the runtimes' 71: each may have arrived in another step, a step needs a nop for each
dependency but one, and all of them must fit the 64 steps of one block."""

Place = tuple[str, int]
Copy = tuple[Place, Place, int]
"""Within one rank: (from, to, count)."""


@dataclass(frozen=True, slots=True)
class Message:
    """`count` chunks that lie side by side at both ends, sent together; places are (buffer, chunk index).

    `adds_to`: the place at the target of what the chunks are added to, None where they only arrive. The sum is written
    at `write_at`, which may be another place.
    """

    source: int
    target: int
    read_at: Place
    write_at: Place
    count: int
    adds_to: Place | None = None


@dataclass(frozen=True)
class Allocation:
    """`messages` in the order of the schedule, `copies[r]` within rank r after them, `scratch[r]` chunks.

    `outputs[r]`: the places where rank r's results lie in the end. `alias[r]`: by buffer, the buffer and the shift that
    its places have in memory, where the program also serves calls in place. `overwrites`: whether a place is written
    that held something before.
    """

    messages: list[Message]
    copies: list[list[Copy]]
    scratch: list[int]
    outputs: list[list[Place]]
    alias: list[dict[str, tuple[str, int]]]
    overwrites: bool


def alias_start(rank: int, inputs: int, outputs: int) -> dict[str, int]:
    """Where input and output start in the user's one buffer in place: the smaller is the rank's part of the larger.

    `inputs`, `outputs`: chunks of the two buffers.
    """
    start = {"i": 0, "o": 0}
    if inputs != outputs:
        start["i" if inputs < outputs else "o"] = rank * min(inputs, outputs)
    return start


def allocate(
    schedule: Schedule, collective: Collective, placement: str, fuse: bool = False, max_run: int = MAX_RUN
) -> Allocation:
    """Give every chunk that a rank holds at some time a place, and turn the transfers into messages between places.

    A chunk that a rank sends is at its index in the input buffer where the rank has it from the start. What arrives, or
    is summed, is in the output buffer where it belongs there, else in scratch: no other part of the user's memory is
    ever written, in place neither. In place an output that would overwrite what is still needed waits in scratch too.
    Chunks of one transfer that are neighbours at both ends form one message of at most `max_run`. What a rank already
    holds, or (without reductions) gets earlier from elsewhere, is not sent again. `placement`: `in-place` uses only the
    larger of the user's two buffers. `fuse` asks for an order in which more steps can be fused.

    Raises `InputError` where an event is no transfer, sends what its source doesn't hold, adds a contribution twice, or
    a chunk never arrives.
    """
    transfers = transfers_of(schedule)
    order = ordered_transfers(schedule, transfers, fuse)
    state = _State(transfers, collective, placement, order, _first_arrivals(schedule, transfers, collective))
    messages: list[Message] = []
    for position, event in enumerate(order):
        source, target = transfers.source[event], transfers.target[event]
        moved = state.moves(position, event, source, target)
        messages += [Message(source, target, *run) for run in _runs(moved, max_run)]
    for rank, wanted in enumerate(state.wanted):
        missing = sorted(set(wanted) - set(state.held[rank]))
        if missing:
            raise InputError(f"schedule: chunk {missing[0]} never reaches rank {rank}, which must have it in the end")
    copies = [state.copies(rank, max_run) for rank in range(collective.rank_count)]
    outputs = [list(wanted.values()) for wanted in state.wanted]
    return Allocation(messages, copies, state.scratch, outputs, state.alias, state.overwrites)


class _State:
    """Where every chunk of every rank is while the transfers are gone through in order."""

    def __init__(
        self,
        transfers: Transfers,
        collective: Collective,
        placement: str,
        order: list[int],
        arrivals: dict[tuple[int, int], int],
    ) -> None:
        self.transfers, self.collective, self.arrivals = transfers, collective, arrivals
        self.held, self.wanted = _user_places(collective, placement == "in-place")
        ranks = range(collective.rank_count)
        self.alias = [_alias(collective, rank) if placement == "both" else {} for rank in ranks]
        self.is_aliased = placement != "out-of-place"
        self.scratch = [0] * collective.rank_count
        self.overwrites = False
        self.used = [{self.cell(rank, place): chunk for chunk, place in self.held[rank].items()} for rank in ranks]
        self.last_use = self._last_uses(order)
        self.sets = [dict.fromkeys(held, 1 << rank) for rank, held in enumerate(self.held)]

    def cell(self, rank: int, place: Place) -> Place:
        """Where a place is in memory."""
        if not self.alias[rank]:
            return place
        buffer, shift = self.alias[rank].get(place[0], (place[0], 0))
        return buffer, place[1] + shift

    def _last_uses(self, order: list[int]) -> dict[tuple[int, int], int]:
        """By (rank, chunk), the last position in the order that reads the rank's copy, or adds to it."""
        found: dict[tuple[int, int], int] = {}
        if not self.is_aliased:
            return found
        for position, event in enumerate(order):
            source, reduces = self.transfers.source[event], self.transfers.reduces[event]
            for chunk in self.transfers.chunks[event]:
                found[source, chunk] = position
                if reduces:
                    found[self.transfers.target[event], chunk] = position
        return found

    def moves(self, position: int, event: int, source: int, target: int) -> list[_Moved]:
        """What an event brings: (from, to, 1, added to) for each chunk that is not there yet."""
        moved: list[_Moved] = []
        reduces = self.transfers.reduces[event]
        if reduces and not self.collective.reduces:
            raise InputError(f"schedule: event {event} reduces, {self.collective.name} has nothing to reduce")
        for chunk in self.transfers.chunks[event]:
            if chunk not in self.held[source]:
                raise InputError(
                    f"schedule: event {event} sends chunk {chunk} from rank {source}, which does not hold it then"
                )
            read_at, there = self.held[source][chunk], self.held[target].get(chunk)
            if self.collective.reduces:
                sent, mine = self.sets[source][chunk], self.sets[target].get(chunk, 0)
                if reduces and sent & mine:
                    raise InputError(f"schedule: event {event} adds to chunk {chunk} of rank {target} what it has")
                if not reduces and sent == mine:
                    continue
                self.sets[target][chunk] = sent | mine if reduces else sent
            elif there is not None or self.arrivals.get((chunk, target)) != event:
                continue
            write_at = self.place(position, target, chunk)
            moved.append((read_at, write_at, 1, there if reduces else None))
        return moved

    def place(self, position: int, rank: int, chunk: int) -> Place:
        """Where what arrives is put, or a sum is written; the rank's place of the chunk from now on."""
        here, wanted = self.held[rank].get(chunk), self.wanted[rank].get(chunk)
        if here is None or (here[0] != "s" and here != wanted):
            here = wanted if wanted is not None and self.is_free(position, rank, chunk, wanted) else None
        if here is None:
            here = ("s", self.scratch[rank])
            self.scratch[rank] += 1
        cell = self.cell(rank, here)
        other = self.used[rank].get(cell)
        self.overwrites |= other is not None
        if other is not None and other != chunk:
            self.held[rank].pop(other, None)
            self.sets[rank].pop(other, None)
        self.used[rank][cell] = chunk
        self.held[rank][chunk] = here
        return here

    def is_free(self, position: int, rank: int, chunk: int, place: Place) -> bool:
        """Whether a place holds no other chunk that is needed from here on."""
        other = self.used[rank].get(self.cell(rank, place), chunk)
        return other == chunk or (self.last_use.get((rank, other), -1) < position and other not in self.wanted[rank])

    def copies(self, rank: int, max_run: int) -> list[Copy]:
        """Moves of what is not yet where it belongs; in place, through scratch if it could overwrite another output."""
        first: list[_Moved] = []
        second: list[_Moved] = []
        for chunk, place in self.wanted[rank].items():
            here = self.held[rank][chunk]
            if self.is_aliased and here[0] != "s" and self.cell(rank, here) != self.cell(rank, place):
                between = ("s", self.scratch[rank])
                self.scratch[rank] += 1
                first.append((here, between, 1, None))
                here = between
            if here != place:
                self.overwrites |= self.is_aliased and self.cell(rank, here) != self.cell(rank, place)
                second.append((here, place, 1, None))
        return [run[:3] for part in (first, second) for run in _runs(part, max_run)]


def _alias(collective: Collective, rank: int) -> dict[str, tuple[str, int]]:
    start = alias_start(rank, len(collective.inputs[rank]), len(collective.outputs[rank]))
    return {buffer: ("user", shift) for buffer, shift in start.items()}


def _user_places(collective: Collective, in_place: bool) -> tuple[list[dict[int, Place]], list[dict[int, Place]]]:
    """By rank, the places of the input chunks and those of the output chunks."""
    held: list[dict[int, Place]] = []
    wanted: list[dict[int, Place]] = []
    for rank, (inputs, outputs) in enumerate(zip(collective.inputs, collective.outputs, strict=True)):
        buffer, start = {"i": "i", "o": "o"}, {"i": 0, "o": 0}
        if in_place:
            larger = "o" if len(outputs) > len(inputs) else "i"
            buffer, start = {"i": larger, "o": larger}, alias_start(rank, len(inputs), len(outputs))
        held.append({chunk: (buffer["i"], start["i"] + index) for index, chunk in enumerate(inputs)})
        wanted.append({chunk: (buffer["o"], start["o"] + index) for index, chunk in enumerate(outputs)})
    return held, wanted


def _first_arrivals(schedule: Schedule, transfers: Transfers, collective: Collective) -> dict[tuple[int, int], int]:
    """For each chunk and rank, the event that brings it there first."""
    found: dict[tuple[int, int], int] = {}
    chunk_count = collective.chunk_count
    for event in np.lexsort((np.arange(len(schedule)), schedule.start_s, schedule.end_s)).tolist():
        source, target = transfers.source[event], transfers.target[event]
        for chunk in transfers.chunks[event]:
            if not 0 <= chunk < chunk_count:
                raise InputError(f"schedule: event {event}: chunks must be in 0..{chunk_count - 1}, got {chunk}")
            found.setdefault((chunk, target), event)
        if max(source, target) >= collective.rank_count:
            raise InputError(f"schedule: event {event}: ranks must be in 0..{collective.rank_count - 1}")
    return found


_Moved = tuple[Place, Place, int, "Place | None"]
"""(from, to, count, added to)."""


def _runs(moved: list[_Moved], max_run: int) -> Iterator[tuple[Place, Place, int, Place | None]]:
    """Single chunks joined where they are neighbours at both ends, and in what they are added to."""
    if len(moved) == 1:
        yield moved[0]
        return
    group: list[_Moved] = []
    for each in sorted(moved, key=lambda part: part[:3]):
        if group and (len(group) == max_run or not _is_next(group[-1], each)):
            yield (*group[0][:2], len(group), group[0][3])
            group = []
        group.append(each)
    if group:
        yield (*group[0][:2], len(group), group[0][3])


def _is_next(one: _Moved, other: _Moved) -> bool:
    places = [(one[0], other[0]), (one[1], other[1])]
    if one[3] is not None and other[3] is not None:
        places.append((one[3], other[3]))
    elif one[3] != other[3]:
        return False
    return all(after == (before[0], before[1] + 1) for before, after in places)
