"""The rules of an MSCCL++ plan that can be seen without running it: numbers, limits, and what names what.

The executor checks next to nothing of this: a number that is out of range reads past an array, and a signal that nobody
waits for shifts all that follow, in this call and the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gapless.io.mscclpp.program import (
    CHANNEL_TYPES,
    COLLECTIVES,
    LIMITS,
    OPERATIONS,
    SWITCH,
    Block,
    Chunks,
    Gpu,
    Operation,
    Plan,
    Shape,
)
from gapless.io.mscclpp.switches import block_switches, span_ranks, switch_problems
from gapless.io.taccl_ef.program import Problem

__all__ = ["MOVES", "block_peers", "buffer_chunks", "remote_buffers", "structure_problems"]


MOST_CHUNKS = 4_000_000
"""Of all GPUs together; far more than any plan has use for."""

MOVES = ("put", "pws", "pwsf", "get")
"""What moves spans one by one, where the others add up what they read."""


def structure_problems(plan: Plan) -> list[Problem]:
    """Every broken rule; where numbers name nothing, only those are reported, since the rest has no meaning."""
    problems = list(_gpu_ids(plan))
    if not problems:
        problems = [each for gpu in plan.gpus for each in (*_links(plan, gpu), *_blocks(gpu))]
    if not problems:
        problems = [each for gpu in plan.gpus for each in (*_operations(plan, gpu), *_semaphores(gpu))]
    return problems or [*_sides(plan), *switch_problems(plan)]


def block_peers(gpu: Gpu, block: Block, channel_type: str) -> list[int]:
    """The channels of a type that a block may use, as numbers in its GPU's list."""
    return [number for each in block.channels if each.channel_type == channel_type for number in each.channel_ids]


def remote_buffers(gpu: Gpu, block: Block, channel_type: str) -> list[tuple[int, str]]:
    """The (rank, buffer) of each peer's buffer that a block may use by a type of channel."""
    numbers = [n for each in block.remote_buffer_refs if each.channel_type == channel_type for n in each.buffer_ids]
    return [(gpu.remote_buffers[number].rank, gpu.remote_buffers[number].type) for number in numbers]


def buffer_chunks(gpu: Gpu, buffer: str) -> int:
    """Chunks of one of a GPU's own buffers."""
    return {"i": gpu.input_chunks, "o": gpu.output_chunks, "s": gpu.scratch_chunks}[buffer]


def _gpu_ids(plan: Plan) -> Iterator[Problem]:
    chunks = sum(gpu.input_chunks + gpu.output_chunks + gpu.scratch_chunks for gpu in plan.gpus)
    if chunks > MOST_CHUNKS:
        yield Problem("chunk-count", f"all buffers together may have {MOST_CHUNKS} chunks to be executed, got {chunks}")
    for number, gpu in enumerate(plan.gpus):
        if gpu.id != number:
            yield Problem("gpu-ids", f"the ids of the gpus must be 0, 1, ... in order, got {gpu.id} at {number}")
    if plan.min_message_bytes > plan.max_message_bytes:
        limits = f"got {plan.min_message_bytes} and {plan.max_message_bytes}"
        yield Problem("byte-range", f"min_message_size must be <= max_message_size, {limits}")
    for gpu in plan.gpus:
        for title, count, wanted in _wanted_counts(plan, gpu):
            if count != wanted:
                message = f"{title} must be {wanted} for {plan.collective} with the other buffer as it is, got {count}"
                yield Problem("chunk-count", message, gpu.id)


def _wanted_counts(plan: Plan, gpu: Gpu) -> Iterator[tuple[str, int, int]]:
    """(title, count, what it must be) of a GPU's buffers, as far as the collective says."""
    first = plan.gpus[0]
    yield "input_chunks", gpu.input_chunks, first.input_chunks
    yield "output_chunks", gpu.output_chunks, first.output_chunks
    if plan.collective not in COLLECTIVES:
        return
    ranks = len(plan.gpus)
    if plan.collective == "allgather":
        yield "output_chunks", gpu.output_chunks, gpu.input_chunks * ranks
    elif plan.collective == "reducescatter":
        yield "input_chunks", gpu.input_chunks, gpu.output_chunks * ranks
    else:
        yield "output_chunks", gpu.output_chunks, gpu.input_chunks


def _links(plan: Plan, gpu: Gpu) -> Iterator[Problem]:
    """Channels and remote buffers of a GPU lead to other ranks."""
    ranks = len(plan.gpus)
    for title, numbers in (
        ("connected_to", [peer for group in gpu.channels for peer in group.connected_to]),
        ("rank of a remote buffer", [each.rank for each in gpu.remote_buffers]),
    ):
        for peer in numbers:
            if not 0 <= peer < ranks or peer == gpu.id:
                yield Problem("peer", f"{title} must be another rank in 0..{ranks - 1}, got {peer}", gpu.id)


def _blocks(gpu: Gpu) -> Iterator[Problem]:
    """Numbers of blocks, and what blocks say that they use: it exists, fits the arrays, and is nobody else's."""
    users: Counter[tuple[str, int]] = Counter()
    for number, block in enumerate(gpu.threadblocks):
        if block.id != number:
            yield Problem("tb-ids", f"ids of blocks must be 0, 1, ... in order, got {block.id} at {number}", gpu.id)
        if len(block.ops) > LIMITS.operations:
            message = f"a block may have {LIMITS.operations} operations, got {len(block.ops)}"
            yield Problem("op-limit", message, gpu.id, number)
        for kind in CHANNEL_TYPES:
            chosen, count = block_peers(gpu, block, kind), len(gpu.peers(kind))
            for channel in chosen:
                users[kind, channel] += 1
                if channel >= count:
                    message = f"channel_ids must be among the {count} {kind} channels of the gpu, got {channel}"
                    yield Problem("channel", message, gpu.id, number)
            if len(chosen) > LIMITS.channels:
                message = f"a block may have {LIMITS.channels} {kind} channels, got {len(chosen)}"
                yield Problem("channel-limit", message, gpu.id, number)
        count = len(gpu.switches())
        for channel in (channel for channel in block_switches(block) if channel >= count):
            message = f"channel_ids must be among the {count} {SWITCH} channels of the gpu, got {channel}"
            yield Problem("channel", message, gpu.id, number)
        yield from _remote_ids(gpu, block)
    for (kind, channel), count in sorted(users.items()):
        if count > 1:
            message = f"{kind} channel {channel} must belong to one block, got {count}: they would take each other's"
            yield Problem("channel-shared", f"{message} signals", gpu.id)


def _remote_ids(gpu: Gpu, block: Block) -> Iterator[Problem]:
    for refs in block.remote_buffer_refs:
        if len(refs.buffer_ids) > LIMITS.remote_buffers:
            message = f"a block may reach {LIMITS.remote_buffers} remote buffers, got {len(refs.buffer_ids)}"
            yield Problem("remote-limit", message, gpu.id, block.id)
        for number in refs.buffer_ids:
            known = number < len(gpu.remote_buffers)
            if not known or refs.channel_type not in gpu.remote_buffers[number].access_channel_types:
                message = f"remote_buffer_ids must name a remote buffer with {refs.channel_type} access, got {number}"
                yield Problem("remote-buffer", message, gpu.id, block.id)


def _operations(plan: Plan, gpu: Gpu) -> Iterator[Problem]:
    for block in gpu.threadblocks:
        for number, operation in enumerate(block.ops):
            for rule, message in _operation(plan, gpu, block, operation):
                yield Problem(rule, f"{operation.name}: {message}", gpu.id, block.id, number)


def _operation(plan: Plan, gpu: Gpu, block: Block, operation: Operation) -> Iterator[tuple[str, str]]:
    shape = OPERATIONS[operation.name]
    if operation.channel_type not in (shape.channels or ("",)):
        yield "channel-type", f"channel_type must be {' or '.join(shape.channels) or 'left out'}, got what it can't use"
        return
    yield from _numbers(gpu, block, operation, shape)
    for title, spans, (fewest, most), local in (
        ("src_buff", operation.src, shape.reads, shape.local_reads),
        ("dst_buff", operation.dst, shape.writes, shape.local_writes),
    ):
        if not fewest <= len(spans) <= most:
            yield "span-count", f"{title} must have {fewest}..{most} entries, got {len(spans)}"
        others = "a switch channel's (switch_channel_id)" if SWITCH in shape.channels else "a peer's (buffer_id)"
        for number, chunks in enumerate(spans):
            is_there = chunks.switch_channel_id >= 0 if SWITCH in shape.channels else chunks.buffer_id >= 0
            if not (chunks.type if number < local else is_there):
                owner = "an own buffer (type)" if number < local else others
                yield "buffer", f"{title}[{number}] must be {owner}"
                return
            yield from _range(plan, gpu, block, operation, f"{title}[{number}]", chunks)
    yield from _sizes(operation, shape)


def _numbers(gpu: Gpu, block: Block, operation: Operation, shape: Shape) -> Iterator[tuple[str, str]]:
    """Channels and semaphores of an operation."""
    usable = len(block_peers(gpu, block, operation.channel_type))
    for number in operation.channel_ids:
        if number >= usable:
            yield "channel", f"channel_ids must be among the block's {usable}, got {number}"
    is_by_memory = operation.name in ("put", "get") and operation.channel_type == "memory"
    most = LIMITS.channels_per_operation if shape.has_channel_ids else 0
    fewest = 1 if shape.has_channel_ids and not is_by_memory else 0
    # `reduce` operations may name channels, and don't use them.
    if not shape.reduces and not fewest <= len(operation.channel_ids) <= most:
        yield "channel-count", f"channel_ids must have {fewest}..{most} entries, got {len(operation.channel_ids)}"
    most = LIMITS.semaphores_per_operation if shape.has_semaphores else 0
    if not min(most, 1) <= len(operation.semaphore_ids) <= most:
        yield "semaphore", f"semaphore_ids must have {min(most, 1)}..{most} entries, got {len(operation.semaphore_ids)}"
    for number in operation.semaphore_ids:
        if number >= len(gpu.semaphores):
            yield "semaphore", f"semaphore_ids must be among the gpu's {len(gpu.semaphores)}, got {number}"


def _range(
    plan: Plan, gpu: Gpu, block: Block, operation: Operation, title: str, chunks: Chunks
) -> Iterator[tuple[str, str]]:
    """A span lies inside its buffer, and a port leads to the rank whose buffer it is."""
    holder, buffer = gpu, chunks.type
    if chunks.switch_channel_id >= 0:
        usable = block_switches(block)
        if chunks.switch_channel_id >= len(usable):
            got = chunks.switch_channel_id
            yield "channel", f"{title}: switch_channel_id must be among the block's {len(usable)}, got {got}"
            return
        buffer, ranks = span_ranks(gpu, block, chunks)
        holders = [plan.gpus[rank] for rank in ranks if rank < len(plan.gpus)]
        holder = min(holders, key=lambda each: buffer_chunks(each, buffer), default=gpu)
    elif not buffer:
        known = remote_buffers(gpu, block, operation.channel_type)
        if chunks.buffer_id >= len(known):
            yield "remote-buffer", f"{title}: buffer_id must be among the block's {len(known)}, got {chunks.buffer_id}"
            return
        rank, buffer = known[chunks.buffer_id]
        holder = plan.gpus[rank]
    count = buffer_chunks(holder, buffer)
    if chunks.index + chunks.size > count:
        last = chunks.index + chunks.size - 1
        yield "offset", f"{title} must stay in {buffer}[0..{count - 1}] of gpu {holder.id}, ends at {last}"


def _sizes(operation: Operation, shape: Shape) -> Iterator[tuple[str, str]]:
    if operation.name in MOVES:
        if len(operation.src) != len(operation.dst):
            yield "span-count", f"src_buff must match dst_buff, got {len(operation.src)} and {len(operation.dst)}"
        elif any(one.size != other.size for one, other in zip(operation.src, operation.dst, strict=True)):
            yield "size", "the sizes of src_buff and dst_buff must be the same"
        elif operation.name == "get" and any(
            one.index != other.index for one, other in zip(operation.src, operation.dst, strict=True)
        ):
            yield "index", "src_buff and dst_buff must have one index: the executor takes each for the other"
        if operation.name == "put" and operation.channel_type == "memory" and len({s.type for s in operation.src}) > 1:
            yield "buffer", "by memory, all of src_buff must be one buffer: the executor takes the first one's for all"
        if operation.channel_type == "port" and len(operation.channel_ids) != len(operation.dst):
            yield "channel-count", f"channel_ids must have one entry for each of the {len(operation.dst)} in dst_buff"
    elif operation.src and len({each.size for each in (*operation.src, *operation.dst)}) > 1:
        yield "size", "all spans must have one size"


def _semaphores(gpu: Gpu) -> Iterator[Problem]:
    """A semaphore has one block that releases it and one that acquires it, and starts at 0.

    Otherwise who goes first is a matter of luck, which an execution in one order can't judge.
    """
    users: dict[tuple[str, int], set[int]] = {}
    for block in gpu.threadblocks:
        for operation in block.ops:
            for number in operation.semaphore_ids:
                users.setdefault((operation.name, number), set()).add(block.id)
    for (name, number), blocks in sorted(users.items()):
        if len(blocks) > 1:
            message = f"semaphore {number} must have one block for {name}, got {sorted(blocks)}: not covered"
            yield Problem("semaphore", message, gpu.id)
    for number, semaphore in enumerate(gpu.semaphores):
        if value := semaphore.init_value:
            yield Problem("semaphore", f"semaphore {number} must start at 0, got {value}: not covered", gpu.id)


def _sides(plan: Plan) -> Iterator[Problem]:
    """A channel that a block uses has a block at the other end, and a port's put goes to its channel's rank."""
    for gpu in plan.gpus:
        for kind in CHANNEL_TYPES:
            peers = gpu.peers(kind)
            for block in gpu.threadblocks:
                for channel in block_peers(gpu, block, kind):
                    peer = peers[channel]
                    turn = peers[: channel + 1].count(peer)
                    if plan.gpus[peer].peers(kind).count(gpu.id) < turn:
                        message = f"{kind} channel {channel} is number {turn} to gpu {peer}, which has none back"
                        yield Problem("peer-side", message, gpu.id, block.id)
        for block in gpu.threadblocks:
            yield from _port_targets(gpu, block)


def _port_targets(gpu: Gpu, block: Block) -> Iterator[Problem]:
    channels, buffers = block_peers(gpu, block, "port"), remote_buffers(gpu, block, "port")
    peers = gpu.peers("port")
    for number, operation in enumerate(block.ops):
        if operation.channel_type == "port" and operation.dst:
            for channel, chunks in zip(operation.channel_ids, operation.dst, strict=True):
                peer, holder = peers[channels[channel]], buffers[chunks.buffer_id][0]
                if peer != holder:
                    message = f"{operation.name}: the channel leads to gpu {peer}, the buffer is gpu {holder}'s"
                    yield Problem("peer", message, gpu.id, block.id, number)
