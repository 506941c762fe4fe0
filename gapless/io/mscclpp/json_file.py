"""Read and write MSCCL++ execution plans, in the part of the format that program.py covers.

Raised errors are one line with file, field, rule and value. What lies outside that part (packets, pipelines, barriers)
is refused by name rather than skipped: a plan that is read is read whole. One operation is written a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gapless.io.atomic import write_lines
from gapless.io.mscclpp.program import Chunks, Plan
from gapless.io.record import Record, load_record, parse_record
from gapless.io.typed import data_of, read_record

__all__ = ["is_plan", "parse_plan", "plan_lines", "plan_text", "read_plan", "write_plan"]


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
    gpus = record.records("gpus")
    if len(gpus) < 2:
        raise record.fail("gpus", "a list of at least 2 GPUs", [gpu.raw("id") for gpu in gpus])
    plan = read_record(Plan, record)
    for where, chunks in _all_chunks(plan):
        if sum((bool(chunks.type), chunks.buffer_id >= 0, chunks.switch_channel_id >= 0)) != 1:
            rule = "there, or buffer_id, or switch_channel_id, one of the three"
            raise record.fail(f"{where}: type", rule, chunks.type)
    return plan


def _all_chunks(plan: Plan) -> Iterator[tuple[str, Chunks]]:
    """What operations move, and where it stands in the file."""
    for g, gpu in enumerate(plan.gpus):
        for b, block in enumerate(gpu.threadblocks):
            for k, operation in enumerate(block.ops):
                for title, some in (("src_buff", operation.src), ("dst_buff", operation.dst)):
                    for n, chunks in enumerate(some):
                        yield f"gpus[{g}]: threadblocks[{b}]: ops[{k}]: {title}[{n}]", chunks


def write_plan(path: Path | str, plan: Plan) -> None:
    """Write the file; an existing one is replaced only by a complete new one."""
    write_lines(path, (f"{line}\n" for line in plan_lines(plan)))


def plan_text(plan: Plan) -> str:
    """The file's text; the same plan gives the same bytes."""
    return "".join(f"{line}\n" for line in plan_lines(plan))


def plan_lines(plan: Plan) -> Iterator[str]:
    """The same line by line, without the ends of lines."""
    data = data_of(plan)
    head = {
        "name": plan.name, "collective": plan.collective, "protocol": "Simple", "inplace": plan.inplace,
        "reuse_resources": False,
    }  # fmt: skip
    tail = {"num_threads_per_block": plan.num_threads_per_block, "use_double_scratch_buffer": False}
    tail |= {name: data[name] for name in ("buffer_alignment", "min_message_size", "max_message_size")}
    yield from ("{", *_fields(head, 2), '  "gpus": [')
    for number, gpu in enumerate(data["gpus"]):
        yield from _gpu_lines(gpu, number + 1 == len(plan.gpus))
    yield from ("  ],", *_fields(tail, 2, is_last=True), "}")


def _fields(data: Mapping[str, object], indent: int, is_last: bool = False) -> list[str]:
    """One field a line; the last one without a comma where nothing follows."""
    lines = [f"{' ' * indent}{json.dumps(key)}: {json.dumps(value)}," for key, value in data.items()]
    return [*lines[:-1], lines[-1][:-1]] if is_last else lines


def _gpu_lines(gpu: dict[str, Any], is_last: bool) -> Iterator[str]:
    links = {name: gpu.pop(name) for name in ("channels", "remote_buffers", "semaphores")}
    blocks = gpu.pop("threadblocks")
    yield from ("    {", *_fields(gpu, 6), '      "threadblocks": [')
    for number, block in enumerate(blocks):
        ops = block.pop("ops")
        yield f'        {{"id": {block.pop("id")}, "ops": ['
        for k, operation in enumerate(ops):
            yield f"          {json.dumps(operation)}" + "," * (k + 1 < len(ops))
        yield f"        ], {json.dumps(block)[1:]}" + "," * (number + 1 < len(blocks))
    yield from ("      ],", *_fields(links, 6, is_last=True), "    }" + "," * (not is_last))
