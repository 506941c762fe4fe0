"""Read and write MSCCL++ execution plans, in the part of the format that program.py covers.

Raised errors are one line with file, field, rule and value. What lies outside that part (packets, switches, pipelines)
is refused by name rather than skipped: a plan that is read is read whole. One operation is written a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from gapless.io.atomic import write_lines
from gapless.io.mscclpp.program import (
    BUFFERS,
    CHANNEL_TYPES,
    LIMITS,
    MAX_MESSAGE_BYTES,
    OPERATIONS,
    Block,
    ChannelIds,
    Channels,
    Chunks,
    Gpu,
    Operation,
    Plan,
    RemoteBuffer,
    RemoteIds,
)
from gapless.io.record import Record, load_record, parse_record

__all__ = ["is_plan", "parse_plan", "plan_lines", "plan_text", "read_plan", "write_plan"]


T = TypeVar("T")
MOST = 2**31 - 1
"""Counts and indices are 32-bit numbers in the executor."""
HEAD = 4096
"""Characters of a file in which a format of ours says its name."""


def is_plan(path: Path | str) -> bool:
    """Whether a JSON file looks like an MSCCL++ plan and not like one of ours, which say their format first."""
    try:
        with Path(path).open(encoding="utf-8") as stream:
            if '"format"' in stream.read(HEAD):
                return False
        record = load_record(path)
    except (OSError, ValueError):
        return False
    return "gpus" in record and "format" not in record


def read_plan(path: Path | str) -> Plan:
    """The plan in a file. Raises `InputError` for an unreadable file, or one that is no plan or not covered."""
    return _plan(load_record(path))


def parse_plan(text: str, source: str) -> Plan:
    """The plan in a text; `source` names it in messages."""
    return _plan(parse_record(text, source))


def _plan(record: Record) -> Plan:
    record.text("protocol", choices=["Simple"])
    for field in ("reuse_resources", "use_double_scratch_buffer"):
        if record.boolean(field, default=False):
            raise record.fail(field, "false: the scratch buffer of calls in a row is not covered", True)
    gpus = _each(record, "gpus", _gpu)
    if len(gpus) < 2:
        raise record.fail("gpus", "a list of at least 2 GPUs", [gpu.id for gpu in gpus])
    plan = Plan(
        name=record.text("name"),
        collective=record.text("collective"),
        inplace=record.boolean("inplace"),
        gpus=gpus,
        num_threads_per_block=record.integer("num_threads_per_block", 1, LIMITS.threads, default=1024),
        buffer_alignment=record.integer("buffer_alignment", 1, MOST, default=16),
        min_message_bytes=record.integer("min_message_size", 0, MAX_MESSAGE_BYTES, default=0),
        max_message_bytes=record.integer("max_message_size", 0, MAX_MESSAGE_BYTES, default=MAX_MESSAGE_BYTES),
    )
    record.close()
    return plan


def _each(record: Record, title: str, read: Callable[[Record], T], **default: Any) -> tuple[T, ...]:
    """What `read` makes of each record of a list; a record with other fields than those that it read is refused."""
    found = []
    for entry in record.records(title, **default):
        found.append(read(entry))
        entry.close()
    return tuple(found)


def _gpu(record: Record) -> Gpu:
    return Gpu(
        id=record.integer("id", 0, MOST),
        # The executor divides by both counts.
        input_chunks=record.integer("input_chunks", 1, MOST),
        output_chunks=record.integer("output_chunks", 1, MOST),
        scratch_chunks=record.integer("scratch_chunks", 0, MOST),
        threadblocks=_each(record, "threadblocks", _block),
        channels=_each(record, "channels", _channels),
        remote_buffers=_each(record, "remote_buffers", _remote_buffer),
        semaphores=_each(record, "semaphores", lambda entry: int(entry.integer("init_value", 0, MOST)), default=[]),
    )


def _channels(record: Record) -> Channels:
    return Channels(record.text("channel_type", choices=CHANNEL_TYPES), record.integers("connected_to", 0, MOST))


def _remote_buffer(record: Record) -> RemoteBuffer:
    types = record.array("access_channel_types")
    for kind in types:
        if kind not in CHANNEL_TYPES:
            raise record.fail("access_channel_types", f"a list of {' and '.join(CHANNEL_TYPES)}", types)
    return RemoteBuffer(record.integer("rank", 0, MOST), record.text("type", choices=BUFFERS), tuple(types))


def _block(record: Record) -> Block:
    return Block(
        id=record.integer("id", 0, MOST),
        ops=_each(record, "ops", _operation),
        channels=_each(record, "channels", _channel_ids),
        remote_buffer_refs=_each(record, "remote_buffer_refs", _remote_ids, default=[]),
    )


def _channel_ids(record: Record) -> ChannelIds:
    return ChannelIds(record.text("channel_type", choices=CHANNEL_TYPES), record.integers("channel_ids", 0, MOST))


def _remote_ids(record: Record) -> RemoteIds:
    kind = record.text("access_channel_type", choices=CHANNEL_TYPES)
    return RemoteIds(kind, record.integers("remote_buffer_ids", 0, MOST))


def _operation(record: Record) -> Operation:
    record.text("reduce_op", choices=["sum"], default="sum")
    return Operation(
        name=record.text("name", choices=OPERATIONS),
        src=_each(record, "src_buff", _chunks, default=[]),
        dst=_each(record, "dst_buff", _chunks, default=[]),
        channel_type=record.text("channel_type", choices=CHANNEL_TYPES, default=""),
        channel_ids=record.integers("channel_ids", 0, MOST, default=()),
        semaphore_ids=record.integers("semaphore_ids", 0, MOST, default=()),
    )


def _chunks(record: Record) -> Chunks:
    chunks = Chunks(
        index=record.integer("index", 0, MOST),
        size=record.integer("size", 1, MOST),
        type=record.text("type", choices=BUFFERS, default=""),
        buffer_id=record.integer("buffer_id", 0, MOST, default=-1),
    )
    if bool(chunks.type) == (chunks.buffer_id >= 0):
        raise record.fail("type", "there, or buffer_id, one of the two", chunks.type)
    return chunks


def write_plan(path: Path | str, plan: Plan) -> None:
    """Write the file; an existing one is replaced only by a complete new one."""
    write_lines(path, (f"{line}\n" for line in plan_lines(plan)))


def plan_text(plan: Plan) -> str:
    """The file's text; the same plan gives the same bytes."""
    return "".join(f"{line}\n" for line in plan_lines(plan))


def plan_lines(plan: Plan) -> Iterator[str]:
    """The same line by line, without the ends of lines."""
    head = {
        "name": plan.name,
        "collective": plan.collective,
        "protocol": "Simple",
        "inplace": plan.inplace,
        "reuse_resources": False,
    }
    tail = {
        "num_threads_per_block": plan.num_threads_per_block,
        "use_double_scratch_buffer": False,
        "buffer_alignment": plan.buffer_alignment,
        "min_message_size": plan.min_message_bytes,
        "max_message_size": plan.max_message_bytes,
    }
    yield from ("{", *_fields(head, 2), '  "gpus": [')
    for number, gpu in enumerate(plan.gpus):
        yield from _gpu_lines(gpu, number + 1 == len(plan.gpus))
    yield from ("  ],", *_fields(tail, 2, is_last=True), "}")


def _fields(data: dict[str, Any], indent: int, is_last: bool = False) -> list[str]:
    """One field a line; the last one without a comma where nothing follows."""
    lines = [f"{' ' * indent}{json.dumps(key)}: {json.dumps(value)}," for key, value in data.items()]
    return [*lines[:-1], lines[-1][:-1]] if is_last else lines


def _gpu_lines(gpu: Gpu, is_last: bool) -> Iterator[str]:
    chunks = {
        "id": gpu.id,
        "input_chunks": gpu.input_chunks,
        "output_chunks": gpu.output_chunks,
        "scratch_chunks": gpu.scratch_chunks,
    }
    links = {
        "channels": [
            {"channel_type": group.channel_type, "connected_to": list(group.connected_to)} for group in gpu.channels
        ],
        "remote_buffers": [
            {"rank": each.rank, "type": each.type, "access_channel_types": list(each.access_channel_types)}
            for each in gpu.remote_buffers
        ],
        "semaphores": [{"init_value": value} for value in gpu.semaphores],
    }
    yield "    {"
    yield from _fields(chunks, 6)
    yield '      "threadblocks": ['
    for number, block in enumerate(gpu.threadblocks):
        yield from _block_lines(block, number + 1 == len(gpu.threadblocks))
    yield "      ],"
    yield from _fields(links, 6, is_last=True)
    yield "    }" + "," * (not is_last)


def _block_lines(block: Block, is_last: bool) -> Iterator[str]:
    yield f'        {{"id": {block.id}, "ops": ['
    for number, operation in enumerate(block.ops):
        yield f"          {json.dumps(_operation_data(operation))}" + "," * (number + 1 < len(block.ops))
    groups = [{"channel_type": each.channel_type, "channel_ids": list(each.channel_ids)} for each in block.channels]
    refs = [
        {"access_channel_type": each.channel_type, "remote_buffer_ids": list(each.buffer_ids)}
        for each in block.remote_buffer_refs
    ]
    yield f'        ], "channels": {json.dumps(groups)}, "remote_buffer_refs": {json.dumps(refs)}}}' + "," * (
        not is_last
    )


def _operation_data(operation: Operation) -> dict[str, Any]:
    data: dict[str, Any] = {"name": operation.name}
    if operation.src:
        data["src_buff"] = [_chunks_data(each) for each in operation.src]
    if operation.dst:
        data["dst_buff"] = [_chunks_data(each) for each in operation.dst]
    if operation.channel_ids:
        data["channel_ids"] = list(operation.channel_ids)
    if operation.channel_type:
        data["channel_type"] = operation.channel_type
    if operation.semaphore_ids:
        data["semaphore_ids"] = list(operation.semaphore_ids)
    if operation.name in ("re", "res", "rre", "rres"):
        data["reduce_op"] = "sum"
    return data


def _chunks_data(chunks: Chunks) -> dict[str, Any]:
    where = {"type": chunks.type} if chunks.type else {"buffer_id": chunks.buffer_id}
    return {**where, "index": chunks.index, "size": chunks.size}
