"""Run reader: the batches in a run file, window by window; what breaks a rule of the format is named in one line."""

from __future__ import annotations

import weakref
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.actions import BY_ROW, SHARED, Actions
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.question import PLACEMENTS
from gapless.encodings.bagpipe.run_store import Columns, Salvaged
from gapless.errors import InputError
from gapless.io.record import Record, parse_record
from gapless.profiles.traces.csv_files import file_errors

__all__ = ["FORMAT", "VERSION", "RunFile", "mapping"]

FORMAT, VERSION = "gapless.bagpipe-run", 2

_BY_BATCH = ("rows", "examples", "prefetch_after")
_IN_WINDOW = (*_BY_BATCH, "trainer", "users", "id_steps", *BY_ROW[1:])
_DIMENSIONS = {"users": 2, "spans": 3}
"""The others have one."""
_EXACT_TYPES = dict.fromkeys(("meta", "end", "made", "written_back", "users"), np.uint8) | {"spans": np.float64}
"""The other arrays are of any integer type, and become int64."""

MOST_COUNT = 2**53
_MOST_ROW_BYTES = 2**31
"""So that all rows of a run together have a size in 64 bits."""
_CACHED_WINDOWS = 6
"""Kept in memory: the replay looks at prefetches some windows ahead of all else."""


class RunFile:
    """The batches of an open run file, as they were planned. `where`: what errors call it. The file is closed with it.

    `rows`, `examples`, `prefetch_after`: of each batch, int64. `problem`, `cluster`, `share`: what `meta` says.
    """

    def __init__(self, where: str, stream: IO[bytes]) -> None:
        self.where, self.stream = where, stream
        weakref.finalize(self, stream.close)
        self._read: dict[int, list[tuple[Actions, NDArray[np.int64]]]] = {}
        with self.errors():
            self._archive, self._names = self._opened()
            meta = self.record("meta")
            meta.of_format(FORMAT)
            meta.integer("version", VERSION, VERSION)
            self.problem = mapping(meta, "problem")
            self.share = np.array(meta.integers("share", 0, MOST_COUNT), dtype=np.int64)
            entry = meta.record("cluster")
            meta.close()
            self.cluster = _cluster(entry)
            if len(self.share) != self.cluster.trainers:
                rule = f"one number for each of {self.cluster.trainers} trainers"
                raise meta.fail("share", rule, self.share.tolist())
            self._firsts = list[int]()
            small = zip(*self._small(), strict=True)
            self.rows, self.examples, self.prefetch_after = (np.concatenate(each) for each in small)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What is wrong within the block is said of this file, in one line."""
        try:
            with file_errors(self.where):
                yield
        except InputError as error:  # actions, cluster and schedule name the field, not the file
            message = str(error)
            raise InputError(message if message.startswith(self.where) else f"{self.where}: {message}") from None

    @property
    def batches(self) -> int:
        """How many there are."""
        return len(self.rows)

    def actions(self, number: int) -> Actions:
        """What the trainers do in a batch."""
        return self._batch(number)[0]

    def trainer(self, number: int) -> NDArray[np.int64]:
        """Who trains on each example of a batch."""
        return self._batch(number)[1]

    def record(self, name: str) -> Record:
        """The JSON text in an array."""
        return parse_record(self.column(name).tobytes().decode("utf-8", "replace"), f"{self.where}: {name}")

    def column(self, name: str) -> NDArray[Any]:
        """An array of the type and dimensions that its name asks for; whole numbers as int64."""
        if name not in self._names:
            raise InputError(f"{self.where}: array {name!r} is missing; is it a {FORMAT}?")
        column, plain = self._archive[name], name.rpartition("/")[2]
        exact, dimensions = _EXACT_TYPES.get(plain), _DIMENSIONS.get(plain, 1)
        kind = np.dtype(exact).name if exact else "integers"
        got = f"{column.dtype} of shape {column.shape}" if isinstance(column, np.ndarray) else "no array"
        is_kind = isinstance(column, np.ndarray) and (column.dtype == exact if exact else column.dtype.kind in "iu")
        if not is_kind or column.ndim != dimensions:
            raise InputError(f"{self.where}: {name}: must be {kind} in {dimensions} dimensions, got {got}")
        if exact:
            return np.asarray(column)
        if len(column) and not -(2**63) <= int(column.max()) < 2**63:
            raise InputError(f"{self.where}: {name}: must fit into int64, got {column.max()}")
        return np.asarray(column.astype(np.int64))

    def windows(self) -> Salvaged:
        """Its members but those that stand behind the windows."""
        with zipfile.ZipFile(self.stream) as archive:
            members = sorted(archive.infolist(), key=lambda member: member.header_offset)
            last = [member for member in members if "/" not in member.filename and member.filename != "meta.npy"]
            end = min((member.header_offset for member in last), default=archive.start_dir)
        return Salvaged([member for member in members if member.header_offset < end], end, self.batches, 0)

    def _opened(self) -> tuple[Any, set[str]]:
        self.stream.seek(0)
        is_begun = self.stream.read(4) == b"PK\x03\x04"
        if not zipfile.is_zipfile(self.stream):
            hint = "it is no .npz at all"
            if is_begun:
                hint = "it is not finished: `solve bagpipe` with --resume goes on with it"
            raise InputError(f"{self.where}: must be a {FORMAT}, a .npz of several arrays; {hint}")
        self.stream.seek(0)
        archive = np.load(self.stream, allow_pickle=False)
        return archive, set(archive.files)

    def _small(self) -> Iterator[tuple[NDArray[np.int64], ...]]:
        """Rows, examples and waits of the batches, window by window."""
        number = 0
        while f"{number:08d}/rows" in self._names:
            columns = [self.column(f"{number:08d}/{name}") for name in _BY_BATCH]
            count = len(columns[0])
            for name, column in zip(_BY_BATCH, columns, strict=True):
                if len(column) != count or not count:
                    rule = f"must have one entry for each batch of the window, {max(1, count)}"
                    raise InputError(f"{self.where}: {number:08d}/{name}: {rule}; got {len(column)}")
                if column.min() < (-1 if name == "prefetch_after" else 1):
                    least = -1 if name == "prefetch_after" else 1
                    raise InputError(f"{self.where}: {number:08d}/{name}: must be >= {least}, got {column.min()}")
            yield tuple(columns)
            self._firsts.append(number)
            number += count
        if not number:
            raise InputError(f"{self.where}: array '00000000/rows' is missing; is it a {FORMAT}?")
        begun = {f"{first:08d}" for first in self._firsts}
        strays = [name for name in self._names if "/" in name and name.split("/")[0] not in begun]
        if strays:
            rule = f"a window must begin at a batch behind the last of the one before, {number} at the end"
            raise InputError(f"{self.where}: {min(strays)}: {rule}")

    def _batch(self, number: int) -> tuple[Actions, NDArray[np.int64]]:
        window = int(np.searchsorted(self._firsts, number, side="right")) - 1
        if window not in self._read:
            while len(self._read) >= _CACHED_WINDOWS:
                del self._read[next(iter(self._read))]
            self._read[window] = self._read_window(window)
        return self._read[window][number - self._firsts[window]]

    def _read_window(self, window: int) -> list[tuple[Actions, NDArray[np.int64]]]:
        first = self._firsts[window]
        with self.errors():
            columns = {name: self.column(f"{first:08d}/{name}") for name in _IN_WINDOW}
            return list(_batches(first, columns, self.cluster.trainers))


def mapping(record: Record, key: str) -> dict[str, Any]:
    """A JSON object as it is."""
    nested = record.record(key)
    return {name: nested.raw(name) for name in nested.names()}


def _cluster(entry: Record) -> Cluster:
    whole = {"trainers", "servers", "row_bytes", "state_bytes", "pass_examples", "dense_bytes"}
    names = Cluster.__dataclass_fields__
    most = {"row_bytes": _MOST_ROW_BYTES}
    values = {
        name: entry.integer(name, 0, most.get(name, MOST_COUNT)) if name in whole else entry.number(name, 0)
        for name in names
        if name != "placement"
    }
    values["placement"] = entry.text("placement", PLACEMENTS)
    entry.close()
    return Cluster(**values)


def _batches(first: int, columns: Columns, trainers: int) -> Iterator[tuple[Actions, NDArray[np.int64]]]:
    """The batches of a window, each with the trainers of its examples."""
    _check_lengths(first, columns, trainers)
    trainer, users = columns["trainer"], np.unpackbits(columns["users"], axis=1, count=trainers).astype(np.bool_)
    if not (trainer.min() >= 0 and trainer.max() < trainers):
        rule = f"must be in 0..{trainers - 1}"
        raise InputError(f"{first:08d}/trainer: {rule}, got {trainer.min()}..{trainer.max()}")
    row_cuts, example_cuts = np.cumsum(columns["rows"])[:-1], np.cumsum(columns["examples"])[:-1]
    parts = {name: np.split(columns[name], row_cuts) for name in ("id_steps", *BY_ROW[1:])}
    for place, (taken, used) in enumerate(zip(np.split(trainer, example_cuts), np.split(users, row_cuts), strict=True)):
        number, after = first + place, int(columns["prefetch_after"][place])
        if after >= number:
            raise InputError(f"prefetch_after: batch {number} must have one before it or -1, got {after}")
        batch = Actions(
            ids=np.cumsum(parts["id_steps"][place]),
            **{name: parts[name][place] for name in BY_ROW[1:]},
            examples=np.bincount(taken, minlength=trainers),
            prefetch_after=after,
            users=used,
        )
        _check_users(number, batch)
        yield batch, taken


def _check_lengths(first: int, columns: Columns, trainers: int) -> None:
    """As many entries of each array as the batches have rows and examples."""
    counted = {name: sum(columns[name].tolist()) for name in ("rows", "examples")}  # exact: no 64 bits overflow
    for name in ("id_steps", *BY_ROW[1:], "users", "trainer"):
        of = "examples" if name == "trainer" else "rows"
        if len(columns[name]) != counted[of]:
            rule = f"must have as many entries as the batches have {of}, {counted[of]}"
            raise InputError(f"{first:08d}/{name}: {rule}; got {len(columns[name])}")
    if (width := columns["users"].shape[1]) != -(-trainers // 8):
        raise InputError(f"{first:08d}/users: must have a bit for each of {trainers} trainers, got {width} bytes")


def _check_users(number: int, batch: Actions) -> None:
    """Every row is used, and one that is private to a trainer by that one alone: the others could not have it."""
    users = batch.users
    alone = np.arange(users.shape[1]) == batch.private_to[:, None]
    is_private = (batch.private_to != SHARED) & (batch.sync == 0)
    wrong = np.where(is_private, (users != alone).any(axis=1), ~users.any(axis=1))
    if wrong.any():
        row = int(wrong.argmax())
        private_to = int(batch.private_to[row])
        rule = f"trainer {private_to} alone, to which it is private" if is_private[row] else "a trainer"
        got = np.flatnonzero(users[row]).tolist()
        raise InputError(f"batch {number}: users: row {batch.ids[row]} must be used by {rule}, got {got}")
