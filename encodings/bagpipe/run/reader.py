"""Run reader: the batches in a run file, window by window; what breaks a rule of the format is named in one line."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.counts import Counts
from gapless.encodings.bagpipe.lowering.actions import Actions
from gapless.encodings.bagpipe.question import PLACEMENTS
from gapless.encodings.bagpipe.run.store import Salvaged
from gapless.encodings.bagpipe.run.window import (
    BY_BATCH,
    WINDOW,
    Window,
    check_by_batch,
    check_shape,
    checked_type,
    checked_whole,
    lengths_of,
)
from gapless.errors import InputError
from gapless.io.arrays import Archive, NotAnArchiveError, meta_record
from gapless.io.reading import Limits, file_errors
from gapless.io.record import Record
from gapless.io.typed import located

__all__ = ["FORMAT", "VERSION", "RunFile", "mapping"]

FORMAT, VERSION = "gapless.bagpipe-run", 3

_LAST = ("spans", "written_back", "end", "made")
"""The arrays behind the windows."""

MOST_COUNT = 2**53
_MOST_ROW_BYTES = 2**31
"""So that all rows of a run together have a size in 64 bits."""
_CACHED_WINDOWS = 6
"""Kept in memory, if they fit: the replay looks at prefetches some windows ahead of all else."""
_ROW_BYTES = 64
"""Of a row of a batch in memory; there is one more for each trainer."""


class RunFile:
    """The batches of an open run file, as they were planned. `where`: what errors call it. The file is closed with it.
    `limits`: what reading it may take.

    `rows`, `examples`, `prefetch_after`: of each batch, int64. `problem`, `cluster`, `share`: what `meta` says.
    """

    def __init__(self, where: str, stream: IO[bytes], limits: Limits) -> None:
        self.where, self.stream, self._limits = where, stream, limits
        weakref.finalize(self, stream.close)
        self._read: dict[int, Window] = {}
        with self.errors():
            self._archive = self._opened()
            meta = self.record("meta")
            meta.of_format(FORMAT, VERSION)
            self.problem = mapping(meta, "problem")
            self.share = np.array(meta.integers("share", 0, MOST_COUNT), dtype=np.int64)
            entry = meta.record("cluster")
            meta.close()
            self.cluster = _cluster(entry)
            if len(self.share) != self.cluster.trainers:
                rule = f"one number for each of {self.cluster.trainers} trainers"
                raise meta.fail("share", rule, self.share.tolist())
            self._firsts = list[int]()
            self._check_counts(list(self._by_batch()))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What is wrong within the block is said of this file, in one line."""
        with located(self.where), file_errors(self.where):  # actions, cluster and schedule name the field alone
            yield

    @property
    def batches(self) -> int:
        """How many there are."""
        return len(self.rows)

    def actions(self, number: int) -> Actions:
        """What the trainers do in a batch."""
        with self.errors():
            taken = int(self.rows[number]) * (_ROW_BYTES + self.cluster.trainers)
            self._limits.check_held(f"batch {number}", taken)
            return self._window(number).actions(number)

    def trainer(self, number: int) -> NDArray[np.int64]:
        """Who trains on each example of a batch."""
        return self._window(number).trainer(number)

    def record(self, name: str) -> Record:
        """The JSON text in an array."""
        return meta_record(self.column(name), f"{self.where}: {name}")

    def column(self, name: str, shape: tuple[int, ...] | None = None) -> NDArray[np.number]:
        """An array of the type and dimensions that its name asks for, and of this shape, if it is in a window."""
        if name not in self._archive.names:
            raise InputError(f"{self.where}: array {name!r} is missing; is it a {FORMAT}?")
        header = self._archive.header(name)
        checked_type(name, header.dtype, header.shape)
        if shape is not None:
            check_shape(int(name[:8]), name[9:], header.shape, shape)
        return self._archive.read(name, as_is=shape is not None)

    def windows(self) -> Salvaged:
        """Its members but those that stand behind the windows."""
        members, end = self._archive.end_before(_LAST)
        return Salvaged(members, end, self.batches, 0)

    def _opened(self) -> Archive:
        self.stream.seek(0)
        is_begun = self.stream.read(4) == b"PK\x03\x04"
        try:
            return Archive(self.stream, self._limits)
        except NotAnArchiveError:
            hint = "it is no .npz at all"
            if is_begun:
                hint = "it is not finished: `solve bagpipe` with --resume goes on with it"
            raise InputError(f"{self.where}: must be a {FORMAT}, a .npz of several arrays; {hint}") from None

    def _by_batch(self) -> Iterator[dict[str, NDArray[np.number]]]:
        """What there is of each batch, window by window."""
        number = 0
        while f"{number:08d}/rows" in self._archive.names:
            columns = {name: self.column(f"{number:08d}/{name}") for name in BY_BATCH}
            check_by_batch(number, columns)
            yield {name: _whole(f"{number:08d}/{name}", column) for name, column in columns.items()}
            self._firsts.append(number)
            number += len(columns["rows"])
        if not number:
            raise InputError(f"{self.where}: array '00000000/rows' is missing; is it a {FORMAT}?")
        known = {"meta", *_LAST} | {f"{first:08d}/{name}" for first in self._firsts for name in WINDOW}
        strays = set(self._archive.names) - known
        if strays:
            rule = f"is no array of a run; the last window ends before batch {number}"
            raise InputError(f"{self.where}: {min(strays)!r} {rule}")

    def _check_counts(self, windows: list[dict[str, NDArray[np.number]]]) -> None:
        """Keep what there is of each batch. Raises `InputError` where counts don't fit together, or to the rows."""
        joined = {name: np.concatenate([columns[name] for columns in windows]) for name in BY_BATCH}
        self.rows, self.examples, self.prefetch_after = (joined[name] for name in BY_BATCH[:3])
        counts = Counts.of(self.cluster.trainers, joined["counts"])
        if (other := np.flatnonzero(counts.distinct != self.rows)).size:
            rule = f"must count the rows, {self.rows[other[0]]} in batch {other[0]}"
            raise InputError(f"{self.where}: counts: {rule}, got {counts.distinct[other[0]]}")

    def _window(self, number: int) -> Window:
        place = int(np.searchsorted(self._firsts, number, side="right")) - 1
        if place not in self._read:
            first = self._firsts[place]
            with self.errors():
                read = self._window_from(first)
            most = self._limits.held_bytes - read.size_bytes
            while self._read and (
                len(self._read) >= _CACHED_WINDOWS or sum(each.size_bytes for each in self._read.values()) > most
            ):
                del self._read[next(iter(self._read))]
            self._read[place] = read
        return self._read[place]

    def _window_from(self, first: int) -> Window:
        columns = {name: self.column(f"{first:08d}/{name}") for name in BY_BATCH}
        for name, shape in lengths_of(columns, self.cluster.trainers).items():
            columns[name] = self.column(f"{first:08d}/{name}", shape)
        return Window(first, columns, self.cluster.trainers)


def _whole(name: str, column: NDArray[np.number]) -> NDArray[np.number]:
    return column if column.dtype == np.float64 else checked_whole(name, column)


def mapping(record: Record, key: str) -> dict[str, object]:
    """A JSON object as it is."""
    nested = record.record(key)
    return {name: nested.raw(name) for name in nested.names()}


def _cluster(entry: Record) -> Cluster:
    most = {"row_bytes": _MOST_ROW_BYTES}
    values: dict[str, Any] = {
        name: entry.integer(name, 0, most.get(name, MOST_COUNT)) if field.type == "int" else entry.number(name, 0)
        for name, field in Cluster.__dataclass_fields__.items()
        if name != "placement"
    }
    values["placement"] = entry.text("placement", PLACEMENTS)
    entry.close()
    return Cluster(**values)
