"""Lower a replayed schedule to an MSCCL++ plan.

The schedule becomes a TACCL-EF program first: which chunk lies where, which block sends what in which order, and
which block waits for which is settled there, and so is that no cycle of waits can arise (lower.py of that package),
even where every send waits for its receive. Here each of its connections becomes a channel (by memory within a node, by
a port between nodes) and each step a few one-sided operations:

- A send is a put into the place where the receive wants it, and a signal. What is to be added goes to a place of its
  own in the receiver's scratch, and is added from there.
- Before the first put the receiver says that it has started. It says so again before each put into a place that was in
  use before, once that use is over: then a put waits for its receive.
- A port reads its source later than the block that asked for it. Where the source is written again, and after the last
  put, the receiver says that the data has come, and the sender waits for that.
- A dependency between blocks is a semaphore of the GPU for each pair of blocks, counted up and down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from gapless.errors import InputError
from gapless.io.mscclpp.lower_switches import lower_switched
from gapless.io.mscclpp.messages import Messages, find_messages
from gapless.io.mscclpp.program import (
    CHANNEL_TYPES,
    COLLECTIVES,
    LIMITS,
    MAX_MESSAGE_BYTES,
    Block,
    ChannelIds,
    Channels,
    Chunks,
    Gpu,
    Operation,
    Plan,
    RemoteBuffer,
    RemoteIds,
    Semaphore,
)
from gapless.io.taccl_ef.flat import flatten
from gapless.io.taccl_ef.lower import lower as lower_to_steps
from gapless.io.taccl_ef.program import Program, Step
from gapless.ir.collective import Collective
from gapless.ir.schedule import Schedule

__all__ = ["PLACEMENTS", "BlockWriter", "lower", "translate"]


class BlockWriter:
    """Appends operations. Threads must meet between a wait and what relies on it, between accesses to one chunk of
    which one writes it, and between any of these and a signal, which says that they are done."""

    def __init__(self) -> None:
        self.ops: list[Operation] = []
        self.is_learning = False
        self.read: set[int] = set()
        self.written: set[int] = set()

    def meet(self) -> None:
        self.ops.append(Operation("nop"))
        self.is_learning = False
        self.read.clear()
        self.written.clear()

    def wait(self, operation: Operation) -> None:
        """Append a wait for a signal."""
        self.ops.append(operation)
        self.is_learning = True

    def acquire(self, name: str, semaphores: Sequence[int]) -> None:
        """Append the acquisition of semaphores, as many operations as it takes."""
        for operation in _by_semaphores(name, semaphores):
            self.wait(operation)

    def data(self, operation: Operation, reads: Iterable[int], writes: Iterable[int]) -> None:
        """Append what reads and writes chunks of the own GPU, by their cells in its memory."""
        reading, writing = set(reads), set(writes)
        clashes = writing & (self.read | self.written) or reading & self.written
        if self.is_learning or clashes:
            self.meet()
        self.ops.append(operation)
        self.read |= reading
        self.written |= writing

    def publish(self, operation: Operation) -> None:
        """Append what signals to others that all so far is done."""
        if self.is_learning or self.read or self.written:
            self.meet()
        self.ops.append(operation)

    def release(self, name: str, semaphores: Sequence[int]) -> None:
        """Append the release of semaphores, as many operations as it takes."""
        for operation in _by_semaphores(name, semaphores):
            self.publish(operation)


def _by_semaphores(name: str, semaphores: Sequence[int]) -> Iterable[Operation]:
    for start in range(0, len(semaphores), LIMITS.semaphores_per_operation):
        ids = tuple(semaphores[start : start + LIMITS.semaphores_per_operation])
        yield Operation(name, semaphore_ids=ids)


PLACEMENTS = ("out-of-place", "in-place")
STEP_LIMITS = (24, 16, 12, 8, 6, 4)
"""Steps of a block of the TACCL-EF program that are tried, until the operations they become fit a block here."""


def lower(
    schedule: Schedule,
    collective: Collective,
    *,
    name: str = "",
    placement: str = "out-of-place",
    instances: int = 1,
    min_bytes: int = 0,
    max_bytes: int = 0,
    sm_count: int | None = None,
) -> Plan:
    """The plan that does what a clean schedule of transfers does; tensor ids are the collective's chunks.

    `instances`: parts that each chunk is cut into, each on its own blocks and channels. `placement`: whether input and
    output are one buffer. `min_bytes`, `max_bytes`: range of the larger buffer's size, 0 for no upper limit.
    `sm_count`: multiprocessors, to merge blocks where there are more.

    Raises `InputError` for a collective that is not covered, and where the schedule can't be lowered.
    """
    if collective.name not in COLLECTIVES:
        known = ", ".join(COLLECTIVES)
        raise InputError(f"mscclpp: plans are written for {known}, got {collective.name}; try --format taccl-ef")
    if placement not in PLACEMENTS:
        raise InputError(f"placement: must be one of {', '.join(PLACEMENTS)}, got {placement!r}")
    most_bytes = max_bytes or MAX_MESSAGE_BYTES
    if schedule.switch_ops is not None:
        plan = lower_switched(schedule, collective, name, placement, instances)
        return replace(plan, min_message_bytes=min_bytes, max_message_bytes=most_bytes)
    most = 0
    for limit in STEP_LIMITS:
        program = lower_to_steps(
            schedule, collective, instances=instances, placement=placement, runtime="executor", sm_count=sm_count,
            fuse=False, step_limit=limit,
        )  # fmt: skip
        plan = translate(program, collective, schedule.topology.node_of_device)
        most = max((len(block.ops) for gpu in plan.gpus for block in gpu.threadblocks), default=0)
        if most <= LIMITS.operations:
            named = name or plan.name
            return replace(plan, name=named, min_message_bytes=min_bytes, max_message_bytes=most_bytes)
    raise InputError(f"mscclpp: a block takes {LIMITS.operations} operations, needed are {most}")


def translate(program: Program, collective: Collective, node_of_rank: tuple[int, ...]) -> Plan:
    """The plan of a well-formed TACCL-EF program without fused steps, for one placement."""
    flat, _ = flatten(program)
    parts = program.nchunksperloop // max(len(each) for each in (*collective.inputs, *collective.outputs))
    sizes = [
        (len(inputs) * parts, len(outputs) * parts)
        for inputs, outputs in zip(collective.inputs, collective.outputs, strict=True)
    ]
    messages = find_messages(program, flat, sizes, node_of_rank)
    gpus = []
    for gpu in sorted(program.gpus, key=lambda gpu: gpu.id):
        links = _Links(gpu.id, messages)
        first = flat.first_block[gpu.id]
        numbers = range(len(gpu.threadblocks))
        blocks = [_BlockLowering(messages, links, first + number).block(number) for number in numbers]
        gpus.append(
            Gpu(
                id=gpu.id,
                input_chunks=sizes[gpu.id][0],
                output_chunks=sizes[gpu.id][1],
                scratch_chunks=gpu.s_chunks + messages.staged_chunks[gpu.id],
                threadblocks=tuple(blocks),
                channels=tuple(Channels(kind, tuple(peers)) for kind, peers in links.peers.items() if peers),
                remote_buffers=tuple(links.buffers),
                semaphores=(Semaphore(),) * len(messages.semaphores[gpu.id]),
            )
        )
    return Plan(program.name, collective.name, program.inplace, tuple(gpus))


class _Links:
    """The channels and remote buffers of one GPU: connections of the program, in their order, in either direction."""

    def __init__(self, gpu: int, messages: Messages) -> None:
        self.peers: dict[str, list[int]] = {kind: [] for kind in CHANNEL_TYPES}
        self.number: dict[int, int] = {}
        self.buffers: list[RemoteBuffer] = []
        for connection, (source, target, _) in enumerate(messages.flat.connections):
            if gpu in (source, target):
                peers = self.peers[messages.kind[connection]]
                self.number[connection] = len(peers)
                peers.append(target if gpu == source else source)

    def buffer(self, rank: int, buffer: str, kind: str) -> int:
        """The number of a peer's buffer, new where it is used for the first time."""
        wanted = RemoteBuffer(rank, buffer, (kind,))
        if wanted not in self.buffers:
            self.buffers.append(wanted)
        return self.buffers.index(wanted)


@dataclass
class _BlockLowering:
    """One block of the program: its operations, and the channels and remote buffers that they use, by kind."""

    messages: Messages
    links: _Links
    flat_number: int
    writer: BlockWriter = field(default_factory=BlockWriter)
    used: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in CHANNEL_TYPES})
    refs: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in CHANNEL_TYPES})

    def block(self, number: int) -> Block:
        flat, writer = self.messages.flat, self.writer
        incoming = flat.incoming[self.flat_number]
        if incoming >= 0 and self.messages.starts_ready(incoming):
            writer.publish(_signalling("signal", *self.channel(incoming)))
        for at in range(flat.first[self.flat_number], flat.first[self.flat_number + 1]):
            step = flat.steps[at]
            writer.acquire("sem_acquire", self.messages.acquired[at])
            if step.type == "s":
                self.send(at, step)
            elif step.type in ("r", "rrc"):
                self.receive(at, step)
            elif step.type != "nop":
                writer.data(_local(step), *self.messages.touched(at, step))
            writer.release("sem_release", self.messages.released[at])
        return Block(
            id=number,
            ops=tuple(writer.ops),
            channels=tuple(ChannelIds(kind, tuple(ids)) for kind, ids in self.used.items() if ids),
            remote_buffer_refs=tuple(RemoteIds(kind, tuple(ids)) for kind, ids in self.refs.items() if ids),
        )

    def send(self, at: int, step: Step) -> None:
        """A put into the receiver's place, and the signal that the data has come."""
        acts, outgoing = self.messages.acts[at], self.messages.flat.outgoing[self.flat_number]
        kind, ids = self.channel(outgoing)
        if acts.signals_ready:
            self.writer.wait(_signalling("wait", kind, ids))
        source = Chunks(step.srcoff, step.cnt, step.srcbuf)
        target = self.remote(outgoing, acts.place, step.cnt)
        if kind == "memory":
            self.writer.data(Operation("put", (source,), (target,), kind), self.messages.cells(at, step, "src"), ())
            self.writer.publish(_signalling("signal", kind, ids))
        else:
            self.writer.publish(Operation("pws", (source,), (target,), kind, ids))
        if acts.signals_arrival:
            self.writer.wait(_signalling("wait", kind, ids))

    def receive(self, at: int, step: Step) -> None:
        """A wait for the data, which is then added where the step adds."""
        acts, incoming = self.messages.acts[at], self.messages.flat.incoming[self.flat_number]
        channel = self.channel(incoming)
        if acts.signals_ready and not acts.is_ready_from_start:
            self.writer.publish(_signalling("signal", *channel))
        self.writer.wait(_signalling("wait", *channel))
        if acts.signals_arrival:
            self.writer.publish(_signalling("signal", *channel))
        if step.type == "rrc":
            came = Chunks(acts.place[1], step.cnt, acts.place[0])
            self.writer.data(_sum(step, came), *self.messages.touched(at, step))

    def channel(self, connection: int) -> tuple[str, tuple[int, ...]]:
        """A connection's kind of channel, and its number among the block's of that kind, new where first used."""
        kind, number = self.messages.kind[connection], self.links.number[connection]
        return kind, (_place(self.used[kind], number),)

    def remote(self, connection: int, place: tuple[str, int], cnt: int) -> Chunks:
        """Chunks at the other end of a connection."""
        kind, target = self.messages.kind[connection], self.messages.flat.connections[connection][1]
        number = _place(self.refs[kind], self.links.buffer(target, place[0], kind))
        return Chunks(place[1], cnt, buffer_id=number)


def _place(entries: list[int], entry: int) -> int:
    """Where an entry is in a list, added where it isn't there yet."""
    if entry not in entries:
        entries.append(entry)
    return entries.index(entry)


def _signalling(name: str, kind: str, ids: tuple[int, ...]) -> Operation:
    """A signal, or the wait for one."""
    return Operation(name, channel_type=kind, channel_ids=ids)


def _sum(step: Step, came: Chunks) -> Operation:
    """What came and the own chunks, added."""
    own, target = Chunks(step.srcoff, step.cnt, step.srcbuf), Chunks(step.dstoff, step.cnt, step.dstbuf)
    return Operation("re", (own, came), (target,))


def _local(step: Step) -> Operation:
    source, target = Chunks(step.srcoff, step.cnt, step.srcbuf), Chunks(step.dstoff, step.cnt, step.dstbuf)
    if step.type == "cpy":
        return Operation("copy", (source,), (target,))
    if step.type == "re":
        return Operation("re", (target, source), (target,))
    raise InputError(f"mscclpp: steps must not be fused, got type {step.type}")
