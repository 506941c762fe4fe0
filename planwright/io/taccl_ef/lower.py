"""Lower a replayed schedule to a TACCL-EF program (thesis, section 5.6.2).

Every transfer becomes sends and receives between buffer places (buffers.py). They are dealt to thread blocks, one block
for each direction to each peer, in the order of the schedule everywhere. That order is what excludes deadlock, whatever
a connection holds and however blocks are merged: of the transfers that are not finished, the first in the order has its
send and its receive at the head of their blocks, and the steps that it depends on belong to earlier transfers.

Instances cut each chunk into n parts that take the same way on blocks and channels of their own. A run of m
neighbouring chunks is cut as a whole, into n runs of m parts, so that it stays one message in every instance;
dependencies are therefore kept by part, and may cross instances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from planwright.collective import Collective
from planwright.errors import InputError
from planwright.io.taccl_ef.blocks import MERGE_ABOVE, Plan, Side, plan_blocks
from planwright.io.taccl_ef.buffers import Allocation, Message, Place, allocate
from planwright.io.taccl_ef.program import NO_MAX_BYTES, RUNTIMES, Gpu, Program, Step, ThreadBlock
from planwright.io.taccl_ef.verify import verify
from planwright.schedule import Schedule

__all__ = ["PLACEMENTS", "lower"]

PLACEMENTS = {"out-of-place": (False, True), "in-place": (True, False), "both": (True, True)}
"""By name: (inplace, outofplace)."""

Part = tuple[int, int]
"""(message, instance)."""


def lower(
    schedule: Schedule,
    collective: Collective,
    *,
    instances: int = 1,
    name: str = "",
    proto: str = "Simple",
    placement: str = "out-of-place",
    min_bytes: int = 0,
    max_bytes: int = 0,
    runtime: str = "both",
    sm_count: int | None = None,
    merge_blocks: bool | None = None,
) -> Program:
    """The program that does what a clean schedule of plain transfers does; tensor ids are the collective's chunks.

    `instances`: parts that each chunk is cut into, each on its own blocks and channels. `placement`: `out-of-place`
    (own chunks are copied from input to output), `in-place` (only the larger buffer is used) or `both` (the same as
    out-of-place; in place the copy stores what is there already). `min_bytes`, `max_bytes`: range of the larger
    buffer's size, 0 for no upper limit. `runtime`, `sm_count`: whose limits to keep, see `verify`. `merge_blocks`:
    whether one block may send and receive; None merges only where a GPU would otherwise have more than `sm_count`
    blocks, 80 if that is unknown.

    Raises `InputError` where the schedule can't be lowered or a limit is exceeded; the message has both numbers.
    """
    _check_options(instances, placement, runtime)
    in_place, out_of_place = PLACEMENTS[placement]
    allocation = allocate(schedule, collective, in_place=placement == "in-place")
    needs = list(_needs(allocation.messages, instances))
    limits = (MERGE_ABOVE if sm_count is None else sm_count, RUNTIMES[runtime].steps)
    plan = plan_blocks(allocation, needs, instances, merge_blocks, *limits)
    builders = _emit(allocation, needs, plan, instances)
    program = Program(
        name=name or f"{collective.name}_{collective.rank_count}",
        proto=proto,
        nchannels=1 + max(builder.chan for blocks in builders for builder in blocks),
        nchunksperloop=instances * max(len(buffer) for buffer in (*collective.inputs, *collective.outputs)),
        ngpus=collective.rank_count,
        coll=collective.name,
        inplace=in_place,
        outofplace=out_of_place,
        min_bytes=min_bytes,
        max_bytes=max_bytes or NO_MAX_BYTES,
        gpus=tuple(_gpus(collective, allocation, builders, instances, placement == "in-place")),
    )
    problems = verify(program, runtime, sm_count)
    if problems:
        way_out = f"; use fewer instances than {instances}" if instances > 1 else ""
        raise InputError(f"taccl-ef: the program breaks a rule of the runtime: {problems[0]}{way_out}")
    return program


def _check_options(instances: int, placement: str, runtime: str) -> None:
    for title, value, known in (("placement", placement, PLACEMENTS), ("runtime", runtime, RUNTIMES)):
        if value not in known:
            raise InputError(f"{title}: must be one of {', '.join(known)}, got {value!r}")
    if instances < 1:
        raise InputError(f"instances: must be >= 1, got {instances}")


def _needs(messages: list[Message], instances: int) -> Iterator[list[list[Part]]]:
    """For each message and instance, the parts of earlier messages that brought what it sends."""
    writers: dict[tuple[int, str, int], Part] = {}
    for number, message in enumerate(messages):
        found = []
        for instance in range(instances):
            start, cells = message.read_at[1] * instances + instance * message.count, set()
            for cell in range(start, start + message.count):
                cells.add(writers.get((message.source, message.read_at[0], cell)))
            found.append(sorted(part for part in cells if part is not None))
        yield found
        for instance in range(instances):
            start = message.write_at[1] * instances + instance * message.count
            for cell in range(start, start + message.count):
                writers[message.target, message.write_at[0], cell] = (number, instance)


@dataclass
class _Draft:
    """A step whose dependency still points to a block that has no number yet."""

    type: str
    source: Place
    target: Place
    cnt: int
    awaited: tuple[_Builder, int] | None = None
    hasdep: bool = False


@dataclass(eq=False)
class _Builder:
    """A thread block that is being filled; `waited` has the last step of each other block that it waited for."""

    send: int
    recv: int
    chan: int
    steps: list[_Draft] = field(default_factory=list)
    waited: dict[_Builder, int] = field(default_factory=dict)
    id: int = -1


def _emit(allocation: Allocation, needs: list[list[list[Part]]], plan: Plan, instances: int) -> list[list[_Builder]]:
    """All blocks of each rank, filled in the order of the schedule and numbered."""
    blocks: list[list[_Builder]] = [[] for _ in allocation.scratch]
    built: dict[tuple[int, int], list[_Builder]] = {}
    for rank, shapes in enumerate(plan.shapes):
        for number, shape in enumerate(shapes):
            chans = [instance * plan.slots + shape.slot for instance in range(instances)]
            built[rank, number] = [_Builder(shape.send, shape.recv, chan) for chan in chans]
            blocks[rank] += built[rank, number]
    arrived: dict[Part, tuple[_Builder, int]] = {}
    for number, message in enumerate(allocation.messages):
        lane = plan.lanes[number]
        sending = built[message.source, plan.block_of[Side(message.source, True, message.target, lane)]]
        receiving = built[message.target, plan.block_of[Side(message.target, False, message.source, lane)]]
        for instance in range(instances):
            step = _cut(message.read_at, message.write_at, message.count, instance, instances)
            _send(sending[instance], step, [arrived[part] for part in needs[number][instance]])
            receiver = receiving[instance]
            arrived[number, instance] = (receiver, len(receiver.steps))
            receiver.steps.append(_Draft("r", *step))
    for rank, copies in enumerate(allocation.copies):
        for instance in range(instances):
            blocks[rank] += _copies(copies, instance, instances, instance * plan.slots, plan.step_limit)
        _number(blocks[rank])
    return blocks


def _cut(read_at: Place, write_at: Place, count: int, instance: int, instances: int) -> tuple[Place, Place, int]:
    """One instance's share of a run of `count` chunks: as many parts, side by side again."""
    shift = instance * count
    return (read_at[0], read_at[1] * instances + shift), (write_at[0], write_at[1] * instances + shift), count


def _send(block: _Builder, step: tuple[Place, Place, int], sources: list[tuple[_Builder, int]]) -> None:
    """Append a send that waits for the steps that brought its chunks; all but one of them on nops before it."""
    awaited: dict[_Builder, int] = {}
    for other, number in sources:
        # What the block itself received, or waited for earlier, is there by the order of its steps.
        if other is not block and number > block.waited.get(other, -1):
            awaited[other] = max(number, awaited.get(other, -1))
    for other, number in awaited.items():
        other.steps[number].hasdep = True
    block.waited.update(awaited)
    targets = list(awaited.items())
    block.steps += [_Draft("nop", ("i", -1), ("o", -1), 0, target) for target in targets[:-1]]
    block.steps.append(_Draft("s", *step, targets[-1] if targets else None))


def _copies(
    copies: list[tuple[Place, Place, int]], instance: int, instances: int, chan: int, step_limit: int
) -> Iterator[_Builder]:
    """Blocks that copy a rank's own chunks from input to output, one instance's share."""
    steps = [_Draft("cpy", *_cut(*copy, instance, instances)) for copy in copies]
    for start in range(0, len(steps), step_limit):
        yield _Builder(-1, -1, chan, steps[start : start + step_limit])


def _number(blocks: list[_Builder]) -> None:
    """Number a rank's blocks: those that others wait for first, since a dependency reaches only blocks 0..127."""
    blocks.sort(key=lambda block: not any(step.hasdep for step in block.steps))
    for number, block in enumerate(blocks):
        block.id = number


def _gpus(
    collective: Collective, allocation: Allocation, builders: list[list[_Builder]], instances: int, in_place: bool
) -> Iterator[Gpu]:
    for rank, blocks in enumerate(builders):
        inputs, outputs = len(collective.inputs[rank]), len(collective.outputs[rank])
        if in_place:
            inputs, outputs = (0, outputs) if outputs > inputs else (inputs, 0)
        yield Gpu(
            id=rank,
            i_chunks=inputs * instances,
            o_chunks=outputs * instances,
            s_chunks=allocation.scratch[rank] * instances,
            threadblocks=tuple(
                ThreadBlock(block.id, block.send, block.recv, block.chan, tuple(_steps(block))) for block in blocks
            ),
        )


def _steps(block: _Builder) -> Iterator[Step]:
    for number, draft in enumerate(block.steps):
        depid, deps = (draft.awaited[0].id, draft.awaited[1]) if draft.awaited else (-1, -1)
        yield Step(number, draft.type, *draft.source, *draft.target, draft.cnt, depid, deps, draft.hasdep)
