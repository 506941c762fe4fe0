"""Sweep files: which instances to solve. TOML where the name ends in .toml, JSON else; version 1.

::

    format = "gapless.sweep"
    version = 1

    [[grid]]
    system = "..."
    size = ["1KB", "1MB"]
    nodes = [1, 2, 4]
    gap = 0.05

Fields are the options of `gapless solve SYSTEM` with underscores. A list is swept: an instance for every combination
of the lists of a grid, the last one fastest. Several grids may be of several systems.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gapless.errors import InputError
from gapless.io.record import Record, load_record, suggestion
from gapless.io.text_file import load_toml
from gapless.question.fields import SOLVING, Field, Flag
from gapless.system import find_system, system_names

__all__ = ["FORMAT", "VERSION", "Grid", "Value", "read_sweep_file", "sweep_fields", "toml_or_json"]

Value = str | int | float | bool

FORMAT, VERSION = "gapless.sweep", 1

_ELSEWHERE = {"threads": "--threads, for all instances", "output": "-o DIR, for all instances"}
"""What `solve` takes and a grid doesn't, and where it is said instead."""


@dataclass(frozen=True)
class Grid:
    """The values of each field of a system's instances, in the order of the file.

    `swept`: the fields that are lists. `where` opens messages.
    """

    system: str
    values: Mapping[str, tuple[Value, ...]]
    swept: tuple[str, ...]
    where: str

    @property
    def count(self) -> int:
        """How many combinations there are."""
        return math.prod(len(options) for options in self.values.values())


def sweep_fields(system: str) -> dict[str, Field]:
    """The fields that an instance of a system may have, by name: those of the question, and how it is solved."""
    solving = [field for field in SOLVING if field.name not in _ELSEWHERE]
    return {field.name: field for field in (*find_system(system).fields, *solving)}


def read_sweep_file(path: str | Path) -> tuple[Grid, ...]:
    """The grids of a sweep file. Raises `InputError` naming file, field, rule and value."""
    record = toml_or_json(path)
    record.of_format(FORMAT, VERSION)
    grids = record.raw("grid")
    if not isinstance(grids, list) or not grids:
        raise record.fail("grid", "a list of at least one grid ([[grid]] in TOML)", grids)
    found = tuple(_grid(entry) for entry in record.records("grid"))
    record.close()
    return found


def toml_or_json(path: str | Path) -> Record:
    """The content of a file: TOML where its name ends so, JSON else. Raises `InputError` for one that is not."""
    return Record(load_toml(path), str(path)) if Path(path).suffix == ".toml" else load_record(path)


def _grid(entry: Record) -> Grid:
    system = entry.text("system", choices=system_names())
    known = sweep_fields(system)
    for name in entry.names():
        if name not in known and name != "system":
            raise InputError(f"{entry.where}: field {name!r} is unknown; {_meant(name, system)}")
    for name, field in known.items():
        if field.is_required and name not in entry:
            raise InputError(f"{entry.where}: field {name!r} is missing: every {system} instance needs it")
    names = [name for name in entry.names() if name != "system"]
    values = {name: _values(entry, name, system) for name in names}
    return Grid(system, values, tuple(name for name in names if isinstance(entry.raw(name), list)), entry.where)


def _meant(name: str, system: str) -> str:
    if name in _ELSEWHERE:
        return f"it is said by {_ELSEWHERE[name]}"
    return suggestion(name, sweep_fields(system)) or f"known are the options of `gapless solve {system}`"


def _values(entry: Record, name: str, system: str) -> tuple[Value, ...]:
    """One value, or those of a list, which must not be empty."""
    found = entry.raw(name)
    values = found if isinstance(found, list) else [found]
    if not values:
        raise entry.fail(name, "a value, or a list of at least one", found)
    field = sweep_fields(system)[name]
    if isinstance(field.kind, Flag):
        return tuple(field.read(value) for value in values)
    for value in values:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) != math.inf
        if field.is_numeric and not is_number:
            raise entry.fail(name, "a number, or a list of numbers", value)
        if not field.is_numeric and (not isinstance(value, str) or "\0" in value):
            raise entry.fail(name, "a text, or a list of texts", value)
        if isinstance(value, int) and abs(value) >= 2**63:
            raise entry.fail(name, "a number that fits into 64 bits", value)
    return tuple(values)
