"""Run files: what a run's trainers do, batch by batch, and when; enough to lower and replay it, or to train by it.

A .npz file, format `gapless.bagpipe-run`, version 1. `meta`: JSON text as bytes, with format, version, problem,
claim, details, run, cluster, share and cache_rows. By batch: `rows` and `examples` (how many), `prefetch_after`;
`spans`: float64, shape (7, 2, batches), start and end of each of `TIMES`; transfers are laid out so that the last ends
there.
By example, all batches in a row: `trainer`. By row: `ids`, `fetched_by`, `private_to`, `sync`, `evicted` as in
`gapless.encodings.bagpipe.actions`, and `users`: uint8, the trainers that use it, bit by bit, the first in the
highest bit. Owned rows (`private_to` a trainer, `sync` 1) go to their users as soon as the batch's prefetch and the
critical synchronisation of the batch before have ended, and have arrived when its forward pass starts.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.actions import BY_ROW, SHARED, Actions
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.lowering import to_schedule
from gapless.encodings.bagpipe.machine import Machine
from gapless.encodings.bagpipe.pipeline import Spans, Times
from gapless.encodings.bagpipe.system import PLACEMENTS
from gapless.errors import InputError
from gapless.io.atomic import write_bytes
from gapless.io.plan import SavedPlan
from gapless.io.record import Record, parse_record
from gapless.profiles.traces.csv_files import file_errors

__all__ = ["TIMES", "Product", "read_run", "write_run"]

_FORMAT, _VERSION = "gapless.bagpipe-run", 1

_SECTIONS = ("problem", "claim", "details", "run")
"""Of `meta`, as `SavedPlan` has them."""
TIMES = tuple(field.name for field in fields(Times))
_BY_BATCH = ("rows", "examples", "prefetch_after")
_DIMENSIONS = dict.fromkeys(("meta", *_BY_BATCH, "trainer", *BY_ROW), 1) | {"users": 2, "spans": 3}
_EXACT_TYPES = {"meta": np.uint8, "users": np.uint8, "spans": np.float64}
"""The other arrays are of any integer type, and become int64."""

_MOST_COUNT = 2**53
_LEVEL = 4
"""Of compression: numpy's own 6 makes files that are 7 % smaller, in five times the time."""
_MOST_ROW_BYTES = 2**31
"""So that all rows of a run together have a size in 64 bits."""


@dataclass(frozen=True)
class Product:
    """What a run's schedule is made from: by batch the actions, who uses which row, and who trains on which example."""

    actions: list[Actions]
    users: list[NDArray[np.bool_]]
    trainer: list[NDArray[np.int64]]
    times: Times
    machine: Machine


def write_run(path: str | Path, plan: SavedPlan) -> None:
    """Write a run, whole or not at all; the plan's `product` is a `Product`."""
    product = plan.product
    assert isinstance(product, Product)
    machine, times, actions, trainer = product.machine, product.times, product.actions, product.trainer
    meta = {
        "format": _FORMAT, "version": _VERSION, "cluster": asdict(machine.cluster), "share": machine.share.tolist(),
        "cache_rows": machine.cache_rows, **{name: dict(getattr(plan, name)) for name in _SECTIONS},
    }  # fmt: skip
    columns: dict[str, Any] = {
        "meta": np.frombuffer(json.dumps(meta, allow_nan=False).encode("utf-8"), dtype=np.uint8),
        "rows": np.array([len(batch.ids) for batch in actions]),
        "examples": np.array([len(part) for part in trainer]),
        "prefetch_after": np.array([batch.prefetch_after for batch in actions]),
        "spans": np.array([[getattr(times, name).start_s, getattr(times, name).end_s] for name in TIMES]),
        "trainer": np.concatenate(trainer).astype(np.int16),
        "users": np.concatenate([np.packbits(part, axis=1) for part in product.users]),
    }
    for name in BY_ROW:
        whole = np.concatenate([getattr(batch, name) for batch in actions])
        columns[name] = whole if name == "ids" else whole.astype(np.int16)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, column, allow_pickle=False)
    write_bytes(path, buffer.getvalue())


def read_run(path: str | Path) -> SavedPlan:
    """The run in a file, lowered to a schedule, as any plan. Raises `InputError` naming file, field and rule."""
    columns = {name: _column(path, name, column) for name, column in _arrays(path).items()}
    meta = parse_record(columns["meta"].tobytes().decode("utf-8", "replace"), f"{path}: meta")
    meta.of_format(_FORMAT)
    meta.integer("version", _VERSION, _VERSION)
    sections = {name: _mapping(meta, name) for name in _SECTIONS}
    share = np.array(meta.integers("share", 0, _MOST_COUNT), dtype=np.int64)
    cache_rows = meta.integer("cache_rows", 0, _MOST_COUNT)
    entry = meta.record("cluster")
    meta.close()
    try:
        machine = Machine(_cluster(entry), share, cache_rows)
        if len(share) != machine.cluster.trainers:
            raise meta.fail("share", f"one number for each of {machine.cluster.trainers} trainers", share.tolist())
        product = _product(columns, machine)
        schedule = to_schedule(product.actions, product.times, machine)
    except InputError as error:  # actions, cluster and schedule name the field, not the file
        message = str(error)
        raise InputError(message if message.startswith(str(path)) else f"{path}: {message}") from None
    return SavedPlan("bagpipe", schedule=schedule, product=product, **sections)


def _arrays(path: str | Path) -> dict[str, Any]:
    with file_errors(path), Path(path).open("rb") as stream:  # numpy leaves a file that is no archive open
        if not zipfile.is_zipfile(stream):
            raise InputError(f"{path}: must be a {_FORMAT}, a .npz of several arrays; it is no .npz at all")
        stream.seek(0)
        archive = np.load(stream, allow_pickle=False)
        with archive:
            missing = [name for name in _DIMENSIONS if name not in archive]
            if missing:
                raise InputError(f"{path}: array {missing[0]!r} is missing; is it a {_FORMAT}?")
            return {name: archive[name] for name in _DIMENSIONS}


def _column(path: str | Path, name: str, column: Any) -> NDArray[Any]:
    """An array of the type and dimensions that its name asks for; whole numbers as int64."""
    exact = _EXACT_TYPES.get(name)
    kind = np.dtype(exact).name if exact else "integers"
    got = f"{column.dtype} of shape {column.shape}" if isinstance(column, np.ndarray) else "no array"
    is_kind = isinstance(column, np.ndarray) and (column.dtype == exact if exact else column.dtype.kind in "iu")
    if not is_kind or column.ndim != _DIMENSIONS[name]:
        raise InputError(f"{path}: {name}: must be {kind} in {_DIMENSIONS[name]} dimensions, got {got}")
    if exact:
        return np.asarray(column)
    if len(column) and not -(2**63) <= int(column.max()) < 2**63:
        raise InputError(f"{path}: {name}: must fit into int64, got {column.max()}")
    whole: NDArray[np.int64] = column.astype(np.int64)
    return whole


def _mapping(meta: Record, key: str) -> dict[str, Any]:
    nested = meta.record(key)
    return {name: nested.raw(name) for name in nested.names()}


def _cluster(entry: Record) -> Cluster:
    whole = {"trainers", "servers", "row_bytes", "state_bytes", "pass_examples", "dense_bytes"}
    names = Cluster.__dataclass_fields__
    most = {"row_bytes": _MOST_ROW_BYTES}
    values = {
        name: entry.integer(name, 0, most.get(name, _MOST_COUNT)) if name in whole else entry.number(name, 0)
        for name in names
        if name != "placement"
    }
    values["placement"] = entry.text("placement", PLACEMENTS)
    entry.close()
    return Cluster(**values)


def _times(spans: NDArray[Any], batches: int) -> Times:
    if spans.shape != (len(TIMES), 2, batches) or not np.isfinite(spans).all():
        raise InputError(f"spans: must be finite, of shape {(len(TIMES), 2, batches)}, got shape {spans.shape}")
    for name, (start_s, end_s) in zip(TIMES, spans, strict=True):
        if (start_s > end_s).any():
            late = int((start_s > end_s).argmax())
            raise InputError(f"spans: {name} of batch {late} must start before it ends, at {end_s[late]:g} s")
    return Times(**{name: Spans(*span) for name, span in zip(TIMES, spans, strict=True)})


def _product(columns: Mapping[str, NDArray[Any]], machine: Machine) -> Product:
    trainers = machine.cluster.trainers
    rows, examples, prefetch_after = (columns[name] for name in _BY_BATCH)
    _check_lengths(columns, trainers)
    trainer, users = columns["trainer"], np.unpackbits(columns["users"], axis=1, count=trainers).astype(np.bool_)
    if not (trainer.min() >= 0 and trainer.max() < trainers):
        raise InputError(f"trainer: must be in 0..{trainers - 1}, got {trainer.min()}..{trainer.max()}")
    row_cuts, example_cuts = np.cumsum(rows)[:-1], np.cumsum(examples)[:-1]
    parts = {name: np.split(columns[name], row_cuts) for name in BY_ROW}
    places, used_by = np.split(trainer, example_cuts), np.split(users, row_cuts)
    found = []
    for number, used in enumerate(used_by):
        batch = Actions(
            **{name: parts[name][number] for name in BY_ROW},
            examples=np.bincount(places[number], minlength=trainers),
            prefetch_after=int(prefetch_after[number]),
            users=used,
        )
        if not -1 <= batch.prefetch_after < number:
            raise InputError(
                f"prefetch_after: batch {number} must have one before it or -1, got {batch.prefetch_after}"
            )
        _check_users(number, batch, used)
        found.append(batch)
    return Product(found, used_by, places, _times(columns["spans"], len(found)), machine)


def _check_lengths(columns: Mapping[str, NDArray[Any]], trainers: int) -> None:
    """As many entries of each array as the batches have rows and examples, and at least one of each."""
    batches = len(columns["rows"])
    for name in _BY_BATCH:
        if len(columns[name]) != batches or not batches:
            raise InputError(f"{name}: must have one entry for each batch, {max(1, batches)}; got {len(columns[name])}")
    counted = {name: sum(columns[name].tolist()) for name in ("rows", "examples")}  # exact: no 64 bits overflow
    for name in counted:
        if columns[name].min() < 1:
            raise InputError(f"{name}: must be >= 1 in each batch, got {columns[name].min()}")
    for name in (*BY_ROW, "users", "trainer"):
        of = "examples" if name == "trainer" else "rows"
        if len(columns[name]) != counted[of]:
            got = len(columns[name])
            raise InputError(f"{name}: must have as many entries as the batches have {of}, {counted[of]}; got {got}")
    if columns["users"].shape[1] != -(-trainers // 8):
        raise InputError(
            f"users: must have a bit for each of {trainers} trainers, got {columns['users'].shape[1]} bytes"
        )


def _check_users(number: int, batch: Actions, users: NDArray[np.bool_]) -> None:
    """Every row is used, and one that is private to a trainer by that one alone: the others could not have it."""
    alone = np.arange(users.shape[1]) == batch.private_to[:, None]
    is_private = (batch.private_to != SHARED) & (batch.sync == 0)
    wrong = np.where(is_private, (users != alone).any(axis=1), ~users.any(axis=1))
    if wrong.any():
        row = int(wrong.argmax())
        private_to = int(batch.private_to[row])
        rule = f"trainer {private_to} alone, to which it is private" if is_private[row] else "a trainer"
        got = np.flatnonzero(users[row]).tolist()
        raise InputError(f"batch {number}: users: row {batch.ids[row]} must be used by {rule}, got {got}")
