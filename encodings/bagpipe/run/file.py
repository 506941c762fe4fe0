"""Run files: what a run's trainers do, batch by batch, and when; enough to replay it, to train by it, or to go on.

A .npz file, format `gapless.bagpipe-run`, version 3; docs/formats.md describes every array. Windows of batches stand in
folders (`store.py`, `reader.py`); `meta` stands before them, `end`, `made`, `spans` and `written_back` behind
them. Nothing here holds more than a few windows in memory, whatever the length of the run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from gapless.checker import Report
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.pipeline import Spans, Times
from gapless.encodings.bagpipe.lowering.actions import Actions
from gapless.encodings.bagpipe.lowering.machine import Machine
from gapless.encodings.bagpipe.lowering.replay import replay_run
from gapless.encodings.bagpipe.lowering.schedule import to_schedule
from gapless.encodings.bagpipe.question import SHARDED
from gapless.encodings.bagpipe.run.reader import FORMAT, MOST_COUNT, VERSION, RunFile, mapping
from gapless.encodings.bagpipe.run.store import RunWriter
from gapless.encodings.bagpipe.run.window import Columns
from gapless.errors import InputError
from gapless.io.atomic import write_file
from gapless.io.plan import SavedPlan
from gapless.io.reading import Limits, file_errors
from gapless.ir.graph import Graph
from gapless.ir.schedule import Schedule, schedule_from_events

__all__ = ["TIMES", "RunPlan", "head_of", "read_run", "write_run"]

TIMES = tuple(field.name for field in fields(Times))
_MOST_LOWERED = 2**18
"""Rows of all batches of a run whose schedule is made without being asked for."""
_MOST_EXCERPT = 2**22
"""Rows of all batches that one schedule may have: it is in memory as a whole."""


@dataclass(frozen=True)
class RunPlan:
    """A run that has ended: its batches, when they run, on which machine.

    `written_back`: by batch, the rows that the end of the run evicts beside those that were planned to be, bool (n,).
    `unfinished`: the file in which it grew, to be removed once it is written elsewhere.
    """

    file: RunFile
    times: Times
    machine: Machine
    written_back: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)
    unfinished: Path | None = None
    on_progress: Callable[[int, int], None] = lambda done, total: None

    unit = "batches"

    @property
    def count(self) -> int:
        """How many batches there are."""
        return self.file.batches

    @property
    def rows(self) -> NDArray[np.int64]:
        """Of each batch."""
        return self.file.rows

    def actions(self, number: int) -> Actions:
        """What the trainers do in a batch, with what the end of the run asks for."""
        actions = self.file.actions(number)
        more = self.written_back.get(number)
        return actions if more is None else replace(actions, evicted=actions.evicted | more)

    def trainer(self, number: int) -> NDArray[np.int64]:
        """Who trains on each example of a batch."""
        return self.file.trainer(number)

    def replay(self) -> Report:
        """What the checker finds, window by window."""
        with self.file.errors():
            return replay_run(
                self, self.times, self.machine, on_progress=lambda share: self._say(round(share * self.count))
            )

    def _say(self, done: int) -> None:
        self.on_progress(done, self.count)

    def excerpt(self, first: int, stop: int) -> Schedule:
        """The events of some batches. Raises `InputError` for batches that aren't there, and for too many of them."""
        where = self.file.where
        if not 0 <= first < stop <= self.count:
            rule = f"must be FIRST:STOP with 0 <= FIRST < STOP <= {self.count}"
            raise InputError(f"{where}: batches: {rule}, got {first}:{stop}")
        rows = np.cumsum(self.rows[first:stop])
        if rows[-1] > _MOST_EXCERPT:
            last = first + max(1, int(np.searchsorted(rows, _MOST_EXCERPT, side="right")))
            rule = f"at most {_MOST_EXCERPT:,} rows fit into one schedule"
            raise InputError(f"{where}: batches: {rule}, {first}:{stop} has {rows[-1]:,}; take {first}:{last}")
        with self.file.errors():
            actions = [self.actions(number) for number in range(first, stop)]
            return to_schedule(actions, self.times, self.machine, first=first)

    def schedule(self) -> Schedule:
        """Of the whole run if it is short, else one without events."""
        if self.rows.sum() <= _MOST_LOWERED:
            return self.excerpt(0, self.count)
        return schedule_from_events(Graph(np.empty(0, dtype=np.int64)), self.machine.topology(), [], "bagpipe")


def head_of(problem: Mapping[str, object], cluster: Cluster, share: NDArray[np.int64]) -> Columns:
    """What stands before the first window."""
    head = {"format": FORMAT, "version": VERSION, "problem": dict(problem)}
    return {"meta": _as_text({**head, "cluster": asdict(cluster), "share": share.tolist()})}


def _as_text(data: Mapping[str, object]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(data, allow_nan=False).encode("utf-8"), dtype=np.uint8)


def write_run(path: str | Path, plan: SavedPlan) -> None:
    """Write a run, whole or not at all; the plan's `windows` is a `RunPlan`."""
    run = plan.windows
    assert isinstance(run, RunPlan)
    times, first = run.times, min(run.written_back, default=run.count)
    numbers = range(first, run.count)
    more = [run.written_back.get(number, np.zeros(run.rows[number], dtype=np.bool_)) for number in numbers]
    end = {
        "claim": dict(plan.claim), "details": dict(plan.details), "cache_rows": run.machine.cache_rows,
        "written_back_from": first, **({"decision": dict(plan.decision)} if plan.decision else {}),
        **({} if run.machine.gradient_bytes is None else {"gradient_bytes": run.machine.gradient_bytes}),
    }  # fmt: skip
    columns = {
        "spans": np.array([[getattr(times, name).start_s, getattr(times, name).end_s] for name in TIMES]),
        "written_back": np.packbits(np.concatenate([np.zeros(0, dtype=np.bool_), *more])),
        "end": _as_text(end),
        "made": _as_text({"run": dict(plan.run)}),
    }

    def fill(stream: IO[bytes]) -> None:
        copy_windows(run.file, stream)
        writer = RunWriter(stream, run.file.windows())
        writer.write(columns)
        writer.close()

    write_file(path, fill)
    if run.unfinished is not None:
        run.unfinished.unlink(missing_ok=True)


def copy_windows(file: RunFile, stream: IO[bytes]) -> None:
    """The bytes of all windows, and of what stands before them."""
    end = file.windows().end
    file.stream.seek(0)
    shutil.copyfileobj(file.stream, stream)
    stream.truncate(end)


def read_run(path: str | Path) -> SavedPlan:
    """The run in a file. Raises `InputError` naming file, field and rule, for what is read at once: the batches of a
    long run are read when they are asked for.
    """
    with file_errors(path):
        stream = Path(path).open("rb")  # noqa: SIM115 - stays open as long as the run is read
    file = RunFile(str(path), stream, Limits.of_file(str(path), stream))
    with file.errors():
        end, made = file.record("end"), file.record("made")
        claim, details, run = mapping(end, "claim"), mapping(end, "details"), mapping(made, "run")
        decision = mapping(end, "decision") if "decision" in end else {}
        cache_rows = end.integer("cache_rows", 0, MOST_COUNT)
        gradient_bytes = end.integer("gradient_bytes", 0, MOST_COUNT) if "gradient_bytes" in end else None
        first = end.integer("written_back_from", 0, file.batches)
        end.close()
        made.close()
        times = _times(file.column("spans").view(np.float64), file.batches)
        machine = Machine(file.cluster, file.share, cache_rows, *_sharding(file), gradient_bytes)
        plan = RunPlan(file, times, machine, _written_back(file, first))
        schedule = plan.schedule()
    return SavedPlan("bagpipe", file.problem, claim, details, schedule, run, windows=plan, decision=decision)


def _sharding(file: RunFile) -> tuple[str, int]:
    """How tables are cut that lie on the trainers, and how many there are; of others nothing."""
    design, tables = file.problem.get("design"), file.problem.get("tables")
    if design not in SHARDED:
        return "", 0
    if not isinstance(tables, int) or tables < 1:
        raise InputError(f"problem: tables must be a whole number >= 1, got {tables!r}")
    return str(design), tables


def _written_back(file: RunFile, first: int) -> dict[int, NDArray[np.bool_]]:
    rows, packed = file.rows[first:], file.column("written_back").view(np.uint8)
    total = sum(rows.tolist())
    if len(packed) != -(-total // 8):
        rule = f"a bit for each of the {total} rows from batch {first} on"
        raise InputError(f"written_back: must have {rule}, got {len(packed)} bytes")
    bits = np.unpackbits(packed, count=total).astype(np.bool_)
    return dict(enumerate(np.split(bits, np.cumsum(rows)[:-1]), first)) if len(rows) else {}


def _times(spans: NDArray[np.float64], batches: int) -> Times:
    if spans.shape != (len(TIMES), 2, batches) or not np.isfinite(spans).all():
        raise InputError(f"spans: must be finite, of shape {(len(TIMES), 2, batches)}, got shape {spans.shape}")
    for name, (start_s, end_s) in zip(TIMES, spans, strict=True):
        if (start_s > end_s).any():
            late = int((start_s > end_s).argmax())
            raise InputError(f"spans: {name} of batch {late} must start before it ends, at {end_s[late]:g} s")
    forward_s = spans[TIMES.index("forward"), 0]
    if (np.diff(forward_s) < 0).any():
        early = int((np.diff(forward_s) < 0).argmax()) + 1
        raise InputError(f"spans: forward of batch {early} must start no earlier than that of the batch before")
    return Times(**{name: Spans(*span) for name, span in zip(TIMES, spans, strict=True)})
