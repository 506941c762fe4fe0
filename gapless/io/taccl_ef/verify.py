"""Check a TACCL-EF program against the rules of the runtimes, without running it.

The runtimes' parsers check little, and differ in what: many of these mistakes load and then hang, crash or give wrong
data. First come the rules that look at one element at a time: numbers, limits, names, chunk counts; then dependencies
and the order of sends and receives. `run` (execute.py) finds wrong data, races, and what hangs for want of slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from gapless.errors import InputError
from gapless.io.taccl_ef.flat import Flat, columns_of, flatten, rounds_of
from gapless.io.taccl_ef.program import (
    BUFFERS,
    MAX_CHANNELS,
    MAX_CHILDREN,
    MAX_COUNT,
    MAX_DEPENDENCY_BLOCK,
    MAX_NODES,
    MAX_OFFSET,
    MAX_PEERS_PER_CHANNEL,
    MAX_SCRATCH_BYTES,
    PROTOCOLS,
    READS_SOURCE,
    RECEIVING,
    RUNTIMES,
    SENDING,
    STEP_TYPES,
    WRITES,
    Gpu,
    Problem,
    Program,
    Runtime,
    Step,
    ThreadBlock,
    allocation_problems,
    load_problems,
)

__all__ = ["SHAPELESS", "buffer_chunks", "examine", "structure_problems", "verify"]


SHAPELESS = frozenset(
    {"gpu-ids", "tb-ids", "step-ids", "step-type", "buffer", "peer", "peer-needed", "offset", "cnt", "chunk-count"}
)
"""Rules without which the program has no defined meaning at all: nothing further can be said about it."""


def structure_problems(program: Program, runtimes: Sequence[Runtime]) -> Iterator[Problem]:
    """Every broken rule of single elements, outermost first; `runtimes`: those that must take the program."""
    most_blocks, most_steps = min(each.blocks for each in runtimes), min(each.steps for each in runtimes)
    yield from load_problems(program, runtimes)
    yield from _algo(program)
    yield from _gpus(program)
    counts_chunks = any(each.counts_chunks for each in runtimes)
    for gpu in program.gpus:
        yield from _chunk_counts(program, gpu, counts_chunks)
        yield from _blocks(program, gpu, most_blocks)
        for block in gpu.threadblocks:
            yield from _steps(program, gpu, block, most_steps)


def _algo(program: Program) -> Iterator[Problem]:
    if program.proto not in PROTOCOLS:
        yield Problem("proto", f"proto must be one of {', '.join(PROTOCOLS)}, got {program.proto!r}")
    if not 1 <= program.nchunksperloop <= MAX_OFFSET + 1:
        message = f"nchunksperloop must be in 1..{MAX_OFFSET + 1}, got {program.nchunksperloop}"
        yield Problem("chunk-count", message)
    if not (program.inplace or program.outofplace):
        yield Problem("placement", "inplace or outofplace must be 1, or no call ever fits")
    if program.nthreads is not None and (program.nthreads < 0 or program.nthreads % 32):
        yield Problem("nthreads", f"nthreads must be a multiple of 32, 0 for the default, got {program.nthreads}")
    bounds = f"minBytes {program.min_bytes}, maxBytes {program.max_bytes}"
    if program.min_bytes < 0 or program.max_bytes < 0 or 0 < program.max_bytes < program.min_bytes:
        yield Problem("byte-range", f"0 <= minBytes <= maxBytes must hold, got {bounds}")
    channels = 1 + max((block.chan for gpu in program.gpus for block in gpu.threadblocks), default=0)
    if not channels <= program.nchannels <= max(channels, MAX_CHANNELS):
        limits = f"at least the largest chan + 1 = {channels}, at most {MAX_CHANNELS}"
        yield Problem("nchannels", f"nchannels must be {limits}, got {program.nchannels}")


def _gpus(program: Program) -> Iterator[Problem]:
    ids = [gpu.id for gpu in program.gpus]
    if not 2 <= program.ngpus <= MAX_CHILDREN:
        yield Problem("gpu-ids", f"ngpus must be in 2..{MAX_CHILDREN}, got {program.ngpus}")
    elif sorted(ids) != list(range(program.ngpus)):
        twice = [rank for rank, count in Counter(ids).items() if count > 1]
        odd = sorted(set(range(program.ngpus)) ^ set(ids)) or twice
        yield Problem("gpu-ids", f"there must be one gpu element for each of the {program.ngpus} ranks: gpu {odd[0]}")
    if len(ids) > MAX_CHILDREN:
        yield Problem("child-limit", f"an element may have {MAX_CHILDREN} children, got {len(ids)} gpus")
    for gpu in program.gpus:
        nodes = 1 + len(ids) + len(gpu.threadblocks) + sum(len(block.steps) for block in gpu.threadblocks)
        if nodes > MAX_NODES:
            message = f"a rank may load {MAX_NODES} elements (algo, gpus, own blocks and steps), got {nodes}"
            yield Problem("node-limit", message, gpu.id)


def buffer_chunks(program: Program) -> tuple[int, int] | None:
    """Chunks of the input and the output buffer that the collective implies, or None where it implies none."""
    total, parts = program.nchunksperloop, max(program.ngpus, 1)
    if program.coll in ("allgather", "gather"):
        return total // parts, total
    if program.coll in ("reducescatter", "reduce_scatter", "scatter"):
        return total, total // parts
    if program.coll in ("allreduce", "alltoall", "broadcast", "reduce"):
        return total, total
    if program.coll == "custom":
        # The original runtime, the only one that knows it, counts both buffers in nchunksperloop.
        return total, total
    return None


DIVIDED = frozenset({"allgather", "gather", "reducescatter", "reduce_scatter", "scatter", "alltoall"})
"""Collectives whose larger buffer has an equal part for each rank."""


def _chunk_counts(program: Program, gpu: Gpu, counts_chunks: bool) -> Iterator[Problem]:
    sizes = buffer_chunks(program)
    if sizes is not None:
        is_uneven = program.coll in DIVIDED and program.nchunksperloop % max(program.ngpus, 1)
        if is_uneven and gpu is program.gpus[0]:
            message = f"nchunksperloop must be a multiple of ngpus = {program.ngpus}, got {program.nchunksperloop}"
            yield Problem("chunk-count", message)
        # A buffer that the program leaves alone may be declared with 0 chunks; an in-place program has one of those.
        # The executor takes the counts for the limits of offsets only, so a part of the buffer will do.
        for title, count, wanted in zip(("i_chunks", "o_chunks"), (gpu.i_chunks, gpu.o_chunks), sizes, strict=True):
            if count not in ((0, wanted) if counts_chunks else range(wanted + 1)):
                message = f"{title} must be {wanted} for {program.coll} with nchunksperloop {program.nchunksperloop}"
                yield Problem("chunk-count", f"{message}, got {count}", gpu.id)
    for title in ("i_chunks", "o_chunks", "s_chunks"):
        if not 0 <= getattr(gpu, title) <= MAX_OFFSET + 1:
            yield Problem("chunk-count", f"{title} must be in 0..{MAX_OFFSET + 1}, got {getattr(gpu, title)}", gpu.id)


def _blocks(program: Program, gpu: Gpu, most: int) -> Iterator[Problem]:
    count = len(gpu.threadblocks)
    ids = [block.id for block in gpu.threadblocks]
    if sorted(ids) != list(range(count)):
        yield Problem("tb-ids", f"tb ids must be 0..{count - 1}, each once, got {sorted(ids)}", gpu.id)
    if count > most:
        yield Problem("tb-limit", f"a GPU may have {most} thread blocks, got {count}", gpu.id)
    for block in gpu.threadblocks:
        for title, peer in (("send", block.send), ("recv", block.recv)):
            if not -1 <= peer < program.ngpus or peer == gpu.id:
                message = f"{title} must be -1 or another rank in 0..{program.ngpus - 1}, got {peer}"
                yield Problem("peer", message, gpu.id, block.id)
        if not 0 <= block.chan < MAX_CHANNELS:
            message = f"chan must be in 0..{MAX_CHANNELS - 1}, got {block.chan}"
            yield Problem("channel", message, gpu.id, block.id)
    for title in ("send", "recv"):
        users = Counter(block.chan for block in gpu.threadblocks if getattr(block, title) >= 0)
        for channel, number in sorted(users.items()):
            if number > MAX_PEERS_PER_CHANNEL:
                message = f"{MAX_PEERS_PER_CHANNEL} blocks may {title} on one channel, got {number} on {channel}"
                yield Problem("channel-limit", message, gpu.id)


def _steps(program: Program, gpu: Gpu, block: ThreadBlock, most: int) -> Iterator[Problem]:
    if len(block.steps) > most:
        message = f"a block may have {most} steps, got {len(block.steps)}"
        yield Problem("step-limit", message, gpu.id, block.id)
    for number, step in enumerate(block.steps):
        if step.s != number:
            yield Problem("step-ids", f"s must be {number}, got {step.s}", gpu.id, block.id, step.s)
        for rule, message in _step(program, gpu, block, step):
            yield Problem(rule, message, gpu.id, block.id, step.s)


def _step(program: Program, gpu: Gpu, block: ThreadBlock, step: Step) -> Iterator[tuple[str, str]]:
    if step.type not in STEP_TYPES:
        yield "step-type", f"type must be one of {', '.join(STEP_TYPES)}, got {step.type!r}"
        return
    if step.srcbuf not in BUFFERS or step.dstbuf not in BUFFERS:
        yield "buffer", f"buffers must be among {', '.join(BUFFERS)}, got {step.srcbuf!r} and {step.dstbuf!r}"
        return
    if step.type == "nop":
        return
    if not 1 <= step.cnt <= MAX_COUNT:
        yield "cnt", f"cnt must be in 1..{MAX_COUNT}, got {step.cnt}"
    if step.type in SENDING and block.send < 0:
        yield "peer-needed", f"type {step.type} sends, but the block's send peer is {block.send}"
    if step.type in RECEIVING and block.recv < 0:
        yield "peer-needed", f"type {step.type} receives, but the block's recv peer is {block.recv}"
    if step.type in READS_SOURCE:
        yield from _range(gpu, "src", step.srcbuf, step.srcoff, step.cnt)
    if step.type in WRITES:
        yield from _range(gpu, "dst", step.dstbuf, step.dstoff, step.cnt)


def _range(gpu: Gpu, title: str, buffer: str, offset: int, count: int) -> Iterator[tuple[str, str]]:
    chunks = gpu.i_chunks if buffer == "i" else gpu.o_chunks if buffer == "o" else gpu.s_chunks
    if offset < 0 or offset + count > chunks:
        last = offset + max(count, 1) - 1
        yield "offset", f"{title}off {offset} with cnt {count} must stay in {buffer}[0..{chunks - 1}], ends at {last}"


SHOWN = 8
"""Steps of a cycle that a message names."""


def verify(
    program: Program, runtime: str = "both", sm_count: int | None = None, max_scratch_bytes: int = MAX_SCRATCH_BYTES
) -> list[Problem]:
    """Every broken rule, or an empty list.

    `runtime`: `executor`, `original` or `both` (the narrower of each limit). `sm_count`: multiprocessors of the GPU, if
    known: more blocks than that can't run at the same time, and the program hangs. `max_scratch_bytes`: what a runtime
    may allocate on a GPU. Where numbers, types, peers or offsets are wrong, only those are reported, because the rest
    has no meaning without them.

    Raises `InputError` for an unknown runtime.
    """
    return examine(program, runtime, sm_count, max_scratch_bytes)[0]


def examine(
    program: Program, runtime: str, sm_count: int | None, max_scratch_bytes: int
) -> tuple[list[Problem], Flat | None]:
    """What `verify` finds, and the flat form of a program that has one."""
    if runtime not in RUNTIMES:
        raise InputError(f"runtime: must be one of {', '.join(RUNTIMES)}, got {runtime!r}")
    problems = list(structure_problems(program, RUNTIMES[runtime]))
    problems += allocation_problems(program, RUNTIMES[runtime], max_scratch_bytes)
    for gpu in program.gpus:
        if sm_count is not None and len(gpu.threadblocks) > sm_count:
            message = f"all thread blocks must run at once on {sm_count} multiprocessors, got {len(gpu.threadblocks)}"
            problems.append(Problem("co-residency", message, gpu.id))
    if any(problem.rule in SHAPELESS for problem in problems):
        return problems, None
    flat, found = flatten(program)
    problems += found
    problems += _connections(flat)
    problems += _dependencies(flat)
    problems += _nops(flat)
    problems += _fusions(flat)
    problems += _cycle(flat)
    return problems, flat


def _connections(flat: Flat) -> Iterator[Problem]:
    """Both sides of a connection exist, and the k-th send meets a k-th receive of the same cnt."""
    for number, (source, target, channel) in enumerate(flat.connections):
        triple = f"(sender {source}, receiver {target}, chan {channel})"
        if flat.receiver[number] < 0:
            yield Problem("peer-side", f"no block of gpu {target} receives {triple}", *flat.place[flat.sender[number]])
            continue
        if flat.sender[number] < 0:
            yield Problem("peer-side", f"no block of gpu {source} sends {triple}", *flat.place[flat.receiver[number]])
            continue
        sent, received = flat.transfers(number)
        for k, (one, other) in enumerate(zip(sent, received, strict=False)):
            if flat.steps[one].cnt != flat.steps[other].cnt:
                counts = f"cnt {flat.steps[other].cnt}, its send at {flat.name(one)} {flat.steps[one].cnt}"
                yield Problem("cnt-mismatch", f"receive {k} of {triple} has {counts}", *flat.where(other))
        if len(sent) != len(received):
            message = f"{triple} has {len(sent)} sends and {len(received)} receives"
            longer = sent if len(sent) > len(received) else received
            yield Problem("send-receive", message, *flat.where(longer[min(len(sent), len(received))]))


def _dependencies(flat: Flat) -> Iterator[Problem]:
    """A dependency names a real step of another block below the int8 limit, and that step says hasdep."""
    for number, target in enumerate(flat.awaited):
        if target < 0:
            continue
        where, block = flat.where(number), flat.place[flat.owner[target]][1]
        if flat.owner[number] == flat.owner[target]:
            yield Problem("dep-own-block", f"must not depend on its own block, got {flat.name(target)}", *where)
            continue
        if flat.steps[target].type == "nop":
            yield Problem("dep-nop", f"must not depend on a nop, got {flat.name(target)}", *where)
        elif not flat.steps[target].hasdep:
            yield Problem("dep-hasdep", f"hasdep must be 1, {flat.name(number)} waits for it", *flat.where(target))
        if block > MAX_DEPENDENCY_BLOCK:
            yield Problem("dep-limit", f"depid must be at most {MAX_DEPENDENCY_BLOCK} (int8), got {block}", *where)


def _nops(flat: Flat) -> Iterator[Problem]:
    """A nop carries a dependency, and a real step with a dependency of its own ends each chain of them.

    The parser hands the dependencies of nops to the next real step and refuses one that has none itself. The device
    counts the dependencies to number the steps: a nop without one shifts all later numbers.
    """
    before = -1
    for number, step in enumerate(flat.steps):
        where, block = flat.where(number), flat.owner[number]
        chained = before >= 0 and flat.owner[before] == block and flat.steps[before].type == "nop"
        if step.type == "nop":
            if step.depid < 0:
                yield Problem("nop-dep", "a nop must carry a dependency", *where)
            if number + 1 == flat.first[block + 1]:
                yield Problem("nop-chain", "a nop must not end a block: no step takes over its dependency", *where)
        elif chained and step.depid < 0:
            yield Problem("nop-chain", "the step after nops must carry a dependency itself", *where)
        before = number


def _fusions(flat: Flat) -> Iterator[Problem]:
    """Consecutive `re` steps that the parser fuses into one have one cnt: it keeps only the last."""
    for number, step in enumerate(flat.steps):
        head = flat.steps[number - 1]
        if number > flat.first[flat.owner[number]] and _fuses(head, step) and step.cnt != head.cnt:
            message = f"is fused with the re before it, cnt must be {head.cnt}, got {step.cnt}"
            yield Problem("re-fusion", message, *flat.where(number))


def _fuses(head: Step, step: Step) -> bool:
    places = (head.dstbuf, head.dstoff, head.srcbuf) == (step.dstbuf, step.dstoff, step.srcbuf)
    return head.type == step.type == "re" and places and step.depid == -1 and not head.hasdep


def _cycle(flat: Flat) -> Iterator[Problem]:
    """Program order, dependencies and messages have no cycle; one that stays in a GPU is named `dep-cycle`."""
    columns = columns_of(flat)
    stuck = set(np.flatnonzero(rounds_of(flat, columns) == 0).tolist())
    if not stuck:
        return
    waits: dict[int, list[int]] = {}
    for number in stuck:
        before = number - 1 if number > flat.first[flat.owner[number]] else -1
        waits[number] = [each for each in (before, flat.awaited[number], int(columns.sent_by[number])) if each >= 0]
    # Each stuck step waits for another stuck one, so following them must come round.
    path: dict[int, int] = {}
    at = min(stuck)
    while at not in path:
        path[at] = len(path)
        at = next(other for other in waits[at] if other in stuck)
    cycle = list(path)[path[at] :]
    turns = [number for k, number in enumerate(cycle) if flat.owner[number] != flat.owner[cycle[k - 1]]]
    names = [flat.name(number) for number in turns[:SHOWN]] + ["..."] * (len(turns) > SHOWN)
    rule = "dep-cycle" if len({flat.where(number)[0] for number in cycle}) == 1 else "order-cycle"
    message = f"{len(stuck)} steps can never run; they wait for each other: {' <- '.join(names)}"
    yield Problem(rule, message, *flat.where(cycle[0]))
