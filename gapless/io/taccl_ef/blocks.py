"""Block and channel allocation: what each message must wait for, and which block and channel of a rank carry it.

A step waits for those that wrote what it reads, or use what it overwrites.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from gapless.errors import InputError
from gapless.io.taccl_ef.buffers import Allocation, Copy, Message, Place
from gapless.io.taccl_ef.memory import AccessLog
from gapless.io.taccl_ef.program import MAX_CHANNELS, MAX_PEERS_PER_CHANNEL

__all__ = [
    "COPY", "MERGE_ABOVE", "RECEIVE", "SEND", "Access", "LimitError", "Needs", "Plan", "Shape", "Side", "find_needs",
    "plan_blocks",
]  # fmt: skip

SEND, RECEIVE, COPY = range(3)


class Access(NamedTuple):
    """One side of a message, or a copy, of one instance: `number` counts messages, or copies of a rank."""

    kind: int
    rank: int
    number: int
    instance: int


@dataclass
class Needs:
    """By number and instance, what sends, receives and (by rank) copies wait for, each list sorted.

    `uses[m, k]`: the steps that read what instance k of message m left at its target, in order, before anything else is
    written there. `kept`: the (message, instance) whose result, or part of it, is there in the end as an output,
    where there are sums.
    """

    send: list[list[list[Access]]] = field(default_factory=list)
    receive: list[list[list[Access]]] = field(default_factory=list)
    copy: list[list[list[list[Access]]]] = field(default_factory=list)
    uses: dict[tuple[int, int], list[Access]] = field(default_factory=dict)
    kept: set[tuple[int, int]] = field(default_factory=set)


def find_needs(allocation: Allocation, instances: int) -> Needs:
    """Walk through messages and copies in order and keep who wrote and who read each chunk's parts last."""
    walk = _Walk(allocation, instances)
    for number, message in enumerate(allocation.messages):
        walk.message(number, message)
    for rank, copies in enumerate(allocation.copies):
        walk.needs.copy.append([walk.copy(rank, number, copy) for number, copy in enumerate(copies)])
    if any(message.adds_to is not None for message in allocation.messages):
        walk.keep()
    return walk.needs


class _Walk:
    def __init__(self, allocation: Allocation, instances: int) -> None:
        self.allocation, self.instances = allocation, instances
        self.needs = Needs()
        self.log = AccessLog[Access]()

    def cells(self, rank: int, place: Place, count: int, instance: int) -> list[tuple[int, str, int]]:
        """The parts of a run that an instance has, where they are in memory."""
        buffer, shift = self.allocation.alias[rank].get(place[0], (place[0], 0))
        start = (place[1] + shift) * self.instances + instance * count
        return [(rank, buffer, cell) for cell in range(start, start + count)]

    def message(self, number: int, message: Message) -> None:
        sends, receives = [], []
        for instance in range(self.instances):
            here = Access(SEND, message.source, number, instance)
            sends.append(sorted(set(self.read(here, message.read_at, message.count))))
        for instance in range(self.instances):
            here = Access(RECEIVE, message.target, number, instance)
            found = set()
            if message.adds_to is not None:
                found.update(self.read(here, message.adds_to, message.count))
            found.update(self.write(here, message.write_at, message.count))
            receives.append(sorted(found))
        self.needs.send.append(sends)
        self.needs.receive.append(receives)

    def copy(self, rank: int, number: int, copy: Copy) -> list[list[Access]]:
        source, target, count = copy
        found = []
        for instance in range(self.instances):
            here = Access(COPY, rank, number, instance)
            needed = set(self.read(here, source, count))
            # In place a copy from input to output stores what is there already, and that is no write.
            cells = (self.cells(rank, place, count, instance)[0] for place in (source, target))
            if len(set(cells)) == 2:
                needed.update(self.write(here, target, count))
            found.append(sorted(needed))
        return found

    def read(self, here: Access, place: Place, count: int) -> list[Access]:
        found = []
        for cell in self.cells(here.rank, place, count, here.instance):
            for writer in self.log.access(cell, here, is_write=False):
                found.append(writer)
                if writer.kind == RECEIVE:
                    uses = self.needs.uses.setdefault((writer.number, writer.instance), [])
                    if here not in uses[-1:]:
                        uses.append(here)
        return found

    def write(self, here: Access, place: Place, count: int) -> list[Access]:
        cells = self.cells(here.rank, place, count, here.instance)
        return [other for cell in cells for other in self.log.access(cell, here, is_write=True) if other != here]

    def keep(self) -> None:
        """Note whose results are outputs."""
        wanted = {
            cell
            for rank, places in enumerate(self.allocation.outputs)
            for place in places
            for cell in self.cells(rank, place, self.instances, 0)
        }
        for cell, writer in self.log.writes.items():
            if cell in wanted and writer.kind == RECEIVE:
                self.needs.kept.add((writer.number, writer.instance))


MERGE_ABOVE = 80
"""Blocks that surely run at the same time: the multiprocessors of a V100, the smallest GPU of the machines we model."""


class LimitError(InputError):
    """A limit of the runtime is exceeded, which fewer instances may keep."""


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
    number of a side's block among them; `slots`: channels of one instance; `step_limit`: steps of a block;
    `sends_on[m]`: the message whose receive the send of message m may be fused with."""

    lanes: list[int]
    shapes: list[list[Shape]]
    block_of: dict[Side, int]
    slots: int
    step_limit: int
    sends_on: dict[int, int]


def plan_blocks(
    allocation: Allocation,
    needs: Needs,
    instances: int,
    merge: bool | None,
    fuse: bool,
    merge_above: int,
    step_limit: int,
) -> Plan:
    """One block for each direction to each peer, more where its steps exceed the limit, merged if asked or needed.

    A step takes a nop for each dependency but one. With `fuse`, a receiving and a sending block are merged where at
    least half of the steps of either become one step. Raises `LimitError` where the channels don't suffice.
    """
    sends_on = _chains(allocation, needs, instances) if fuse and merge is not False else {}
    lanes, loads, numbers = _lanes(allocation, needs, sends_on, step_limit)
    slot_of = _slots(loads)
    slots = 1 + max(slot_of.values(), default=0)
    if slots * instances > MAX_CHANNELS and sends_on:
        # Fusing took a lane more than there is room for.
        return plan_blocks(allocation, needs, instances, merge, False, merge_above, step_limit)
    if slots * instances > MAX_CHANNELS:
        needed = f"{slots * instances} ({slots} for each of {instances} instances)"
        raise LimitError(f"taccl-ef: there are {MAX_CHANNELS} channels, needed are {needed}; use fewer instances")
    partner = _fusing_pairs(allocation, lanes, numbers, sends_on, slot_of, loads, step_limit)
    if merge is None:
        blocks = Counter(side.rank for side in loads)
        blocks.subtract(Counter(side.rank for side in partner if side.is_send))
        merge = any(instances * (count + bool(allocation.copies[rank])) > merge_above for rank, count in blocks.items())
    shapes: list[list[Shape]] = [[] for _ in allocation.scratch]
    block_of: dict[Side, int] = {}
    sides_of: dict[int, list[Side]] = {}
    for side in loads:
        sides_of.setdefault(side.rank, []).append(side)
    for rank, mine in sides_of.items():
        if merge:
            partner.update(_pairs([side for side in mine if side not in partner], loads, slot_of, step_limit))
        for side in mine:
            if side in block_of:
                continue
            other = partner.get(side)
            block_of.update({each: len(shapes[rank]) for each in (side, other) if each is not None})
            peers = {each.is_send: each.peer for each in (side, other) if each is not None}
            shapes[rank].append(Shape(peers.get(True, -1), peers.get(False, -1), slot_of[side]))
    return Plan(lanes, shapes, block_of, slots, step_limit, sends_on)


def _lanes(
    allocation: Allocation, needs: Needs, sends_on: dict[int, int], step_limit: int
) -> tuple[list[int], dict[Side, int], dict[Side, list[int]]]:
    """The lane of each message, and by side, sorted, the steps and the messages on each side of each lane."""
    by_link: dict[tuple[int, int], list[int]] = {}
    for number, message in enumerate(allocation.messages):
        by_link.setdefault((message.source, message.target), []).append(number)
    sending, receiving = ([_weight(found) for found in side] for side in (needs.send, needs.receive))
    chain = _chain_numbers(len(allocation.messages), sends_on)
    lengths = Counter(chain)
    may_chain = [lengths[each] > 1 for each in chain]
    lanes = [0] * len(allocation.messages)
    loads: dict[Side, int] = {}
    dealt: dict[Side, list[int]] = {}
    for (source, target), numbers in by_link.items():
        _check_weights(source, target, max(max(sending[n], receiving[n]) for n in numbers), step_limit)
        may_fuse = 2 * sum(may_chain[number] for number in numbers) >= len(numbers)
        hands = _deal(numbers, chain, may_fuse, sending, receiving, step_limit)
        for lane, mine in enumerate(hands):
            ends = (Side(source, True, target, lane), Side(target, False, source, lane))
            for side, weights in zip(ends, (sending, receiving), strict=True):
                loads[side] = sum(weights[number] for number in mine)
                dealt[side] = mine
            for number in mine:
                lanes[number] = lane
    return lanes, dict(sorted(loads.items())), dealt


def _chain_numbers(count: int, sends_on: dict[int, int]) -> list[int]:
    """By message, the number of the chain of messages that send the same on."""
    chain: list[int] = []
    heads = 0
    for number in range(count):
        chain.append(chain[sends_on[number]] if number in sends_on else heads)
        heads += number not in sends_on
    return chain


def _deal(
    numbers: list[int], chain: list[int], may_fuse: bool, sending: list[int], receiving: list[int], step_limit: int
) -> list[list[int]]:
    """A link's messages dealt to as few lanes as keep the limit, each in order.

    Where most may fuse, those of a chain go to one lane, the same everywhere where links have as many, since only what
    shares a channel can be fused. Else, or where chains don't spread evenly, messages are dealt in turn, so that their
    order is kept roughly.
    """

    most = step_limit - step_limit // 8
    if max(sum(sending[n] for n in numbers), sum(receiving[n] for n in numbers)) <= most:
        return [numbers]

    def fits(hands: list[list[int]], limit: int) -> bool:
        loads = [sum(weights[n] for n in hand) for hand in hands for weights in (sending, receiving)]
        return all(hands) and max(loads) <= limit

    fewest = next(
        count for count in range(1, len(numbers) + 1) if fits([numbers[k::count] for k in range(count)], step_limit)
    )
    # A merged block also holds the steps that stay apart, so one more lane may be what lets all the others fuse.
    for count, limit in ((fewest, most), (fewest + 1, step_limit), (fewest, step_limit)):
        by_chain = [[n for n in numbers if chain[n] % count == lane] for lane in range(count)]
        if may_fuse and fits(by_chain, limit):
            return by_chain
    return [numbers[lane::fewest] for lane in range(fewest)]


def _check_weights(source: int, target: int, most: int, step_limit: int) -> None:
    if most > step_limit:
        message = f"a message from rank {source} to {target} waits for {most} others, a block has {step_limit} steps"
        raise LimitError(f"taccl-ef: {message}; use fewer instances")


def _weight(by_instance: list[list[Access]]) -> int:
    """Steps that a send or receive takes at most: itself and a nop for each dependency but one."""
    return max(1, max(map(len, by_instance)))


def _chains(allocation: Allocation, needs: Needs, instances: int) -> dict[int, int]:
    """By message, the earlier one that brought exactly what it sends on, if nothing else waits for that before."""
    found = {}
    for number, message in enumerate(allocation.messages):
        if len(needs.send[number][0]) != 1 or needs.send[number][0][0].kind != RECEIVE:
            continue
        other = needs.send[number][0][0].number
        brought = allocation.messages[other]
        if (brought.write_at, brought.count) == (message.read_at, message.count) and all(
            needs.send[number][instance] == [Access(RECEIVE, message.source, other, instance)]
            and needs.uses[other, instance][0].number == number
            for instance in range(instances)
        ):
            found[number] = other
    return found


def _fusing_pairs(
    allocation: Allocation,
    lanes: list[int],
    numbers: dict[Side, list[int]],
    sends_on: dict[int, int],
    slot_of: dict[Side, int],
    loads: dict[Side, int],
    step_limit: int,
) -> dict[Side, Side]:
    """Receiving and sending sides of one rank most of whose steps would be one: the most fused first."""
    chains: dict[tuple[Side, Side], list[tuple[int, int]]] = {}
    for number, other in sends_on.items():
        rank, peer = allocation.messages[number].source, allocation.messages[number].target
        receive = Side(rank, False, allocation.messages[other].source, lanes[other])
        chains.setdefault((receive, Side(rank, True, peer, lanes[number])), []).append((other, number))
    ranked = []
    for (receive, send), pairs in chains.items():
        longer = max(len(numbers[receive]), len(numbers[send]))
        if slot_of[receive] == slot_of[send] and 2 * len(pairs) >= longer:
            merged = sorted((*numbers[receive], *numbers[send]))
            follows = set(pairwise(merged))
            fused = sum(pair in follows for pair in pairs)
            if 2 * fused >= longer and loads[receive] + loads[send] - fused <= step_limit:
                ranked.append((-fused, receive, send))
    partner: dict[Side, Side] = {}
    for _, receive, send in sorted(ranked):
        if receive not in partner and send not in partner:
            partner[receive], partner[send] = send, receive
    return partner


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
