"""Run store: the batches of a run in a .npz that windows are appended to, and that is read window by window.

A window is some batches in a row, closed once they have `WINDOW_ROWS` rows. Its arrays stand together, each as a member
`<first batch>/<name>.npy`, so that a file whose writing was cut short holds whole windows up to some place
(`salvaged`): every member says how long it is, and has a checksum. The directory of a .npz stands at its end and is
written last.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.run.window import WINDOW, Columns, KnownBatch, PlannedBatch, Window, window_arrays
from gapless.errors import InputError
from gapless.io.arrays import array_bytes
from gapless.io.reading import Limits

__all__ = ["WINDOW_ROWS", "RunWriter", "Salvaged", "head_in", "known_batches", "salvaged"]

WINDOW_ROWS = 2**19
"""Of all batches of a window together, about: 7 batches of 16,384 x 26 on a click log, 2 MB in the file."""
_LEVEL = 4
"""Of compression: numpy's own 6 makes files that are 7 % smaller, in five times the time."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of every member: the same run gives the same bytes."""
_HEADER, _MEMBER = struct.Struct("<4s5H3I2H"), b"PK\x03\x04"


def known_batches(stream: IO[bytes], limits: Limits, end: int, trainers: int) -> Iterator[KnownBatch]:
    """The batches of the windows up to a place in the file."""
    for columns, _, stop in _folders(stream, limits):
        if stop > end:
            return
        if "rows" in columns:
            window = Window(0, columns, trainers)
            for k in range(len(window)):
                counts, measured = tuple(columns["counts"][k].tolist()), tuple(columns["measured"][k].tolist())
                yield KnownBatch(window.ids(k), window.trainer(k), counts, measured)


def head_in(stream: IO[bytes], limits: Limits) -> NDArray[np.number] | None:
    """The array `meta`, which stands first; None where it doesn't."""
    columns, _, _ = next(_folders(stream, limits), ({}, [], 0))
    return columns.get("meta")


class RunWriter:
    """Appends windows to a file that is open for reading and writing, behind what is there."""

    def __init__(self, stream: IO[bytes], before: Salvaged | None = None) -> None:
        stream.seek(0, 2)
        self._stream, self._archive = stream, zipfile.ZipFile(stream, "a", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
        if before is not None:  # the members that stand there already
            self._archive.filelist.extend(before.members)
            self._archive.NameToInfo.update({member.filename: member for member in before.members})
        self._open: list[PlannedBatch] = []
        self._rows, self.batches = 0, 0 if before is None else before.batches

    def add(self, batch: PlannedBatch) -> None:
        """Take the next batch; its window is written once it is full."""
        self._open.append(batch)
        self._rows += len(batch.ids)
        if self._rows >= WINDOW_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what has been taken as a window, full or not."""
        if self._open:
            self.write(window_arrays(self._open), f"{self.batches:08d}/")
            self.batches += len(self._open)
            self._open, self._rows = [], 0

    def write(self, columns: Columns, folder: str = "") -> None:
        """Write arrays."""
        for name, column in columns.items():
            member = zipfile.ZipInfo(f"{folder}{name}.npy", _DATE)
            member.compress_type = zipfile.ZIP_DEFLATED
            with self._archive.open(member, "w") as stream:
                np.lib.format.write_array(stream, column, allow_pickle=False)
        self._stream.flush()

    def abandon(self) -> None:
        """Write nothing any more: the whole windows stay."""
        self._archive.fp = None

    def close(self) -> None:
        """Write the directory: from here on it is a .npz."""
        self.flush()
        self._archive.close()
        self._stream.flush()


@dataclass(frozen=True)
class Salvaged:
    """What a run file holds up to some window: its members in order, where they end, how many batches they have.

    `ignored_bytes`: of an unfinished window behind them.
    """

    members: list[zipfile.ZipInfo]
    end: int
    batches: int
    ignored_bytes: int


def salvaged(stream: IO[bytes], limits: Limits, is_kept: Callable[[int, Columns], bool]) -> Salvaged:
    """The first windows of a file, whether or not it was finished, up to the first that is not whole or not kept.

    `is_kept`: is called with the first batch and the columns of each window, in order.
    """
    kept, batches, end = list[zipfile.ZipInfo](), 0, 0
    for columns, members, stop in _folders(stream, limits):
        folder = members[0].filename.rpartition("/")[0]
        if folder != (f"{batches:08d}" if "rows" in columns else ""):
            break
        if folder and not is_kept(batches, columns):
            break
        kept += members
        batches, end = batches + len(columns.get("rows", ())), stop
    is_finished = zipfile.is_zipfile(stream)
    return Salvaged(kept, end, batches, 0 if is_finished else stream.seek(0, 2) - end)


def _folders(stream: IO[bytes], limits: Limits) -> Iterator[tuple[Columns, list[zipfile.ZipInfo], int]]:
    """`meta`, then the windows from the start of the file that are whole, with their members and where they end."""
    columns, members = Columns(), list[zipfile.ZipInfo]()
    for member, column, stop in _members(stream, limits):
        folder, _, name = member.filename.removesuffix(".npy").rpartition("/")
        if members and folder != members[0].filename.rpartition("/")[0]:
            return
        members.append(member)
        columns[name] = column
        if columns.keys() == ({*WINDOW} if folder else {"meta"}):
            yield columns, members, stop
            columns, members = {}, []


def _members(stream: IO[bytes], limits: Limits) -> Iterator[tuple[zipfile.ZipInfo, NDArray[np.number], int]]:
    """The members from the start of the file, with their arrays and where they end, as long as they are whole."""
    place = inflated = 0
    while True:
        stream.seek(place)
        head = stream.read(_HEADER.size)
        if len(head) < _HEADER.size or head[:4] != _MEMBER:
            return
        _, _, flags, method, _, _, checksum, packed, size, named, extra = _HEADER.unpack(head)
        if flags or method != zipfile.ZIP_DEFLATED:  # not written here
            return
        name = stream.read(named + extra)[:named].decode("utf-8", "replace")
        inflated += size
        limits.check_held(name, size)
        limits.check_inflated("its arrays", inflated)
        stop = place + _HEADER.size + named + extra + packed
        try:
            raw = zlib.decompressobj(-15).decompress(stream.read(packed), size + 1)
            if len(raw) != size or zlib.crc32(raw) != checksum:
                return
            column = array_bytes(raw, name)
        except (zlib.error, InputError):
            return
        member = zipfile.ZipInfo(name, _DATE)
        member.compress_type, member.CRC, member.compress_size, member.file_size = method, checksum, packed, size
        member.header_offset, member.external_attr = place, 0o600 << 16
        yield member, column, stop
        place = stop
