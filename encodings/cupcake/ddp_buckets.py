"""Fusion plans as buckets for PyTorch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.ddp_buckets import DdpBuckets, write_ddp_buckets
from gapless.io.record import Record

__all__ = ["export_ddp_buckets", "to_ddp_buckets"]


def to_ddp_buckets(problem: Mapping[str, Any], details: Mapping[str, Any], where: str = "plan") -> DdpBuckets:
    """The buckets of a fusion plan, from its `problem` and `details` sections.

    Raises `InputError` naming `where` and the field, also where DDP can't reproduce the plan's groups.
    """
    asked, found = Record(dict(problem), f"{where}: problem"), Record(dict(details), f"{where}: details")
    if asked.integer("pieces_bytes", 1, default=None) is not None:
        raise InputError(f"{where}: problem: pieces_bytes: DDP keeps every gradient whole; solve without pieces")
    profile = asked.text("profile")
    names = tuple(_name(asked, number, name) for number, name in enumerate(asked.array("tensor_names")))
    sizes = asked.integers("tensor_bytes", 0)
    groups = tuple(_group(found, number, group) for number, group in enumerate(found.array("groups")))
    modes = tuple(_mode(found, number, mode) for number, mode in enumerate(found.array("modes", default=[])))
    try:
        return DdpBuckets(profile, names, sizes, groups, modes)
    except InputError as error:  # the buckets name the field, not the file
        raise InputError(f"{where}: {error}") from None


def _name(record: Record, number: int, name: Any) -> str:
    if not isinstance(name, str):
        raise record.fail(f"tensor_names[{number}]", "a string", name)
    return name


def _mode(record: Record, number: int, mode: Any) -> str:
    if not isinstance(mode, str):
        raise record.fail(f"modes[{number}]", "the name of a mode", mode)
    return mode


def _group(record: Record, number: int, group: Any) -> tuple[int, int]:
    if not isinstance(group, list) or len(group) != 2 or any(type(end) is not int for end in group):
        raise record.fail(f"groups[{number}]", "[first, last] in whole numbers", group)
    return group[0], group[1]


def export_ddp_buckets(
    path: str | Path, problem: Mapping[str, Any], details: Mapping[str, Any], where: str = "plan"
) -> DdpBuckets:
    """Write the buckets of a fusion plan, whole or not at all; returns them."""
    buckets = to_ddp_buckets(problem, details, where)
    write_ddp_buckets(path, buckets)
    return buckets
