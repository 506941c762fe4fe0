"""Thread block and channel allocation: which block and channel of each rank carries which message."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from planwright.errors import InputError
from planwright.io.taccl_ef.buffers import Allocation
from planwright.io.taccl_ef.program import MAX_CHANNELS, MAX_PEERS_PER_CHANNEL

__all__ = ["MERGE_ABOVE", "Plan", "Shape", "Side", "plan_blocks"]

MERGE_ABOVE = 80
"""Blocks that surely run at the same time: the multiprocessors of a V100, the smallest GPU of the machines we model."""


class Side(NamedTuple):
    """One end of a lane: `lane` numbers the blocks that share the messages from one rank to another."""

    rank: int
    is_send: bool
    peer: int
    lane: int


@dataclass(frozen=True)
class Shape:
    """A thread block of one instance: its peers (-1 for none), and its channel among those of the instance."""

    send: int
    recv: int
    slot: int


@dataclass(frozen=True)
class Plan:
    """`lanes[m]`: the lane of message m; `shapes[r]`: the blocks of rank r in every instance; `block_of[side]`: the
    number of a side's block among them; `slots`: channels of one instance; `step_limit`: steps of a block."""

    lanes: list[int]
    shapes: list[list[Shape]]
    block_of: dict[Side, int]
    slots: int
    step_limit: int


def plan_blocks(
    allocation: Allocation,
    needs: list[list[list[tuple[int, int]]]],
    instances: int,
    merge: bool | None,
    merge_above: int,
    step_limit: int,
) -> Plan:
    """One block for each direction to each peer, more where its steps exceed the limit, merged if asked or needed.

    `needs[m][k]`: what message m waits for in instance k; a send takes a step for each of them, at least one.
    Raises `InputError` where the channels don't suffice.
    """
    weights = [max(1, *(len(parts) for parts in by_instance)) for by_instance in needs]
    lanes, loads = _lanes(allocation, weights, step_limit)
    slot_of = _slots(loads)
    slots = 1 + max(slot_of.values(), default=0)
    if slots * instances > MAX_CHANNELS:
        needed = f"{slots * instances} ({slots} for each of {instances} instances)"
        raise InputError(f"taccl-ef: there are {MAX_CHANNELS} channels, needed are {needed}; use fewer instances")
    if merge is None:
        blocks = Counter(side.rank for side in loads)
        merge = any(instances * (count + bool(allocation.copies[rank])) > merge_above for rank, count in blocks.items())
    shapes: list[list[Shape]] = [[] for _ in allocation.scratch]
    block_of: dict[Side, int] = {}
    for rank, blocks_here in enumerate(shapes):
        mine = [side for side in loads if side.rank == rank]
        partner = _pairs(mine, loads, slot_of, step_limit) if merge else {}
        for side in mine:
            if side in block_of:
                continue
            other = partner.get(side)
            block_of.update({each: len(blocks_here) for each in (side, other) if each is not None})
            peers = {each.is_send: each.peer for each in (side, other) if each is not None}
            blocks_here.append(Shape(peers.get(True, -1), peers.get(False, -1), slot_of[side]))
    return Plan(lanes, shapes, block_of, slots, step_limit)


def _lanes(allocation: Allocation, weights: list[int], step_limit: int) -> tuple[list[int], dict[Side, int]]:
    """The lane of each message, and the steps on each side of each lane, sorted by side.

    A link's messages are dealt in turn to as few lanes as keep the limit, so that their order is kept roughly.
    """
    by_link: dict[tuple[int, int], list[int]] = {}
    for number, message in enumerate(allocation.messages):
        by_link.setdefault((message.source, message.target), []).append(number)
    lanes = [0] * len(allocation.messages)
    loads: dict[Side, int] = {}
    for (source, target), numbers in by_link.items():
        count = 0
        steps = [step_limit + 1]
        while max(steps) > step_limit:
            count += 1
            steps = [sum(weights[number] for number in numbers[lane::count]) for lane in range(count)]
        for lane in range(count):
            loads[Side(source, True, target, lane)] = steps[lane]
            loads[Side(target, False, source, lane)] = len(numbers[lane::count])
            for number in numbers[lane::count]:
                lanes[number] = lane
    return lanes, dict(sorted(loads.items()))


def _slots(loads: dict[Side, int]) -> dict[Side, int]:
    """The channel of each lane within an instance.

    The lanes of one link are on different channels, and no channel of a rank has more senders or receivers than it may.
    """
    sends: Counter[tuple[int, int]] = Counter()
    receives: Counter[tuple[int, int]] = Counter()
    slot_of: dict[Side, int] = {}
    busiest = max(Counter((side.rank, side.is_send) for side in loads).values(), default=1)
    needed = -(-busiest // MAX_PEERS_PER_CHANNEL)
    for side in loads:
        if not side.is_send:
            continue
        # Links start on different channels, or filling one after the other would take more of them than needed.
        start = (side.rank + side.peer) % needed
        slot = slot_of[side._replace(lane=side.lane - 1)] + 1 if side.lane else start
        while MAX_PEERS_PER_CHANNEL in (sends[side.rank, slot], receives[side.peer, slot]):
            slot += 1
        slot_of[side] = slot_of[Side(side.peer, False, side.rank, side.lane)] = slot
        sends[side.rank, slot] += 1
        receives[side.peer, slot] += 1
    return slot_of


def _pairs(sides: list[Side], loads: dict[Side, int], slot_of: dict[Side, int], step_limit: int) -> dict[Side, Side]:
    """Receiving and sending sides of one rank that can share a block, each in at most one pair; same peers first."""
    sends = [side for side in sides if side.is_send]
    receives = [side for side in sides if not side.is_send]
    partner: dict[Side, Side] = {}
    for same_peer in (True, False):
        for receive in receives:
            for send in sends:
                fits = slot_of[send] == slot_of[receive] and loads[send] + loads[receive] <= step_limit
                free = send not in partner and receive not in partner
                if free and fits and (send.peer == receive.peer or not same_peer):
                    partner[send], partner[receive] = receive, send
    return partner
