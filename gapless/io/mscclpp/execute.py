"""Run an MSCCL++ plan, and judge it: the order of its operations, its data, and what nothing orders.

Every block is a process. A signal is counted, and each channel and semaphore has one block at either end, so whether a
plan gets stuck doesn't depend on the order in which ready blocks are taken. What does is found with vector clocks. They
follow the executor's source:

- Threads of a block meet at a `nop` only. An access belongs to the stretch between two nops. A signal covers the
  stretches before it, and what a wait learns holds from the next nop on.
- A put by memory is made by the block itself, a put by a port by a proxy, later. Puts and signals of one port stay in
  order, so a port's signal covers the puts before it too, and a `flush` waits for them.
- A kernel ends when its blocks do. Whoever touches its memory from outside, or reads it by proxy, must be known to be
  done by then; and nobody may before it has started, since until then the buffer is the caller's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.mscclpp.program import CHANNEL_TYPES, COLLECTIVES, Chunks, Operation, Plan
from gapless.io.mscclpp.structure import MOVES, block_peers, remote_buffers, structure_problems
from gapless.io.mscclpp.switches import span_ranks
from gapless.io.taccl_ef.memory import AccessLog, Memory
from gapless.io.taccl_ef.program import Problem, place_text
from gapless.ir.collective import COLLECTIVES as KNOWN
from gapless.ir.collective import ROOTED, Collective, collective_by_name

__all__ = ["Run", "Verdict", "judge", "run"]


Clock = NDArray[np.int32]
Place = tuple[int, int, int]
"""(rank, first cell, number of cells)."""
Where = tuple[int, int, int]
"""(gpu, block, operation)."""
SIGNALS, WAITS = ("signal", "rlxsignal"), ("wait", "rlxwait")


@dataclass(frozen=True)
class Run:
    """What a run found: problems, and whether all operations ran."""

    problems: tuple[Problem, ...]
    is_complete: bool


def run(plan: Plan, memory: Memory) -> Run:
    """Execute a plan that breaks no rule of structure.py on `memory`, which holds the result afterwards."""
    machine = _Machine(plan, memory)
    machine.run()
    stuck = machine.stuck()
    return Run(tuple(dict.fromkeys([*machine.problems, *(stuck or machine.endings())])), not stuck)


@dataclass
class _Block:
    """A block under way. `stretch` counts its nops from 1; what `learned` holds counts from the next nop on."""

    gpu: int
    number: int
    ops: tuple[Operation, ...]
    clock: Clock
    learned: Clock
    at: int = 0
    stretch: int = 1


class _Machine:
    """All blocks, channels and semaphores.

    Who touches memory has an entry of the clocks: blocks first, then the proxy of each port in use. `ends[g, kind, n]`:
    the (inbox it fills, proxy or -1) of channel n of GPU g.
    """

    def __init__(self, plan: Plan, memory: Memory) -> None:
        self.plan, self.memory = plan, memory
        self.problems: list[Problem] = []
        ports = {(gpu.id, "port", n): k for gpu in plan.gpus for k, n in enumerate(range(len(gpu.peers("port"))))}
        count = sum(len(gpu.threadblocks) for gpu in plan.gpus)
        self.size = count + len(ports)
        self.proxy = {end: count + number for number, end in enumerate(ports)}
        self.proxy_clock = {end: self.zero() for end in ports}
        self.blocks: list[_Block] = []
        self.blocks_of: list[list[int]] = []
        for gpu in plan.gpus:
            self.blocks_of.append(list(range(len(self.blocks), len(self.blocks) + len(gpu.threadblocks))))
            for block in gpu.threadblocks:
                entry = _Block(gpu.id, block.id, block.ops, self.zero(), self.zero())
                entry.clock[len(self.blocks)] = 1
                self.blocks.append(entry)
        self.far_end = _far_ends(plan)
        self.inbox: dict[tuple[int, str, int], deque[Clock]] = {end: deque() for end in self.far_end}
        self.released: dict[tuple[int, int], deque[Clock]] = {
            (gpu.id, number): deque() for gpu in plan.gpus for number in range(len(gpu.semaphores))
        }
        self.log = AccessLog[tuple[int, int, Where]]()  # (who, its count, where in the plan)
        self.foreign: list[dict[int, tuple[int, Where, str]]] = [{} for _ in plan.gpus]

    def zero(self) -> Clock:
        return np.zeros(self.size, dtype=np.int32)

    # -- order ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        moved = True
        while moved:
            moved = False
            for number, block in enumerate(self.blocks):
                while block.at < len(block.ops) and self.can_run(block):
                    self.step(number, block)
                    block.at += 1
                    moved = True

    def ends(self, block: _Block, operation: Operation) -> list[tuple[int, str, int]]:
        """The channels of an operation, as (gpu, type, number in the GPU's list)."""
        gpu = self.plan.gpus[block.gpu]
        kind = operation.channel_type
        usable = block_peers(gpu, gpu.threadblocks[block.number], kind)
        return [(block.gpu, kind, usable[number]) for number in operation.channel_ids]

    def can_run(self, block: _Block) -> bool:
        operation = block.ops[block.at]
        if operation.name in WAITS:
            return all(self.inbox[end] for end in self.ends(block, operation))
        if operation.name == "sem_acquire":
            return all(self.released[block.gpu, number] for number in operation.semaphore_ids)
        return True

    def step(self, number: int, block: _Block) -> None:
        operation = block.ops[block.at]
        if operation.name == "nop":
            np.maximum(block.clock, block.learned, out=block.clock)
            block.stretch += 1
            block.clock[number] = block.stretch
        elif operation.name in WAITS:
            for end in self.ends(block, operation):
                np.maximum(block.learned, self.inbox[end].popleft(), out=block.learned)
        elif operation.name == "sem_acquire":
            for semaphore in operation.semaphore_ids:
                np.maximum(block.learned, self.released[block.gpu, semaphore].popleft(), out=block.learned)
        elif operation.name == "sem_release":
            for semaphore in operation.semaphore_ids:
                self.released[block.gpu, semaphore].append(block.clock.copy())
        elif operation.name in SIGNALS:
            self.signal(block, operation)
        elif operation.name != "flush":
            self.move(number, block, operation)
            if operation.name in ("pws", "pwsf"):
                self.signal(block, operation)
        if operation.name in ("flush", "pwsf"):
            for end in self.ends(block, operation):
                np.maximum(block.learned, self.proxy_clock[end], out=block.learned)

    def signal(self, block: _Block, operation: Operation) -> None:
        for end in self.ends(block, operation):
            clock = block.clock.copy()
            if end in self.proxy_clock:
                np.maximum(clock, self.proxy_clock[end], out=clock)
                self.proxy_clock[end] = clock.copy()
            self.inbox[self.far_end[end]].append(clock)

    def stuck(self) -> list[Problem]:
        """A problem for each block that has operations left."""
        found = []
        for block in self.blocks:
            if block.at < len(block.ops):
                operation = block.ops[block.at]
                what = f"{operation.name} for a signal or release that never comes"
                if operation.name in WAITS:
                    peers = [self.far_end[end][0] for end in self.ends(block, operation) if not self.inbox[end]]
                    what = f"waits for ever for a signal of gpu {peers[0]} by {operation.channel_type}"
                found.append(Problem("deadlock", what, block.gpu, block.number, block.at))
        return found

    # -- data ----------------------------------------------------------------------------------------------------------

    def move(self, number: int, block: _Block, operation: Operation) -> None:
        """Read, add up and write; a put or get moves span by span, the other operations add all that they read."""
        where = (block.gpu, block.number, block.at)
        reads = [place for chunks in operation.src for place in self.places(block, operation, chunks)]
        writes = [place for chunks in operation.dst for place in self.places(block, operation, chunks)]
        if operation.name in MOVES:
            ends = self.ends(block, operation) if operation.channel_type == "port" else []
            for k, (source, target) in enumerate(zip(reads, writes, strict=True)):
                who, clock = (number, block.clock) if not ends else self.by_proxy(block, ends[k])
                count = block.stretch if not ends else int(clock[who])
                self.touch([source], [target], who, count, clock, where)
                if ends:
                    clock[who] += 1
            return
        self.touch(reads, writes, number, block.stretch, block.clock, where)

    def by_proxy(self, block: _Block, end: tuple[int, str, int]) -> tuple[int, Clock]:
        clock = self.proxy_clock[end]
        np.maximum(clock, block.clock, out=clock)
        return self.proxy[end], clock

    def places(self, block: _Block, operation: Operation, chunks: Chunks) -> list[Place]:
        """Where a span is: of one rank, or of each rank of a switch channel."""
        ranks: tuple[int, ...] = (block.gpu,)
        gpu, buffer = self.plan.gpus[block.gpu], chunks.type
        if chunks.switch_channel_id >= 0:
            buffer, ranks = span_ranks(gpu, gpu.threadblocks[block.number], chunks)
        elif not buffer:
            known = remote_buffers(gpu, gpu.threadblocks[block.number], operation.channel_type)
            ranks, buffer = (known[chunks.buffer_id][0],), known[chunks.buffer_id][1]
        return [(rank, self.memory.bases[rank][buffer] + chunks.index, chunks.size) for rank in ranks]

    def touch(self, reads: list[Place], writes: list[Place], who: int, count: int, clock: Clock, where: Where) -> None:
        """One operation: what it reads is there, what it touches is free, and it writes the sum of what it reads."""
        values = []
        for rank, start, size in reads:
            if not self.memory.is_written[rank][start : start + size].all():
                message = f"reads {size} chunks of gpu {rank}, where nothing was written before"
                self.problems.append(Problem("unwritten-read", message, *where))
            values.append(self.memory.cells[rank][start : start + size])
            for cell in range(start, start + size):
                self.check(rank, cell, False, who, count, clock, where)
        total = np.sum(values, axis=0)
        for rank, start, size in writes:
            for cell in range(start, start + size):
                self.check(rank, cell, True, who, count, clock, where)
            self.memory.cells[rank][start : start + size] = total
            self.memory.is_written[rank][start : start + size] = True

    def check(self, rank: int, cell: int, is_write: bool, who: int, count: int, clock: Clock, where: Where) -> None:
        deed = f"{'writes' if is_write else 'reads'} {self.name(rank, cell)}"
        for other, other_count, place in self.log.access((rank, cell), (who, count, where), is_write):
            # Within an operation, each thread reads and then writes its own elements.
            if place != where and clock[other] <= other_count:
                message = f"{deed} while {place_text(*place)} may still use it: nothing orders them"
                self.problems.append(Problem("race", message, *where))
        if who not in self.blocks_of[rank]:
            if rank != where[0] and not clock[self.blocks_of[rank]].any():
                message = f"{deed} before gpu {rank} is known to have started"
                self.problems.append(Problem("not-ready", message, *where))
            last = self.foreign[rank].get(who)
            if last is None or last[0] <= count:
                self.foreign[rank][who] = (count, where, deed)

    def name(self, rank: int, cell: int) -> str:
        """A cell in words, by the buffer that starts nearest before it."""
        start, buffer = max((start, buffer) for buffer, start in self.memory.bases[rank].items() if start <= cell)
        return f"{buffer}[{cell - start}] of gpu {rank}"

    def endings(self) -> list[Problem]:
        """What is left over when all blocks have ended: accesses that go on, signals that the next call would take."""
        found = []
        for rank, numbers in enumerate(self.blocks_of):
            final = self.zero()
            for number in numbers:
                np.maximum(final, self.blocks[number].clock, out=final)
                np.maximum(final, self.blocks[number].learned, out=final)
            for who, (count, where, deed) in self.foreign[rank].items():
                if final[who] <= count:
                    message = f"{deed}, maybe after the kernel of gpu {rank} has ended: nothing orders them"
                    found.append(Problem("late-access", message, *where))
        for (gpu, kind, number), box in self.inbox.items():
            if box:
                message = (
                    f"{len(box)} signals on {kind} channel {number} are never waited for: the next call takes them"
                )
                found.append(Problem("unbalanced", message, gpu))
        for (gpu, number), box in self.released.items():
            if box:
                found.append(Problem("unbalanced", f"semaphore {number} is released {len(box)} times too often", gpu))
        return found


def _far_ends(plan: Plan) -> dict[tuple[int, str, int], tuple[int, str, int]]:
    """For each channel (gpu, type, number) the same one as its peer counts it, where the peer has it."""
    found = {}
    for gpu in plan.gpus:
        for kind in CHANNEL_TYPES:
            peers = gpu.peers(kind)
            for number, peer in enumerate(peers):
                turn = peers[:number].count(peer)
                back = [k for k, other in enumerate(plan.gpus[peer].peers(kind)) if other == gpu.id]
                if turn < len(back):
                    found[gpu.id, kind, number] = (peer, kind, back[turn])
    return found


DOUBTS = {
    "flush": "gives it no effect without a dst_buff",
    "pwsf": "takes the address of its offsets for the offset",
    "rlxsignal": "leaves memory unordered",
    "rlxwait": "leaves memory unordered",
}
"""What the executor's source as of commit 00668b4a does with operations that are judged by what they mean."""


@dataclass(frozen=True)
class Verdict:
    """What is known of a plan.

    `collective`: what its result was compared with, None where that is unknown. `executed`: whether it was run, as it
    is where it breaks no rule. `warnings`: what doesn't make it wrong.
    """

    plan: Plan
    problems: tuple[Problem, ...]
    executed: bool = False
    collective: Collective | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether no fault was found; `summary` says what was compared."""
        return not self.problems

    def summary(self) -> str:
        """One line: the collective, the ranks, and the verdict."""
        line = f"{self.plan.collective} on {len(self.plan.gpus)} GPUs (MSCCL++ plan)"
        if self.problems:
            count = len(self.problems)
            return f"{line}: {count} fault{'s' * (count > 1)}" + ("" if self.executed else ", not executed")
        how = f"executed {'in' if self.plan.inplace else 'out of'} place"
        if self.collective is None:
            return f"{line}: well-formed, no deadlock, no race; its result can't be judged, {how}"
        return f"{line}: valid, {how}"


def judge(plan: Plan, collective: str | None = None) -> Verdict:
    """Check the rules of a plan and execute it in the placement that it claims.

    `collective`: what it should do, None to go by what it says. Where that is none of ALLGATHER, ALLREDUCE, ALLTOALL
    and REDUCESCATTER, only deadlocks, races and reads of nothing are looked for.

    Raises `InputError` for an unknown collective, or one that has a root.
    """
    name = collective or plan.collective
    if collective is not None and (collective not in KNOWN or collective in ROOTED):
        known = ", ".join(sorted(set(KNOWN) - set(ROOTED)))
        raise InputError(f"collective: must be one of {known}, got {collective!r}")
    problems = structure_problems(plan)
    if problems:
        return Verdict(plan, tuple(problems))
    wanted = _wanted(plan, name) if name in COLLECTIVES else None
    sizes = [(gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks) for gpu in plan.gpus]
    if wanted is not None and not _fits(plan, wanted):
        message = f"{sizes[0][0]} chunks of input and {sizes[0][1]} of output can't be those of {name}"
        return Verdict(plan, (Problem("chunk-count", message),))
    memory = Memory(sizes, plan.inplace)
    done = run(plan, memory)
    found = list(done.problems)
    if done.is_complete and wanted is not None:
        found += memory.wrong_chunks(wanted, sizes[0][0] // len(wanted.inputs[0]))
    return Verdict(plan, tuple(found), executed=True, collective=wanted, warnings=_warnings(plan))


def _warnings(plan: Plan) -> tuple[str, ...]:
    used = {operation.name for gpu in plan.gpus for block in gpu.threadblocks for operation in block.ops}
    return tuple(
        f"{name} is judged by what it means; the executor's source as of commit 00668b4a {does}"
        for name, does in DOUBTS.items()
        if name in used
    )


def _wanted(plan: Plan, name: str) -> Collective:
    """The collective with as few chunks as it needs; those of the plan are parts of them."""
    ranks = len(plan.gpus)
    if name == "allreduce":
        whole = ((0,),) * ranks
        return Collective(name, ranks, 1, whole, whole, reduces=True)
    return collective_by_name(name, ranks, 1, None)


def _fits(plan: Plan, wanted: Collective) -> bool:
    parts, rest = divmod(plan.gpus[0].input_chunks, len(wanted.inputs[0]))
    return not rest and plan.gpus[0].output_chunks == parts * len(wanted.outputs[0])
