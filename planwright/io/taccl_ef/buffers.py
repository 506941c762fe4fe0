"""Buffer allocation: from a schedule's chunks to places in the input, output and scratch buffers of each rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planwright.collective import Collective
from planwright.errors import InputError
from planwright.schedule import EventKind, Schedule

__all__ = ["Allocation", "Message", "alias_start", "allocate"]

MAX_RUN = 64
"""Chunks of one message, below the runtimes' 71: each may have arrived in another step, a step needs a nop for each
dependency but one, and all of them must fit the 64 steps of one block."""

Place = tuple[str, int]


@dataclass(frozen=True)
class Message:
    """`count` chunks that lie side by side at both ends, sent together; places are (buffer, chunk index)."""

    source: int
    target: int
    read_at: Place
    write_at: Place
    count: int


@dataclass(frozen=True)
class Allocation:
    """`messages` in the order of the schedule, `copies[r]` within rank r as (from, to, count), `scratch[r]` chunks."""

    messages: list[Message]
    copies: list[list[tuple[Place, Place, int]]]
    scratch: list[int]


def alias_start(rank: int, inputs: int, outputs: int) -> dict[str, int]:
    """Where input and output start in the user's one buffer in place: the smaller is the rank's part of the larger.

    `inputs`, `outputs`: chunks of the two buffers.
    """
    start = {"i": 0, "o": 0}
    if inputs != outputs:
        start["i" if inputs < outputs else "o"] = rank * min(inputs, outputs)
    return start


def allocate(schedule: Schedule, collective: Collective, in_place: bool) -> Allocation:
    """Give every chunk that a rank holds at some time a place, and turn the transfers into messages between places.

    A chunk that a rank sends from or receives into is at its index in the input buffer where the rank has it from the
    start, else in the output buffer where it belongs there, else in scratch, in order of arrival. Chunks of one
    transfer that are neighbours at both ends form one message. What a rank already holds, or gets earlier from
    elsewhere, is not sent again. `in_place` uses only the larger of the user's two buffers.

    Raises `InputError` where an event is no plain transfer, sends what its source doesn't hold, or a chunk never
    arrives.
    """
    places, outputs = _user_places(collective, in_place)
    scratch = [0] * collective.rank_count
    order = _ordered_transfers(schedule)
    arrivals = _first_arrivals(schedule, collective)
    messages: list[Message] = []
    for event in order:
        link = schedule.topology.links[int(schedule.place[event])]
        here, there = places[link.source], places[link.target]
        pairs: list[tuple[Place, Place, int]] = []
        for chunk in schedule.moves[event].tolist():
            if chunk not in here:
                raise InputError(
                    f"schedule: event {event} sends chunk {chunk} from rank {link.source}, which does not hold it then"
                )
            if arrivals.get((chunk, link.target)) != event or chunk in there:
                continue
            place = outputs[link.target].get(chunk, ("s", scratch[link.target]))
            scratch[link.target] += place[0] == "s"
            there[chunk] = place
            pairs.append((here[chunk], place, 1))
        messages += [Message(link.source, link.target, *run) for run in _runs(pairs)]
    for rank, wanted in enumerate(outputs):
        missing = sorted(set(wanted) - set(places[rank]))
        if missing:
            raise InputError(f"schedule: chunk {missing[0]} never reaches rank {rank}, which must have it in the end")
    copies = [
        _runs([(places[rank][chunk], place, 1) for chunk, place in wanted.items() if places[rank][chunk] != place])
        for rank, wanted in enumerate(outputs)
    ]
    return Allocation(messages, copies, scratch)


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


def _ordered_transfers(schedule: Schedule) -> list[int]:
    """Event numbers by start; of equal starts what ends first, then what is listed first."""
    for event, kind in enumerate(schedule.kind.tolist()):
        if kind != EventKind.TRANSFER:
            raise InputError(f"schedule: event {event} must be a transfer, got {EventKind(kind).name.lower()}")
        if schedule.reduces[event]:
            raise InputError(f"schedule: event {event} reduces; only transfers that copy can be lowered")
    order = np.lexsort((np.arange(len(schedule)), schedule.end_s, schedule.start_s))
    return [int(event) for event in order]


def _first_arrivals(schedule: Schedule, collective: Collective) -> dict[tuple[int, int], int]:
    """For each chunk and rank, the event that brings it there first."""
    found: dict[tuple[int, int], int] = {}
    chunk_count = collective.chunk_count
    for event in np.lexsort((np.arange(len(schedule)), schedule.start_s, schedule.end_s)).tolist():
        link = schedule.topology.links[int(schedule.place[event])]
        for chunk in schedule.moves[event].tolist():
            if not 0 <= chunk < chunk_count:
                raise InputError(f"schedule: event {event}: chunks must be in 0..{chunk_count - 1}, got {chunk}")
            found.setdefault((chunk, link.target), event)
        if max(link.source, link.target) >= collective.rank_count:
            raise InputError(f"schedule: event {event}: ranks must be in 0..{collective.rank_count - 1}")
    return found


def _runs(pairs: list[tuple[Place, Place, int]]) -> list[tuple[Place, Place, int]]:
    """Single chunks (from, to, 1) joined where they are neighbours at both ends."""
    runs: list[tuple[Place, Place, int]] = []
    for source, target, _ in sorted(pairs):
        if runs:
            first, other, count = runs[-1]
            follows = (first[0], first[1] + count) == source and (other[0], other[1] + count) == target
            if follows and count < MAX_RUN:
                runs[-1] = (first, other, count + 1)
                continue
        runs.append((source, target, 1))
    return runs
