"""Groups files: which collectives work at the same time, among which ranks.

JSON, format `gapless.groups`, version 1, `//` comments allowed. A group names its ranks, or the axes along which ranks
are laid out (`gapless/ir/process_groups.py`), which makes a group for each place on the others::

    {"format": "gapless.groups", "version": 1, "groups": [
      {"axes": "ep=8", "collective": "alltoall", "size": "64MB"},
      {"ranks": [0, 1, 2, 3], "collective": "broadcast", "size": "1MB", "root": 2}]}

`collective` and `size` may be left out where the question says them. `root` and `target` are positions in the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gapless.errors import InputError
from gapless.io.record import Record, load_record
from gapless.ir.collective import COLLECTIVES
from gapless.ir.process_groups import Group, Groups, groups_of
from gapless.units import parse_bytes

__all__ = ["groups_from", "read_groups"]

FORMAT, VERSION = "gapless.groups", 1

_MOST_BYTES = 10**15


def read_groups(path: str | Path, rank_count: int, collective: str, size_bytes: int | None) -> list[Group]:
    """The groups of a file; what it leaves out is as given. Raises `InputError` naming file and field."""
    record = load_record(path)
    record.of_format(FORMAT, VERSION)
    found: list[Group] = []
    if not (entries := record.records("groups")):
        raise record.fail("groups", "at least one group", [])
    for entry in entries:
        name = entry.text("collective", COLLECTIVES, default=collective)
        text = entry.text("size", default=None)
        size = size_bytes if text is None else parse_bytes(text, f"{entry.where}: size")
        ends = (entry.integer("root", 0, default=None), entry.integer("target", 0, default=None))
        if ("axes" in entry) == ("ranks" in entry):
            raise InputError(f"{entry.where}: must have axes or ranks, one of them")
        where = entry.text("axes") if "axes" in entry else ",".join(map(str, entry.integers("ranks", 0)))
        entry.close()
        try:
            found += groups_of([where], rank_count, name, size, *ends)
        except InputError as error:
            raise InputError(f"{entry.where}: {error}") from None
    record.close()
    return found


def groups_from(description: Mapping[str, object], where: str) -> Groups:
    """The groups of a plan's problem section. Raises `InputError` naming `where` and the field."""
    record = Record(dict(description), f"{where}: problem")
    found = [
        Group(
            entry.text("collective", COLLECTIVES),
            tuple(entry.integers("ranks", 0)),
            entry.integer("size_bytes", 1, _MOST_BYTES),
            entry.integer("root", 0, default=None),
            entry.integer("target", 0, default=None),
        )
        for entry in record.records("groups")
    ]
    return Groups(tuple(found), record.boolean("relays"))
