"""Read an MSCCL++ execution plan, anybody's, in the part of the format that program.py covers.

Raised errors are one line with file, field, rule and value. What lies outside that part (packets, switches, pipelines)
is refused by name rather than skipped: a plan that is read is read whole.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

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

__all__ = ["is_plan", "parse_plan", "read_plan"]

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
