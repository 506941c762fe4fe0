"""Lower a replayed schedule to a TACCL-EF program (thesis, section 5.6.2).

Every transfer becomes sends and receives between buffer places (buffers.py), which wait for the steps that they can't
run before (blocks.py). They are dealt to thread blocks, one block for each direction to each peer, in the order of the
schedule everywhere. That order is what excludes deadlock, whatever a connection holds and however blocks are merged: of
the transfers that are not finished, the first in the order has its send and its receive at the head of their blocks,
and the steps that it depends on belong to earlier transfers.

A fused step is the receive of a transfer m and the send of a later one n that sends on what m brought. It keeps the
argument under three conditions. Nothing lies between the two in their block, so that every other step of the block
still belongs to transfers all before m or all after n. What it waits for belongs to transfers before m. Nothing that
belongs to a transfer between m and n waits for it. Then whatever a step waits for (a message, a place in a queue, a
receiver that must arrive, a dependency) is held up only by steps that wait for an earlier transfer than it does itself,
and waiting can't come round.

Instances cut each chunk into n parts that take the same path on blocks and channels of their own. A run of m
neighbouring chunks is cut as a whole, into n runs of m parts, so that it stays one message in every instance;
dependencies are therefore kept by part, and may cross instances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict

from gapless.errors import InputError
from gapless.io.taccl_ef.blocks import (
    COPY,
    MERGE_ABOVE,
    RECEIVE,
    SEND,
    Access,
    LimitError,
    Needs,
    Plan,
    Side,
    find_needs,
    plan_blocks,
)
from gapless.io.taccl_ef.buffers import MAX_RUN, Allocation, Place, allocate
from gapless.io.taccl_ef.flat import Flat
from gapless.io.taccl_ef.program import (
    MAX_SCRATCH_BYTES,
    READS_SOURCE,
    RUNTIMES,
    WRITES,
    Gpu,
    Program,
    Step,
    ThreadBlock,
    default_max_bytes,
    written_name,
)
from gapless.io.taccl_ef.verify import examine
from gapless.ir.collective import Collective
from gapless.ir.schedule import Schedule
from gapless.ir.switch_ops import refuse_switch_ops

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "PLACEMENTS", "Builder", "Draft", "LimitError", "LoweringOptions", "compact_scratch", "emit", "lower", "lowered",
]  # fmt: skip


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


def emit(allocation: Allocation, needs: Needs, plan: Plan, instances: int) -> list[list[Builder]]:
    """All blocks of each rank, filled in the order of the schedule and numbered."""
    blocks: list[list[Builder]] = [[] for _ in allocation.scratch]
    built: dict[tuple[int, int], list[Builder]] = {}
    for rank, shapes in enumerate(plan.shapes):
        for number, shape in enumerate(shapes):
            chans = [instance * plan.slots + shape.slot for instance in range(instances)]
            built[rank, number] = [Builder(shape.send, shape.recv, chan) for chan in chans]
            blocks[rank] += built[rank, number]
    blocks_of: dict[tuple[int, int, int], tuple[list[Builder], list[Builder]]] = {
        (side.rank, side.peer, side.lane): (
            built[side.rank, number],
            built[side.peer, plan.block_of[Side(side.peer, False, side.rank, side.lane)]],
        )
        for side, number in plan.block_of.items()
        if side.is_send
    }
    emission = _Emission(allocation, needs, plan, instances)
    for number, message in enumerate(allocation.messages):
        sending, receiving = blocks_of[message.source, message.target, plan.lanes[number]]
        for instance in range(instances):
            emission.send(sending[instance], number, instance)
            emission.receive(receiving[instance], number, instance)
    for rank in range(len(blocks)):
        for instance in range(instances):
            blocks[rank] += emission.copies(rank, instance)
        _number(blocks[rank])
    return blocks


@dataclass(frozen=True)
class _Emission:
    """What is lowered; `done`: the block and the number of the step that makes each access."""

    allocation: Allocation
    needs: Needs
    plan: Plan
    instances: int
    done: dict[Access, tuple[Builder, int]] = field(default_factory=dict)

    def cut(self, place: Place, count: int, instance: int) -> Place:
        """Where one instance's share of a run of `count` chunks starts: as many parts, side by side again."""
        if self.instances == 1:
            return place
        return place[0], place[1] * self.instances + instance * count

    def send(self, block: Builder, number: int, instance: int) -> None:
        """Append the send of a message, or fuse it with the receive of what it sends on, if that is the last step.

        Another block that waits for the receive already must not wait for the send as well.
        """
        message, before = self.allocation.messages[number], self.plan.sends_on.get(number, -1)
        source, target = (self.cut(place, message.count, instance) for place in (message.read_at, message.write_at))
        here = Access(SEND, message.source, number, instance)
        last = block.steps[-1] if block.steps else None
        if before < 0 or last is None or last.message != before or last.hasdep:
            self.append(block, Draft("s", source, target, message.count), self.needs.send[number][instance])
        else:
            is_dead = self.needs.uses[before, instance] == [here] and (before, instance) not in self.needs.kept
            last.message = -1
            if last.type == "rrc" and is_dead:
                last.type, last.target = "rrs", target
            else:
                last.type = {"r": "rcs", "rrc": "rrcs"}[last.type]
        self.done[here] = (block, len(block.steps) - 1)

    def receive(self, block: Builder, number: int, instance: int) -> None:
        """Append the receive of a message, which adds it to what is there if the message does."""
        message = self.allocation.messages[number]
        ends = message.adds_to or message.read_at, message.write_at
        source, target = (self.cut(place, message.count, instance) for place in ends)
        kind = "r" if message.adds_to is None else "rrc"
        draft = Draft(kind, source, target, message.count, message=number)
        self.append(block, draft, self.needs.receive[number][instance])
        self.done[Access(RECEIVE, message.target, number, instance)] = (block, len(block.steps) - 1)

    def append(self, block: Builder, draft: Draft, needed: list[Access]) -> None:
        """Append a step that waits for others; for all but one of them on nops before it."""
        awaited: dict[Builder, int] = {}
        for access in needed:
            other, number = self.done[access]
            # What the block itself did, or waited for earlier, is done by the order of its steps.
            if other is not block and number > block.waited.get(other, -1):
                awaited[other] = max(number, awaited.get(other, -1))
        for other, number in awaited.items():
            other.steps[number].hasdep = True
        block.waited.update(awaited)
        *first, last = awaited.items() or [None]
        block.steps += [Draft("nop", ("i", -1), ("o", -1), 0, target) for target in first]
        draft.awaited = last
        block.steps.append(draft)

    def copies(self, rank: int, instance: int) -> Iterator[Builder]:
        """Blocks that copy within a rank, one instance's share: from input or scratch to output."""
        chan = instance * self.plan.slots
        block = Builder(-1, -1, chan)
        for number, (source, target, count) in enumerate(self.allocation.copies[rank]):
            needed = self.needs.copy[rank][number][instance]
            if len(block.steps) + max(1, len(needed)) > self.plan.step_limit:
                yield block
                block = Builder(-1, -1, chan)
            here, there = (self.cut(place, count, instance) for place in (source, target))
            self.append(block, Draft("cpy", here, there, count), needed)
            self.done[Access(COPY, rank, number, instance)] = (block, len(block.steps) - 1)
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


PLACEMENTS = {"out-of-place": (False, True), "in-place": (True, False), "both": (True, True)}
"""By name: (inplace, outofplace)."""
LIMITS = frozenset(
    {"chunk-count", "tb-limit", "step-limit", "node-limit", "child-limit", "channel-limit", "dep-limit", "co-residency"}
)
"""Rules that a program of fewer instances may keep."""


class LoweringOptions(TypedDict, total=False):
    """The options of `lowered`."""

    instances: int
    name: str
    proto: str
    placement: str | None
    min_bytes: int
    max_bytes: int
    runtime: str | None
    sm_count: int | None
    merge_blocks: bool | None
    fuse: bool
    step_limit: int | None
    max_scratch_bytes: int


def lower(schedule: Schedule, collective: Collective, **how: Unpack[LoweringOptions]) -> Program:
    """As `lowered`, without the flat form."""
    return lowered(schedule, collective, **how)[0]


def lowered(
    schedule: Schedule,
    collective: Collective,
    *,
    instances: int = 1,
    name: str = "",
    proto: str = "Simple",
    placement: str | None = None,
    min_bytes: int = 0,
    max_bytes: int = 0,
    runtime: str | None = None,
    sm_count: int | None = None,
    merge_blocks: bool | None = None,
    fuse: bool = True,
    step_limit: int | None = None,
    max_scratch_bytes: int = MAX_SCRATCH_BYTES,
) -> tuple[Program, Flat]:
    """The program that does what a clean schedule of transfers does, and its flat form; tensor ids are the collective's
    chunks.

    `instances`: parts that each chunk is cut into, each on its own blocks and channels. `placement`: `out-of-place`
    (own chunks are copied from input to output, the input is never written), `in-place` (only the larger buffer is
    used) or `both` (as out-of-place; in place the copy stores what is there already). `min_bytes`, `max_bytes`: range
    of the larger buffer's size, 0 for as much as the runtime can serve. `runtime`, `sm_count`: whose limits to keep,
    see `verify`, and whose name of the collective to write. `merge_blocks`: whether one block may send and receive;
    None merges only where a GPU would otherwise have more than `sm_count` blocks, 80 if that is unknown, and where
    steps are fused.
    `fuse`: whether a block that sends on what it receives does so in one step (rcs, rrs, rrcs). `step_limit`: steps of
    a block, None for as many as the runtime takes. `max_scratch_bytes`: what a runtime may allocate on a GPU.

    Raises `InputError` where the schedule can't be lowered, `LimitError` where a limit is exceeded that fewer instances
    may keep; the message has both numbers.
    """
    refuse_switch_ops(schedule.switch_ops, "taccl-ef")
    placement, runtime = placement or "out-of-place", runtime or "both"
    _check_options(instances, placement, runtime)
    in_place, out_of_place = PLACEMENTS[placement]
    coll = written_name(collective.name, runtime)
    most_steps = step_limit or min(each.steps for each in RUNTIMES[runtime])
    allocation, builders = _build(
        schedule, collective, placement, instances, merge_blocks, fuse, most_steps, sm_count
    )  # fmt: skip
    program = Program(
        name=name or f"{collective.name}_{collective.rank_count}",
        proto=proto,
        nchannels=1 + max((builder.chan for blocks in builders for builder in blocks), default=0),
        nchunksperloop=instances * max(len(buffer) for buffer in (*collective.inputs, *collective.outputs)),
        ngpus=collective.rank_count,
        coll=coll,
        inplace=in_place,
        outofplace=out_of_place,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        redop="sum" if collective.reduces else "nop",
        gpus=tuple(_gpus(collective, allocation, builders, instances, placement == "in-place")),
    )
    if coll == "custom":
        program = replace(program, gpus=tuple(_declared_whole(program)))
    if not max_bytes:
        program = replace(program, max_bytes=default_max_bytes(program, runtime, max_scratch_bytes))
    problems, flat = examine(program, runtime, sm_count, max_scratch_bytes)
    if problems or flat is None:
        kind = LimitError if problems[0].rule in LIMITS else InputError
        way_out = f"; use fewer instances than {instances}" if instances > 1 and kind is LimitError else ""
        raise kind(f"taccl-ef: the program breaks a rule of the runtime: {problems[0]}{way_out}")
    return program, flat


def _check_options(instances: int, placement: str, runtime: str) -> None:
    for title, value, known in (("placement", placement, PLACEMENTS), ("runtime", runtime, RUNTIMES)):
        if value not in known:
            raise InputError(f"{title}: must be one of {', '.join(known)}, got {value!r}")
    if instances < 1:
        raise InputError(f"instances: must be >= 1, got {instances}")


def _build(
    schedule: Schedule,
    collective: Collective,
    placement: str,
    instances: int,
    merge: bool | None,
    fuse: bool,
    step_limit: int,
    sm_count: int | None,
) -> tuple[Allocation, list[list[Builder]]]:
    """Buffers and filled blocks; messages are cut where their dependencies would not fit a block."""
    max_run = MAX_RUN
    fuse = fuse and merge is not False
    while True:
        allocation = allocate(schedule, collective, placement, fuse, max_run)
        needs = find_needs(allocation, instances)
        most = max((len(found) for side in (needs.send, needs.receive) for row in side for found in row), default=0)
        most = max([most, *(len(found) for rows in needs.copy for row in rows for found in row)])
        if most <= step_limit or max_run == 1:
            break
        max_run //= 2
    plan = plan_blocks(
        allocation, needs, instances, merge, fuse, MERGE_ABOVE if sm_count is None else sm_count, step_limit
    )
    return allocation, emit(allocation, needs, plan, instances)


def _gpus(
    collective: Collective, allocation: Allocation, builders: list[list[Builder]], instances: int, in_place: bool
) -> Iterator[Gpu]:
    scratch = compact_scratch(builders)
    for rank, blocks in enumerate(builders):
        inputs, outputs = len(collective.inputs[rank]), len(collective.outputs[rank])
        if in_place:
            inputs, outputs = (0, outputs) if outputs > inputs else (inputs, 0)
        yield Gpu(
            id=rank,
            i_chunks=inputs * instances,
            o_chunks=outputs * instances,
            s_chunks=scratch[rank],
            threadblocks=tuple(
                ThreadBlock(block.id, block.send, block.recv, block.chan, tuple(_steps(block))) for block in blocks
            ),
        )


def _declared_whole(program: Program) -> Iterator[Gpu]:
    """A custom program's buffers, as the original runtime wants them: each is as long as the larger, or left alone."""
    for gpu in program.gpus:
        inputs, outputs = (program.nchunksperloop if count else 0 for count in (gpu.i_chunks, gpu.o_chunks))
        yield replace(gpu, i_chunks=inputs, o_chunks=outputs)


def _steps(block: Builder) -> Iterator[Step]:
    for number, draft in enumerate(block.steps):
        depid, deps = (draft.awaited[0].id, draft.awaited[1]) if draft.awaited else (-1, -1)
        # The runtimes take no source from an rcs; a verifier of others wants what is stored to be what is sent.
        source = draft.target if draft.type == "rcs" else draft.source
        yield Step(number, draft.type, *source, *draft.target, draft.cnt, depid, deps, draft.hasdep)
