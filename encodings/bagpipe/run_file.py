"""Run files: what a run's trainers do, batch by batch, and when; enough to lower and replay it, or to train by it.

A .npz file, format `planwright.bagpipe-run`, version 1. `meta`: JSON text as bytes, with format, version, problem,
claim, details, cluster, share and cache_rows. By batch: `rows` and `examples` (how many), `prefetch_after`; `spans`:
float64, shape (7, 2, batches), start and end of each of `TIMES`. By example, all batches in a row: `trainer`. By row:
`ids`, `fetched_by`, `private_to`, `sync`, `evicted` as in `planwright.encodings.bagpipe.actions`, and `users`: uint8,
the trainers that use it, bit by bit, the first in the highest bit.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planwright.encodings.bagpipe.actions import SHARED, Actions
from planwright.encodings.bagpipe.cluster import Cluster
from planwright.encodings.bagpipe.lowering import Machine, Times, to_schedule
from planwright.encodings.bagpipe.pipeline import Spans
from planwright.errors import InputError
from planwright.io.atomic import write_bytes
from planwright.io.plan import SavedPlan
from planwright.io.record import Record, parse_record

__all__ = ["TIMES", "SavedTimes", "read_run", "write_run"]

_FORMAT, _VERSION = "planwright.bagpipe-run", 1

TIMES = ("prefetch", "forward", "backward", "sync_now", "sync_later", "write_early", "write_late")
_BY_ROW = ("ids", "fetched_by", "private_to", "sync", "evicted")


@dataclass(frozen=True)
class SavedTimes:
    """When the activities of each batch run."""

    prefetch: Spans
    forward: Spans
    backward: Spans
    sync_now: Spans
    sync_later: Spans
    write_early: Spans
    write_late: Spans


def write_run(
    path: str | Path,
    actions: list[Actions],
    users: list[NDArray[np.bool_]],
    trainer: list[NDArray[np.int64]],
    times: Times,
    machine: Machine,
    told: Mapping[str, Any],
) -> None:
    """Write a run, whole or not at all. `told`: the sections problem, claim and details."""
    meta = {
        "format": _FORMAT, "version": _VERSION, "cluster": asdict(machine.cluster), "share": machine.share.tolist(),
        "cache_rows": machine.cache_rows, **told,
    }  # fmt: skip
    columns: dict[str, NDArray[Any]] = {
        "meta": np.frombuffer(json.dumps(meta, allow_nan=False).encode("utf-8"), dtype=np.uint8),
        "rows": np.array([len(batch.ids) for batch in actions]),
        "examples": np.array([len(part) for part in trainer]),
        "prefetch_after": np.array([batch.prefetch_after for batch in actions]),
        "spans": np.array([[getattr(times, name).start_s, getattr(times, name).end_s] for name in TIMES]),
        "trainer": np.concatenate(trainer).astype(np.int16),
        "users": np.concatenate([np.packbits(part, axis=1) for part in users]),
    }
    for name in _BY_ROW:
        whole = np.concatenate([getattr(batch, name) for batch in actions])
        columns[name] = whole if name == "ids" else whole.astype(np.int16)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    write_bytes(path, buffer.getvalue())


def read_run(path: str | Path) -> SavedPlan:
    """The run in a file, lowered to a schedule, as any plan. Raises `InputError` naming file, field and rule."""
    columns = _columns(path)
    meta = parse_record(columns["meta"].tobytes().decode("utf-8", "replace"), f"{path}: meta")
    meta.text("format", choices=[_FORMAT])
    meta.integer("version", _VERSION, _VERSION)
    told = {name: _mapping(meta, name) for name in ("problem", "claim", "details")}
    cluster = _cluster(meta)
    machine = Machine(
        cluster, np.array(meta.integers("share", 0), dtype=np.int64), meta.integer("cache_rows", 0, 2**53)
    )
    meta.close()
    if len(machine.share) != cluster.trainers:
        raise meta.fail("share", f"one number for each of {cluster.trainers} trainers", machine.share.tolist())
    actions = _actions(path, columns, cluster.trainers)
    schedule = to_schedule(actions, _times(path, columns, len(actions)), machine)
    return SavedPlan("bagpipe", told["problem"], told["claim"], told["details"], schedule)


def _columns(path: str | Path) -> dict[str, NDArray[Any]]:
    wanted = ("meta", "rows", "examples", "prefetch_after", "spans", "trainer", "users", *_BY_ROW)
    try:
        with np.load(path, allow_pickle=False) as data:
            missing = [name for name in wanted if name not in data]
            if missing:
                raise InputError(f"{path}: array {missing[0]!r} is missing; is it a {_FORMAT}?")
            columns = {name: data[name] for name in wanted}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except InputError:
        raise
    except (ValueError, zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise InputError(f"{path}: not readable as .npz: {error}") from None
    for name, column in columns.items():
        if name != "spans" and not np.issubdtype(column.dtype, np.integer):
            raise InputError(f"{path}: array {name!r} must hold integers, got {column.dtype}")
    return columns


def _mapping(meta: Record, key: str) -> dict[str, Any]:
    nested = meta.record(key)
    return {name: nested.raw(name) for name in nested.names()}


def _cluster(meta: Record) -> Cluster:
    entry = meta.record("cluster")
    whole = {"trainers", "servers", "row_bytes", "dense_bytes"}
    names = Cluster.__dataclass_fields__
    values = {name: entry.integer(name, 0) if name in whole else entry.number(name, 0) for name in names}
    entry.close()
    return Cluster(**values)


def _times(path: str | Path, columns: Mapping[str, NDArray[Any]], batches: int) -> SavedTimes:
    spans = columns["spans"]
    if spans.shape != (len(TIMES), 2, batches) or spans.dtype != np.float64 or not np.isfinite(spans).all():
        rule = f"finite float64 of shape {(len(TIMES), 2, batches)}"
        raise InputError(f"{path}: spans: must be {rule}, got {spans.dtype} of shape {spans.shape}")
    return SavedTimes(**{name: Spans(*span) for name, span in zip(TIMES, spans, strict=True)})


def _actions(path: str | Path, columns: Mapping[str, NDArray[Any]], trainers: int) -> list[Actions]:
    rows, examples = columns["rows"], columns["examples"]
    users = np.unpackbits(columns["users"].astype(np.uint8), axis=1, count=trainers).astype(np.bool_)
    by_row = {name: columns[name].astype(np.int64) for name in _BY_ROW}
    lengths = {name: len(column) for name, column in {**by_row, "users": users}.items()}
    lengths |= {"trainer": len(columns["trainer"]) - int(examples.sum()) + int(rows.sum())}
    if len({len(rows), len(examples), len(columns["prefetch_after"])}) > 1 or rows.min(initial=0) < 0:
        raise InputError(f"{path}: rows, examples and prefetch_after must have one entry for each batch")
    for name, length in lengths.items():
        if length != int(rows.sum()):
            raise InputError(f"{path}: array {name!r} must have as many entries as the batches say")
    trainer = columns["trainer"].astype(np.int64)
    if len(trainer) and not (trainer.min() >= 0 and trainer.max() < trainers):
        raise InputError(f"{path}: trainer: must be in 0..{trainers - 1}, got {trainer.min()}..{trainer.max()}")
    row_cuts, example_cuts = np.cumsum(rows)[:-1], np.cumsum(examples)[:-1]
    parts = {name: np.split(column, row_cuts) for name, column in by_row.items()}
    places = np.split(trainer, example_cuts)
    found = []
    for number, used in enumerate(np.split(users, row_cuts)):
        batch = Actions(
            **{name: parts[name][number] for name in _BY_ROW},
            examples=np.bincount(places[number], minlength=trainers),
            prefetch_after=int(columns["prefetch_after"][number]),
        )
        _check_private(f"{path}: batch {number}", batch, used)
        found.append(batch)
    return found


def _check_private(where: str, batch: Actions, users: NDArray[np.bool_]) -> None:
    """A row that is private to a trainer is used by no other: the others could not have it."""
    private = np.flatnonzero(batch.private_to != SHARED)
    others = users[private].copy()
    others[np.arange(len(private)), batch.private_to[private]] = False
    wrong = private[others.any(axis=1)]
    if len(wrong):
        row = int(wrong[0])
        user = int(others[others.any(axis=1)][0].argmax())
        rule = f"row {batch.ids[row]} must be used by trainer {batch.private_to[row]} alone"
        raise InputError(f"{where}: private_to: {rule}, trainer {user} uses it too")
