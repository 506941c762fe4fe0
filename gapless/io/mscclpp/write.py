"""Write an MSCCL++ execution plan as JSON, one operation a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapless.io.atomic import write_lines
from gapless.io.mscclpp.program import Block, Chunks, Gpu, Operation, Plan

__all__ = ["plan_lines", "plan_text", "write_plan"]


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
        yield from _gpu(gpu, number + 1 == len(plan.gpus))
    yield from ("  ],", *_fields(tail, 2, is_last=True), "}")


def _fields(data: dict[str, Any], indent: int, is_last: bool = False) -> list[str]:
    """One field a line; the last one without a comma where nothing follows."""
    lines = [f"{' ' * indent}{json.dumps(key)}: {json.dumps(value)}," for key, value in data.items()]
    return [*lines[:-1], lines[-1][:-1]] if is_last else lines


def _gpu(gpu: Gpu, is_last: bool) -> Iterator[str]:
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
        yield from _block(block, number + 1 == len(gpu.threadblocks))
    yield "      ],"
    yield from _fields(links, 6, is_last=True)
    yield "    }" + "," * (not is_last)


def _block(block: Block, is_last: bool) -> Iterator[str]:
    yield f'        {{"id": {block.id}, "ops": ['
    for number, operation in enumerate(block.ops):
        yield f"          {json.dumps(_operation(operation))}" + "," * (number + 1 < len(block.ops))
    groups = [{"channel_type": each.channel_type, "channel_ids": list(each.channel_ids)} for each in block.channels]
    refs = [
        {"access_channel_type": each.channel_type, "remote_buffer_ids": list(each.buffer_ids)}
        for each in block.remote_buffer_refs
    ]
    yield f'        ], "channels": {json.dumps(groups)}, "remote_buffer_refs": {json.dumps(refs)}}}' + "," * (
        not is_last
    )


def _operation(operation: Operation) -> dict[str, Any]:
    data: dict[str, Any] = {"name": operation.name}
    if operation.src:
        data["src_buff"] = [_chunks(each) for each in operation.src]
    if operation.dst:
        data["dst_buff"] = [_chunks(each) for each in operation.dst]
    if operation.channel_ids:
        data["channel_ids"] = list(operation.channel_ids)
    if operation.channel_type:
        data["channel_type"] = operation.channel_type
    if operation.semaphore_ids:
        data["semaphore_ids"] = list(operation.semaphore_ids)
    if operation.name in ("re", "res", "rre", "rres"):
        data["reduce_op"] = "sum"
    return data


def _chunks(chunks: Chunks) -> dict[str, Any]:
    where = {"type": chunks.type} if chunks.type else {"buffer_id": chunks.buffer_id}
    return {**where, "index": chunks.index, "size": chunks.size}
