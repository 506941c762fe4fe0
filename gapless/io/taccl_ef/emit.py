"""Fill the thread blocks of a lowered program with steps, in the order of the schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gapless.io.taccl_ef.blocks import Plan, Side
from gapless.io.taccl_ef.buffers import Allocation, Message, Place
from gapless.io.taccl_ef.hazards import COPY, RECEIVE, SEND, Access, Needs
from gapless.io.taccl_ef.program import READS_SOURCE, WRITES

__all__ = ["Builder", "Draft", "compact_scratch", "emit"]


@dataclass(slots=True)
class Draft:
    """A step whose dependency still points to a block that has no number yet. `message`: what a receive brings."""

    type: str
    source: Place
    target: Place
    cnt: int
    awaited: tuple[Builder, int] | None = None
    hasdep: bool = False
    message: int = -1


@dataclass(eq=False, slots=True)
class Builder:
    """A thread block that is being filled; `waited` has the last step of each other block that it waited for."""

    send: int
    recv: int
    chan: int
    steps: list[Draft] = field(default_factory=list)
    waited: dict[Builder, int] = field(default_factory=dict)
    id: int = -1


Done = dict[Access, tuple[Builder, int]]
"""The block and the number of the step that makes each access."""


def emit(allocation: Allocation, needs: Needs, plan: Plan, instances: int) -> list[list[Builder]]:
    """All blocks of each rank, filled in the order of the schedule and numbered."""
    blocks: list[list[Builder]] = [[] for _ in allocation.scratch]
    built: dict[tuple[int, int], list[Builder]] = {}
    for rank, shapes in enumerate(plan.shapes):
        for number, shape in enumerate(shapes):
            chans = [instance * plan.slots + shape.slot for instance in range(instances)]
            built[rank, number] = [Builder(shape.send, shape.recv, chan) for chan in chans]
            blocks[rank] += built[rank, number]
    done: Done = {}
    blocks_of: dict[tuple[int, int, int], tuple[list[Builder], list[Builder]]] = {
        (side.rank, side.peer, side.lane): (
            built[side.rank, number],
            built[side.peer, plan.block_of[Side(side.peer, False, side.rank, side.lane)]],
        )
        for side, number in plan.block_of.items()
        if side.is_send
    }
    for number, message in enumerate(allocation.messages):
        sending, receiving = blocks_of[message.source, message.target, plan.lanes[number]]
        for instance in range(instances):
            before = plan.sends_on.get(number, -1)
            _send(sending[instance], allocation.messages, number, instance, instances, before, needs, done)
            _receive(receiving[instance], message, number, instance, instances, needs, done)
    for rank in range(len(blocks)):
        for instance in range(instances):
            blocks[rank] += _copies(allocation, needs, plan, rank, instance, instances, done)
        _number(blocks[rank])
    return blocks


def _cut(place: Place, count: int, instance: int, instances: int) -> Place:
    """Where one instance's share of a run of `count` chunks starts: as many parts, side by side again."""
    if instances == 1:
        return place
    return place[0], place[1] * instances + instance * count


def _send(
    block: Builder,
    messages: list[Message],
    number: int,
    instance: int,
    instances: int,
    before: int,
    needs: Needs,
    done: Done,
) -> None:
    """Append the send of a message, or fuse it with the receive of message `before` if that is the block's last step.

    Another block that waits for the receive already must not wait for the send as well.
    """
    message = messages[number]
    source = _cut(message.read_at, message.count, instance, instances)
    target = _cut(message.write_at, message.count, instance, instances)
    here = Access(SEND, message.source, number, instance)
    last = block.steps[-1] if block.steps else None
    if before < 0 or last is None or last.message != before or last.hasdep:
        _append(block, Draft("s", source, target, message.count), needs.send[number][instance], done)
    else:
        is_dead = needs.uses[before, instance] == [here] and (before, instance) not in needs.kept
        last.message = -1
        if last.type == "rrc" and is_dead:
            last.type, last.target = "rrs", target
        else:
            last.type = {"r": "rcs", "rrc": "rrcs"}[last.type]
    done[here] = (block, len(block.steps) - 1)


def _receive(
    block: Builder, message: Message, number: int, instance: int, instances: int, needs: Needs, done: Done
) -> None:
    """Append the receive of a message, which adds it to what is there if the message does."""
    is_added = message.adds_to is not None
    source = _cut(message.adds_to or message.read_at, message.count, instance, instances)
    target = _cut(message.write_at, message.count, instance, instances)
    draft = Draft("rrc" if is_added else "r", source, target, message.count, message=number)
    _append(block, draft, needs.receive[number][instance], done)
    done[Access(RECEIVE, message.target, number, instance)] = (block, len(block.steps) - 1)


def _append(block: Builder, draft: Draft, needed: list[Access], done: Done) -> None:
    """Append a step that waits for others; for all but one of them on nops before it."""
    if not needed:
        block.steps.append(draft)
        return
    awaited: dict[Builder, int] = {}
    for access in needed:
        other, number = done[access]
        # What the block itself did, or waited for earlier, is done by the order of its steps.
        if other is not block and number > block.waited.get(other, -1):
            awaited[other] = max(number, awaited.get(other, -1))
    for other, number in awaited.items():
        other.steps[number].hasdep = True
    block.waited.update(awaited)
    targets = list(awaited.items())
    block.steps += [Draft("nop", ("i", -1), ("o", -1), 0, target) for target in targets[:-1]]
    draft.awaited = targets[-1] if targets else None
    block.steps.append(draft)


def _copies(
    allocation: Allocation, needs: Needs, plan: Plan, rank: int, instance: int, instances: int, done: Done
) -> Iterator[Builder]:
    """Blocks that copy within a rank, one instance's share: from input or scratch to output."""
    block = Builder(-1, -1, instance * plan.slots)
    for number, (source, target, count) in enumerate(allocation.copies[rank]):
        needed = needs.copy[rank][number][instance]
        if len(block.steps) + max(1, len(needed)) > plan.step_limit:
            yield block
            block = Builder(-1, -1, instance * plan.slots)
        here, there = (_cut(place, count, instance, instances) for place in (source, target))
        draft = Draft("cpy", here, there, count)
        _append(block, draft, needed, done)
        done[Access(COPY, rank, number, instance)] = (block, len(block.steps) - 1)
    if block.steps:
        yield block


def _number(blocks: list[Builder]) -> None:
    """Number a rank's blocks: those that others wait for first, since a dependency reaches only blocks 0..127."""
    blocks.sort(key=lambda block: not any(step.hasdep for step in block.steps))
    for number, block in enumerate(blocks):
        block.id = number


def compact_scratch(blocks: list[list[Builder]]) -> list[int]:
    """Take the scratch chunks that no step uses out of all places; returns the chunks that each rank has left.

    A sum that is sent on and nowhere kept needs none, once its steps are fused.
    """
    index = [{chunk: number for number, chunk in enumerate(sorted(_used(mine)))} for mine in blocks]
    for rank, mine in enumerate(blocks) if any(index) else ():
        for block in mine:
            for step in block.steps:
                # Fields that the step does not use name the place at the peer.
                reads = rank if step.type in READS_SOURCE else block.recv
                writes = rank if step.type in WRITES else block.send
                step.source, step.target = _moved(step.source, index, reads), _moved(step.target, index, writes)
    return [len(chunks) for chunks in index]


def _used(blocks: list[Builder]) -> set[int]:
    found: set[int] = set()
    for block in blocks:
        for step in block.steps:
            for place, types in ((step.source, READS_SOURCE), (step.target, WRITES)):
                if place[0] == "s" and step.type in types:
                    found.update(range(place[1], place[1] + step.cnt))
    return found


def _moved(place: Place, index: list[dict[int, int]], rank: int) -> Place:
    return ("s", index[rank].get(place[1], 0)) if place[0] == "s" else place
