"""Kept replays: what pictures and pages look at of a large plan, by the hash of its file, in the user's own folder.

A folder beside the plan could come with it from anybody, and say that a plan replays clean which doesn't. So replays
are kept under `GAPLESS_CACHE` (empty: nowhere), or `gapless` in the user's cache folder, where nobody else may write.
A name there is a hash of the plan file and of the sources that replay it: another plan, or another gapless, finds
nothing. `gapless check` never looks here. Where nothing can be kept, everything is replayed each time.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.checker.inspection import Inspection, MemorySteps, known_events
from gapless.checker.report import BusyTime, Report
from gapless.checker.waits import Waits
from gapless.errors import InputError
from gapless.io.arrays import Archive
from gapless.io.atomic import write_bytes
from gapless.io.plan import SavedPlan, plan_data, plan_of
from gapless.io.reading import Limits
from gapless.io.record import Record
from gapless.ir.graph import Graph, Implementation, Op
from gapless.ir.schedule import Ragged, Schedule

__all__ = ["Kept", "copies_named", "find_kept", "keep", "name_of"]

LEAST_COPIES = 100_000
"""Plans whose events name fewer copies replay in less than a second: not worth a file."""
LEAST_BYTES = 50_000
"""No smaller file holds such a plan."""
MOST_BYTES = 2**30
"""Of all that is kept: the oldest goes."""
_REPLAYING = ("gapless.checker", "gapless.io", "gapless.ir", "gapless.encodings", "gapless.topologies")
_COLUMN = "$column"


@dataclass(frozen=True)
class Kept:
    """A plan with its events but for what only a replay reads, and what the replay had to show.

    `seen`: None where the plan was only drawn so far.
    """

    plan: SavedPlan
    seen: Inspection | None


def copies_named(schedule: Schedule) -> int:
    """How many copies the events of a schedule read and write: what a replay takes grows with that."""
    used = sum(len(op.inputs) + len(op.outputs) for op in schedule.graph.ops)
    return 2 * len(schedule.moves.values) + len(schedule.freed_tensor.values) + used


def name_of(path: str | Path) -> str:
    """What is kept of a plan file goes by: a hash of its bytes and of what replays it. Empty for small files."""
    if not os.path.isfile(path) or Path(path).stat().st_size < LEAST_BYTES:
        return ""
    digest = hashlib.sha256(_sources())
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


@cache
def _sources() -> bytes:
    """The hash of the sources that read plans, lower and replay them."""
    roots = [Path(root) for name in _REPLAYING for root in import_module(name).__path__]
    files = [file for root in roots for file in sorted(root.rglob("*.py"))]
    files += sorted(Path(__file__).parent.parent.glob("*.py"))
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).digest()


def _folder() -> Path | None:
    """Where replays are kept; None for nowhere."""
    chosen = os.environ.get("GAPLESS_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gapless"
    except RuntimeError:  # a user without a folder
        return None


def _is_own(path: Path) -> bool:
    """Whether nobody else may have written here: the owner is who runs this, and only the owner writes."""
    if os.name != "posix":
        return True
    found = path.lstat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022 and not path.is_symlink()


def find_kept(name: str) -> Kept | None:
    """What is kept under a name; None for nothing, and for what can't be read or may be another's."""
    folder = _folder()
    if folder is None or not name:
        return None
    path = folder / f"{name}.npz"
    try:
        if not (_is_own(folder) and _is_own(path)):
            return None
        with path.open("rb") as file:
            archive = Archive(file, Limits.none(str(path)))
            columns = {name: archive.read(name) for name in archive.names}
        found = _decoded(json.loads(columns.pop("tree").tobytes()), columns)
        plan = plan_of(Record(found["plan"], str(path)))
        return Kept(plan, None if found["seen"] is None else _seen_of(found["seen"]))
    except (OSError, ValueError, KeyError, TypeError):  # not there, half a file, another format
        return None


def keep(name: str, path: str | Path, plan: SavedPlan, seen: Inspection | None) -> bool:
    """Keep a plan with events, and what its replay had to show; returns whether that was done.

    `name`: the file's before it was read: where it has changed since, nothing is kept. Nothing is kept either of small
    plans, of what doesn't replay clean, and where there is no place for it.
    """
    folder, schedule = _folder(), plan.schedule
    if folder is None or not name or copies_named(schedule) < LEAST_COPIES:
        return False
    if (seen is not None and not seen.report.valid) or len(known_events(schedule)) < len(schedule):
        return False
    columns: dict[str, NDArray[np.generic]] = {}
    outline = replace(plan, schedule=_outline(schedule))
    tree = _encoded({"plan": plan_data(outline), "seen": None if seen is None else _seen_data(seen)}, columns)
    columns["tree"] = np.frombuffer(json.dumps(tree).encode("utf-8"), dtype=np.uint8)
    data = io.BytesIO()
    np.savez(data, **columns)  # type: ignore[arg-type]  # names never are its options
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder) or name_of(path) != name:
            return False
        write_bytes(folder / f"{name}.npz", data.getvalue())
    except (OSError, InputError):
        return False
    _forget_oldest(folder)
    return True


def _outline(schedule: Schedule) -> Schedule:
    """The same events, without what only a replay reads: inputs, outputs, what is freed and what must be where."""
    ops = tuple(
        Op(op.name, (), (), tuple(Implementation(one.duration_s) for one in op.implementations), op.kind)
        for op in schedule.graph.ops
    )
    graph = Graph(schedule.graph.size_bytes, ops, tensor_names=schedule.graph.tensor_names)
    none = Ragged.empty(len(schedule))
    return replace(schedule, graph=graph, freed_tensor=none, freed_device=none)


def _forget_oldest(folder: Path) -> None:
    """Remove the oldest until all of them together are within `MOST_BYTES`."""
    with suppress(OSError):
        newest = sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime, reverse=True)
        total = 0
        for place, path in enumerate(newest):
            total += path.stat().st_size
            if place and total > MOST_BYTES:
                path.unlink()


def _encoded(value: object, columns: dict[str, NDArray[np.generic]]) -> object:
    """A tree of plain values, with its arrays put aside into `columns`."""
    if isinstance(value, dict):
        return {key: _encoded(inner, columns) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        columns[f"c{len(columns)}"] = value
        return {_COLUMN: f"c{len(columns) - 1}"}
    return value


def _decoded(value: object, columns: dict[str, NDArray[np.generic]]) -> Any:
    """The tree again; columns of truth values as lists, as plan files have them."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {_COLUMN}:
        column = columns[value[_COLUMN]]
        return column.tolist() if column.dtype == np.bool_ else column
    return {key: _decoded(inner, columns) for key, inner in value.items()}


def _seen_data(seen: Inspection) -> dict[str, object]:
    report, steps = seen.report, seen.memory
    return {
        "makespan_s": report.makespan_s, "peak_bytes": list(report.peak_bytes), "event_count": report.event_count,
        "energy_j": report.energy_j, "spent": list(report.spent),
        "busy_s": {field.name: list(getattr(report.busy_s, field.name)) for field in fields(BusyTime)},
        "steps": np.cumsum([0, *(len(each.time_s) for each in steps)]),
        "time_s": np.concatenate([np.zeros(0), *(each.time_s for each in steps)]),
        "live_bytes": np.concatenate([np.zeros(0, dtype=np.int64), *(each.live_bytes for each in steps)]),
        "waits": {field.name: np.asarray(getattr(seen.waits, field.name)) for field in fields(Waits)},
        "numbers": seen.numbers,
    }  # fmt: skip


def _seen_of(data: dict[str, Any]) -> Inspection:
    """What `_seen_data` says, of a replay without violations."""
    waits = {name: np.asarray(column) for name, column in data["waits"].items()}
    ends = zip(data["steps"][:-1].tolist(), data["steps"][1:].tolist(), strict=True)
    report = Report(
        data["makespan_s"], tuple(data["peak_bytes"]),
        BusyTime(**{name: tuple(busy_s) for name, busy_s in data["busy_s"].items()}), data["event_count"],
        energy_j=data["energy_j"], spent=tuple(data["spent"]),
    )  # fmt: skip
    memory = tuple(MemorySteps(data["time_s"][low:high], data["live_bytes"][low:high]) for low, high in ends)
    return Inspection(report, memory, Waits(**waits), data["numbers"])
