"""Sweep files: which instances to solve. TOML where the name ends in .toml, JSON else; version 1.

::

    format = "gapless.sweep"
    version = 1

    [[grid]]
    system = "monet"
    graph = "vgg16"
    batch = [64, 128]
    budget = ["0.6x", "0.7x", "0.8x"]
    gap = 0.05

Fields are the options of `gapless solve SYSTEM` with underscores. A list is swept: an instance for every combination
of the lists of a grid, the last one fastest. Several grids may be of several systems.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapless.cli.solving import SYSTEMS
from gapless.errors import InputError
from gapless.io.record import Record, load_record, suggestion
from gapless.sweeps.fields import Value, fields, is_numeric

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["FORMAT", "VERSION", "Grid", "read_sweep_file"]

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
        return math.prod(len(its) for its in self.values.values())


def read_sweep_file(path: str | Path) -> tuple[Grid, ...]:
    """The grids of a sweep file. Raises `InputError` naming file, field, rule and value."""
    record = _load_toml(path) if Path(path).suffix == ".toml" else load_record(path)
    record.of_format(FORMAT)
    record.integer("version", VERSION, VERSION)
    grids = record.raw("grid")
    if not isinstance(grids, list) or not grids:
        raise record.fail("grid", "a list of at least one grid ([[grid]] in TOML)", grids)
    found = tuple(_grid(entry) for entry in record.records("grid"))
    record.close()
    return found


def _load_toml(path: str | Path) -> Record:
    try:
        data: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: must be a UTF-8 text file, got byte {error.object[error.start]:#04x}") from None
    except RecursionError:
        raise InputError(f"{path}: not readable: nested too deeply") from None
    except ValueError as error:  # also a whole number of thousands of digits
        raise InputError(f"{path}: not TOML: {error}") from None
    return Record(data, str(path))


def _grid(entry: Record) -> Grid:
    system = entry.text("system", choices=SYSTEMS)
    known = fields(system)
    for name in entry.names():
        if name not in known and name != "system":
            raise InputError(f"{entry.where}: field {name!r} is unknown; {_meant(name, system)}")
    for name, action in known.items():
        if action.required and name not in entry:
            raise InputError(f"{entry.where}: field {name!r} is missing: every {system} instance needs it")
    names = [name for name in entry.names() if name != "system"]
    values = {name: _values(entry, name, system) for name in names}
    return Grid(system, values, tuple(name for name in names if isinstance(entry.raw(name), list)), entry.where)


def _meant(name: str, system: str) -> str:
    if name in _ELSEWHERE:
        return f"it is said by {_ELSEWHERE[name]}"
    return suggestion(name, fields(system)) or f"known are the options of `gapless solve {system}`"


def _values(entry: Record, name: str, system: str) -> tuple[Value, ...]:
    """One value, or those of a list, which must not be empty."""
    found = entry.raw(name)
    values = found if isinstance(found, list) else [found]
    if not values:
        raise entry.fail(name, "a value, or a list of at least one", found)
    numeric = is_numeric(fields(system)[name])
    for value in values:
        if numeric and (not isinstance(value, (int, float)) or isinstance(value, bool) or abs(value) == math.inf):
            raise entry.fail(name, "a number, or a list of numbers", value)
        if not numeric and (not isinstance(value, str) or "\0" in value):
            raise entry.fail(name, "a text, or a list of texts", value)
        if isinstance(value, int) and abs(value) >= 2**63:
            raise entry.fail(name, "a number that fits into 64 bits", value)
    return tuple(values)
