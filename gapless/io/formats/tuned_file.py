"""Tuned: which plan serves which calls of collectives, as it was measured beside the library, and the table of it.

`selector.json`, format `gapless.tuned`, version 1: the plans that won, and for which sizes each of them serves.
`table.json`, format `gapless.tuned-table`, version 1: a row for each collective, group and size that was measured.
Sizes are those of the largest input buffer of a rank, in bytes, whatever the type of its elements.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from gapless.errors import InputError
from gapless.io.reading import file_errors
from gapless.io.typed import Stored, data_of, read_file
from gapless.ir.collective import COLLECTIVES
from gapless.units import format_bytes

__all__ = [
    "SELECTOR", "TABLE", "Row", "Selector", "Served", "Table", "Tried", "WinningPlan",
    "read_selector", "read_selector_file", "read_table",
    "selector_text", "table_text",
]  # fmt: skip

SELECTOR, TABLE = "selector.json", "table.json"
"""Their names in a folder."""
_SELECTOR_FORMAT, _TABLE_FORMAT, _VERSION = "gapless.tuned", "gapless.tuned-table", 1
_MOST_RANKS = 2**16
_MOST_BYTES = 2**63 - 1


@dataclass(frozen=True)
class WinningPlan:
    """A plan's file, in the folder of the selector, and its SHA-256 in hexadecimal."""

    file: str
    sha256: str


@dataclass(frozen=True)
class Served:
    """A plan serves a collective among `ranks` for buffers of `min_bytes` to `max_bytes`, both included.

    `plan`: its place among the selector's plans. A root is the first of the ranks.
    """

    collective: Annotated[str, Stored(choices=tuple(COLLECTIVES))]
    ranks: Annotated[tuple[int, ...], Stored(0, _MOST_RANKS)]
    min_bytes: Annotated[int, Stored(1, _MOST_BYTES)]
    max_bytes: Annotated[int, Stored(1, _MOST_BYTES)]
    plan: Annotated[int, Stored(0, 10**6)]


@dataclass(frozen=True)
class Selector:
    """What `install` goes by. `ranks`: of all processes. `backend`: of torch.distributed. `date`: ISO 8601.

    Raises `InputError` for ranges that overlap, ranks that are not there, and plans that are none.
    """

    date: str
    backend: str
    ranks: Annotated[int, Stored(2, _MOST_RANKS)]
    plans: Annotated[tuple[WinningPlan, ...], Stored(is_needed=True)] = ()
    ranges: Annotated[tuple[Served, ...], Stored(is_needed=True)] = ()

    def __post_init__(self) -> None:
        for place, plan in enumerate(self.plans):
            if not plan.file or Path(plan.file).is_absolute() or ".." in Path(plan.file).parts:
                raise InputError(f"plans[{place}].file: must be a path inside of the folder, got {plan.file!r}")
        for place, one in enumerate(self.ranges):
            self._check(f"ranges[{place}]", one)
        for rows in self._rows.values():
            for before, after in pairwise(rows):
                if after.min_bytes <= before.max_bytes:
                    rule = f"{before.collective}: must not overlap"
                    raise InputError(f"ranges of {rule}, got {after.min_bytes} below {before.max_bytes}")

    def _check(self, where: str, one: Served) -> None:
        if len(one.ranks) < 2 or len(set(one.ranks)) != len(one.ranks) or max(one.ranks) >= self.ranks:
            rule = f"must be two or more of 0..{self.ranks - 1}, each once"
            raise InputError(f"{where}.ranks: {rule}, got {list(one.ranks)}")
        if one.min_bytes > one.max_bytes:
            raise InputError(f"{where}.min_bytes: must be <= max_bytes, got {one.min_bytes} and {one.max_bytes}")
        if one.plan >= len(self.plans):
            raise InputError(
                f"{where}.plan: must be a place in plans, of which there are {len(self.plans)}, got {one.plan}"
            )

    @cached_property
    def _rows(self) -> dict[tuple[str, tuple[int, ...]], list[Served]]:
        rows: dict[tuple[str, tuple[int, ...]], list[Served]] = {}
        for one in sorted(self.ranges, key=lambda one: one.min_bytes):
            rows.setdefault((one.collective, one.ranks), []).append(one)
        return rows

    def plan_for(self, collective: str, ranks: tuple[int, ...], size_bytes: int) -> int | None:
        """The place of the plan for a call, None where the library serves it."""
        for one in self._rows.get((collective, ranks), ()):
            if one.min_bytes <= size_bytes <= one.max_bytes:
                return one.plan
        return None


@dataclass(frozen=True)
class Tried:
    """A plan in a cell of the table: what made it, what its replay predicts, and the median of its calls; 0 where it
    was given up after the first of them.
    """

    made_by: str
    predicted_s: Annotated[float, Stored(0)]
    measured_s: Annotated[float, Stored(0)] = 0.0


@dataclass(frozen=True)
class Row:
    """A collective among ranks at a size. Medians, in seconds, of the calls that count: of the second measurement where
    there was one.

    `noise`: how far the ratio of two medians of the library itself is from 1, in 19 of 20 cases. `winner`: the place of
    the plan that serves the size, in the selector's plans; None where the library does. `plan_s`: of that plan, or of
    the fastest that was tried; None where none was. `first_ratio`: plan over library when the plan was chosen.
    """

    collective: Annotated[str, Stored(choices=tuple(COLLECTIVES))]
    ranks: Annotated[tuple[int, ...], Stored(0, _MOST_RANKS)]
    size_bytes: Annotated[int, Stored(1, _MOST_BYTES)]
    library_s: Annotated[float, Stored(0)]
    noise: Annotated[float, Stored(0)]
    winner: Annotated[int | None, Stored(0, 10**6)] = None
    made_by: str = ""
    predicted_s: Annotated[float | None, Stored(0)] = None
    plan_s: Annotated[float | None, Stored(0)] = None
    first_ratio: Annotated[float | None, Stored(0)] = None
    tried: tuple[Tried, ...] = ()

    @property
    def ratio(self) -> float | None:
        """What the plan takes, over what the library takes."""
        return None if self.plan_s is None or not self.library_s else self.plan_s / self.library_s

    @property
    def size(self) -> str:
        """For people."""
        return format_bytes(self.size_bytes)


@dataclass(frozen=True)
class Table:
    """What was measured. `repeats`: calls of each plan, and half of the library's, in each measurement."""

    date: str
    backend: str
    ranks: Annotated[int, Stored(2, _MOST_RANKS)]
    repeats: Annotated[int, Stored(1, 10**6)]
    topology: str
    rows: tuple[Row, ...] = field(default=())


def selector_text(selector: Selector) -> str:
    """The file."""
    return _text(_SELECTOR_FORMAT, selector)


def table_text(table: Table) -> str:
    """The file."""
    return _text(_TABLE_FORMAT, table)


def _text(name: str, value: object) -> str:
    return json.dumps({"format": name, "version": _VERSION, **data_of(value)}, indent=1) + "\n"


def read_selector_file(path: str | Path) -> Selector:
    """The selector in a file, whose plans aren't looked at. Raises `InputError` naming file, field and rule."""
    return read_file(Selector, path, _SELECTOR_FORMAT, _VERSION)


def read_selector(folder: str | Path) -> Selector:
    """The selector of a folder, whose plans are those that won. Raises `InputError` naming file, field and rule."""
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: must be a folder that `gapless tune` wrote")
    path = Path(folder) / SELECTOR
    selector = read_selector_file(path)
    for place, plan in enumerate(selector.plans):
        with file_errors(Path(folder) / plan.file):
            found = hashlib.sha256((Path(folder) / plan.file).read_bytes()).hexdigest()
        if found != plan.sha256:
            raise InputError(f"{path}: plans[{place}].sha256: must be that of {plan.file}, got another; tune again")
    return selector


def read_table(path: str | Path) -> Table:
    """The table in a file. Raises `InputError` naming file, field and rule."""
    return read_file(Table, path, _TABLE_FORMAT, _VERSION)
