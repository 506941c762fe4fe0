"""The rules of TACCL-EF that look at one element at a time: numbers, limits, names, chunk counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gapless.io.taccl_ef.program import (
    BUFFERS,
    MAX_CHANNELS,
    MAX_CHILDREN,
    MAX_COUNT,
    MAX_NODES,
    MAX_OFFSET,
    MAX_PEERS_PER_CHANNEL,
    PROTOCOLS,
    READS_SOURCE,
    RECEIVING,
    SENDING,
    STEP_TYPES,
    WRITES,
    Gpu,
    Problem,
    Program,
    Step,
    ThreadBlock,
)
from gapless.io.taccl_ef.runtimes import Runtime, load_problems

__all__ = ["SHAPELESS", "buffer_chunks", "structure_problems"]

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
