"""Buckets for PyTorch's DistributedDataParallel (DDP): one for each group of a fusion plan.

JSON, format `gapless.ddp-buckets`, version 1; parameters stand in the order in which their gradients become ready::

    {"format": "gapless.ddp-buckets", "version": 1, "profile": "tiny", "torch": "2.13.0", "assumes": ["..."],
     "bucket_cap_mb_list": [0.00390625, 0.0009765625],
     "parameter_order": ["fc.weight", "conv.weight"],
     "buckets": [{"size_bytes": 4096, "mode": "topk:0.01", "parameters": [{"name": "fc.weight", "size_bytes": 4096}]},
                 {"size_bytes": 1024, "mode": "plain", "parameters": [{"name": "conv.weight", "size_bytes": 1024}]}]}

After its first synchronised backward pass, DDP walks through the parameters in the order in which rank 0's gradients
became ready, adds each to the open bucket, and closes that once its bytes reach its cap; the last cap serves all
further buckets. So a group's own bytes are its cap, whatever the order within the group. A cap in MiB is a whole number
over 2^20, exact in a float, and DDP's `int(cap * 2**20)` gives that number back.

`mode`, in all buckets or in none, is how the hook of `gapless.torch.ddp` sends a bucket.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.record import Record, load_record

__all__ = ["DdpBuckets", "assigned_groups", "ddp_buckets_text", "read_ddp_buckets", "write_ddp_buckets"]

_FORMAT = "gapless.ddp-buckets"
_VERSION = 1
_CHECKED_WITH_TORCH = "2.13.0"
_BYTES_PER_MIB = 2**20
_LARGEST_BYTES = 2**53  # beyond, a float can't hold every whole number of bytes

ASSUMES = (
    "torch 2.11 or newer: DistributedDataParallel(model, bucket_cap_mb_list=[...])",
    "rank 0's gradients become ready in parameter_order; within a bucket any order will do",
    "all parameters have one dtype and one device, none has a sparse gradient, and each gets a gradient in every step",
    "find_unused_parameters is False, unless static_graph is True: else DDP never rebuilds its buckets",
    "DDP_SET_LAST_BUCKET_CAP is not 1 in the environment: it applies the caps from the end",
    "buckets are these from iteration 1 on (counted from 0; 2 with static_graph=True); before, DDP applies the caps to "
    "the order of registration",
)


@dataclass(frozen=True)
class DdpBuckets:
    """Which gradients DDP reduces together.

    `parameter_names`, `parameter_bytes`: in the order in which the gradients become ready. `groups`: (first, last) of
    each bucket, both inclusive. `profile`: the name of the workload. `modes`: how each bucket is sent, by the names of
    `gapless.torch.ddp.modes`; empty where that is not said.
    Raises `InputError` where the groups don't cut the parameters into consecutive parts, and where DDP would make other
    buckets of them: a gradient of 0 bytes can't be the last of a larger group, since the bucket is full before it.
    """

    profile: str
    parameter_names: tuple[str, ...]
    parameter_bytes: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    modes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.parameter_names)
        if len(self.parameter_bytes) != count:
            raise InputError(f"parameter_bytes: must have one entry for each of {count} parameters")
        if len(set(self.parameter_names)) < count:
            twice = next(name for k, name in enumerate(self.parameter_names) if name in self.parameter_names[:k])
            raise InputError(f"parameter_names: names must differ, got {twice!r} twice")
        for name, size in zip(self.parameter_names, self.parameter_bytes, strict=True):
            if size < 0:
                raise InputError(f"parameter {name!r}: bytes must be >= 0, got {size}")
        if sum(self.parameter_bytes) > _LARGEST_BYTES:
            raise InputError(f"parameter_bytes: must add up to at most 2^53, got {sum(self.parameter_bytes)}")
        self._check_cover()
        self._check_reproduced()
        if self.modes and len(self.modes) != len(self.groups):
            raise InputError(f"modes: must be one for each of {len(self.groups)} buckets, got {len(self.modes)}")

    def _check_cover(self) -> None:
        first, last = 0, len(self.parameter_names) - 1
        for number, group in enumerate(self.groups):
            if group[0] != first or group[1] < group[0]:
                raise InputError(f"groups[{number}]: must be [{first}, last] with last >= {first}, got {list(group)}")
            first = group[1] + 1
        if not self.groups or first != last + 1:
            raise InputError(f"groups: must be at least one, and end with parameter {last}, got {first - 1}")

    def _check_reproduced(self) -> None:
        made = assigned_groups(self.parameter_bytes, self.bucket_cap_mb_list)
        for number, (wanted, got) in enumerate(zip(self.groups, made, strict=False)):
            if wanted != got:
                why = "a bucket is full before a group's last gradients of 0 bytes; leave those out of the profile"
                raise InputError(f"groups[{number}]: DDP would make {list(got)} of {list(wanted)}: {why}")

    @property
    def bucket_bytes(self) -> tuple[int, ...]:
        """The bytes of each bucket."""
        return tuple(sum(self.parameter_bytes[first : last + 1]) for first, last in self.groups)

    @property
    def bucket_cap_mb_list(self) -> tuple[float, ...]:
        """DDP's argument of that name: the bytes of each bucket in MiB."""
        return tuple(size / _BYTES_PER_MIB for size in self.bucket_bytes)

    @property
    def buckets(self) -> tuple[tuple[str, ...], ...]:
        """The parameters of each bucket, in the order in which their gradients become ready."""
        return tuple(self.parameter_names[first : last + 1] for first, last in self.groups)


def assigned_groups(size_bytes: Sequence[int], bucket_cap_mb_list: Sequence[float]) -> list[tuple[int, int]]:
    """The (first, last) gradient of each bucket that DDP makes of gradients in ready order.

    As PyTorch's `compute_bucket_assignment_by_size` for gradients of one dtype and device.
    """
    caps = [int(cap * _BYTES_PER_MIB) for cap in bucket_cap_mb_list]
    made: list[tuple[int, int]] = []
    first = held_bytes = 0
    for number, size in enumerate(size_bytes):
        held_bytes += size
        if held_bytes >= caps[min(len(made), len(caps) - 1)]:
            made.append((first, number))
            first, held_bytes = number + 1, 0
    if first < len(size_bytes):
        made.append((first, len(size_bytes) - 1))
    return made


def write_ddp_buckets(path: str | Path, buckets: DdpBuckets) -> None:
    """Write the buckets, whole or not at all."""
    write_text(path, ddp_buckets_text(buckets))


def ddp_buckets_text(buckets: DdpBuckets) -> str:
    """The buckets as JSON, one bucket a line."""
    head = {
        "format": _FORMAT,
        "version": _VERSION,
        "profile": buckets.profile,
        "torch": _CHECKED_WITH_TORCH,
        "assumes": list(ASSUMES),
        "bucket_cap_mb_list": list(buckets.bucket_cap_mb_list),
        "parameter_order": list(buckets.parameter_names),
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    rows = ",\n ".join(json.dumps(row) for row in _bucket_rows(buckets))
    return "{" + ",\n".join(lines) + f',\n"buckets": [\n {rows}]}}\n'


def _bucket_rows(buckets: DdpBuckets) -> list[dict[str, object]]:
    parameters = [
        {"name": name, "size_bytes": size}
        for name, size in zip(buckets.parameter_names, buckets.parameter_bytes, strict=True)
    ]
    modes = [{"mode": mode} for mode in buckets.modes] or [{}] * len(buckets.groups)
    return [
        {"size_bytes": size, **mode, "parameters": parameters[first : last + 1]}
        for size, mode, (first, last) in zip(buckets.bucket_bytes, modes, buckets.groups, strict=True)
    ]


def read_ddp_buckets(path: str | Path) -> DdpBuckets:
    """The buckets in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    record = load_record(path)
    record.of_format(_FORMAT, _VERSION)
    record.text("torch", default="")
    record.array("assumes", default=[])
    names: list[str] = []
    sizes: list[int] = []
    groups: list[tuple[int, int]] = []
    modes: list[str] = []
    for bucket in record.records("buckets"):
        first = len(names)
        for parameter in bucket.records("parameters"):
            names.append(parameter.text("name"))
            sizes.append(parameter.integer("size_bytes", 0, _LARGEST_BYTES))
            parameter.close()
        groups.append((first, len(names) - 1))
        _check_same(bucket, "size_bytes", sum(sizes[first:]))
        if "mode" in bucket:
            modes.append(bucket.text("mode"))
        bucket.close()
    try:
        buckets = DdpBuckets(record.text("profile"), tuple(names), tuple(sizes), tuple(groups), tuple(modes))
    except InputError as error:  # the buckets name the field, not the file
        message = str(error)
        raise InputError(message if message.startswith(str(path)) else f"{path}: {message}") from None
    _check_same(record, "bucket_cap_mb_list", list(buckets.bucket_cap_mb_list))
    _check_same(record, "parameter_order", names)
    record.close()
    return buckets


def _check_same(record: Record, key: str, expected: Any) -> None:
    if record.raw(key) != expected:
        raise record.fail(key, f"what the parameters give, {json.dumps(expected)[:60]}", record.raw(key))
