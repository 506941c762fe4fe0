"""Arrays: the one reader of NumPy's files. What a header or a directory declares is checked before it is allocated.

Members of a `.npz` are stored or deflated, as NumPy writes them; pickles are never read.
"""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.reading import Limits, file_errors, first_line, opened
from gapless.io.record import Record, parse_record

__all__ = [
    "Archive",
    "Header",
    "NotAnArchiveError",
    "Reader",
    "array_bytes",
    "load_arrays",
    "meta_record",
    "open_archive",
    "read_header",
]

_MOST_HEADER = 10_000
"""Bytes, as NumPy's own limit; what it reads before it looks at that has none."""
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_MOST_EMPTY = 2**20
"""Entries that take no byte."""
_PIECE_BYTES, _SKIPPED_BYTES = 2**20, 2**18
_STREAM_BYTES, _FEW_READERS = 2**16, 64
"""What an inflating stream takes, about, and so many of them no time that matters."""
_ENCRYPTED = 1
_PICKLE = b"\x80"
_PICKLED = "is pickled, which is not read, since it may run code; save numbers: np.save(path, ids.astype('int64'))"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

Reader: TypeAlias = Callable[[int], NDArray[Any]]
"""So many entries more; fewer where the array ends."""


@dataclass(frozen=True)
class Header:
    """What stands before an array. `start`: how many bytes the header has."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[np.generic]
    start: int

    @property
    def size_bytes(self) -> int:
        """Of the array itself."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def held_bytes(self) -> int:
        """Of the array and a copy, or as numbers of 64 bits."""
        return max(2 * self.size_bytes, 8 * math.prod(self.shape))

    @property
    def words(self) -> str:
        """Type and shape."""
        return f"{self.dtype} of shape {self.shape}"


def read_header(stream: IO[bytes], where: str, size_bytes: int, is_whole: bool = True) -> Header:
    """The header of the array that begins here. `size_bytes`: of both, or at least (`is_whole`).

    Raises `InputError` for what is no array, for one of objects, and where the declared size is another one.
    """
    magic = stream.read(npy.MAGIC_LEN)
    if magic[:1] == _PICKLE:
        raise InputError(f"{where}: {_PICKLED}")
    try:
        width = _LENGTH_BYTES[npy.read_magic(io.BytesIO(magic))]
        raw = stream.read(width)
        length = int.from_bytes(raw, "little")
        if length > _MOST_HEADER:
            raise ValueError(f"its header must have at most {_MOST_HEADER} bytes, has {length}")
        raw += stream.read(length)
        read = npy.read_array_header_1_0 if width == 2 else npy.read_array_header_2_0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers that Python 2 wrote are as good
            shape, is_fortran, dtype = read(io.BytesIO(raw))
    except Exception as error:  # headers are Python, so there is nothing that can't be raised
        raise InputError(f"{where}: not readable: must be an array of NumPy, got {first_line(error)}") from None
    if dtype.hasobject:
        raise InputError(f"{where}: {_PICKLED}")
    found = Header(shape, is_fortran, dtype, npy.MAGIC_LEN + len(raw))
    most = max(size_bytes, _MOST_EMPTY)
    if any(isinstance(each, bool) or each < 0 for each in shape) or math.prod(max(each, 1) for each in shape) > most:
        raise InputError(f"{where}: not readable: its header has shape {str(shape)[:60]}, too large for the file")
    there = size_bytes - found.start
    if found.size_bytes > there or (is_whole and found.size_bytes < there):
        raise InputError(f"{where}: not readable: {found.words} takes {found.size_bytes} bytes, the file has {there}")
    return found


def read_array(stream: IO[bytes], header: Header) -> NDArray[np.generic]:
    """The array behind its header. Raises `EOFError` where it ends early."""
    data = np.empty(header.size_bytes, dtype=np.uint8)
    view, place = data.data, 0
    while place < len(view):
        piece = stream.read(min(_PIECE_BYTES, len(view) - place))
        if not piece:
            raise EOFError("it ends early")
        view[place : place + len(piece)] = piece
        place += len(piece)
    if not header.dtype.itemsize:
        return np.zeros(header.shape, dtype=header.dtype)
    return data.view(header.dtype).reshape(header.shape, order="F" if header.is_fortran else "C")


def array_bytes(data: bytes, where: str) -> NDArray[Any]:
    """The array that some bytes hold, header and all."""
    stream = io.BytesIO(data)
    return read_array(stream, read_header(stream, where, len(data)))


class NotAnArchiveError(InputError):
    """There is no directory of an archive."""


class Archive:
    """A `.npz` that is open. `names`: of its arrays, in the order of the file.

    Raises `InputError` for what is no archive, for members that NumPy can't have written, and where they inflate to
    more than the file may.
    """

    def __init__(self, stream: IO[bytes], limits: Limits) -> None:
        self.limits, self.where = limits, limits.where
        try:
            self._zip = zipfile.ZipFile(stream)
        except Exception as error:  # a directory may hold anything
            raise NotAnArchiveError(f"{self.where}: not readable: {first_line(error)}") from None
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in self._zip.infolist():
            name = member.filename.removesuffix(".npy")
            if member.flag_bits & _ENCRYPTED or member.compress_type not in _METHODS:
                got = "encrypted" if member.flag_bits & _ENCRYPTED else f"of method {member.compress_type}"
                raise InputError(f"{self.where}: not readable: {name!r} must be stored or deflated, is {got}")
            if name in self._members:
                raise InputError(f"{self.where}: not readable: array {name!r} stands twice")
            if name != member.filename:
                self._members[name] = member
        limits.check_inflated("its arrays", sum(member.file_size for member in self._zip.infolist()))
        self.names = tuple(self._members)

    def header(self, name: str) -> Header:
        """Of an array that is there."""
        with self.opened(name) as (_, header):
            return header

    def read(self, name: str, as_is: bool = False) -> NDArray[Any]:
        """An array that is there, as a whole. `as_is`: it will not be made one of 64 bits."""
        with self.opened(name) as (stream, header):
            self.limits.check_held(f"array {name!r}", header.size_bytes if as_is else header.held_bytes)
            return read_array(stream, header)

    @contextmanager
    def opened(self, name: str) -> Iterator[tuple[IO[bytes], Header]]:
        """The stream of an array that is there, behind its header."""
        member = self._members[name]
        where = f"{self.where}: array {name!r}"
        try:
            stream = self._zip.open(member)
        except Exception as error:  # its own header may hold anything, too
            raise InputError(f"{where}: not readable: {first_line(error)}") from None
        with file_errors(where), stream:
            yield stream, read_header(stream, where, member.file_size)

    def readers(self, name: str, starts: Sequence[int], streams: ExitStack) -> list[Reader]:
        """Of an array that is there, a reader from each of these entries on, as they lie in the file.

        Each inflates what lies before it; an array that needs many and fits into memory is read as a whole.
        """
        header = self.header(name)
        if len(starts) > _FEW_READERS and header.size_bytes <= self.limits.held_bytes // 4:
            flat = self.read(name, as_is=True).ravel(order="K")
            return [_reader_in(flat, start) for start in starts]
        self.limits.check_held(f"{len(starts)} readers of array {name!r}", len(starts) * _STREAM_BYTES)
        found = []
        for start in starts:
            stream, _ = streams.enter_context(self.opened(name))
            _skip(stream, start * header.dtype.itemsize)
            found.append(_reader_of(stream, header.dtype))
        return found

    def end_before(self, is_last: Collection[str]) -> tuple[list[zipfile.ZipInfo], int]:
        """The members that stand before those of these names, in the order of the file, and where they end."""
        members = sorted(self._zip.infolist(), key=lambda member: member.header_offset)
        last = [member.header_offset for member in members if member.filename.removesuffix(".npy") in is_last]
        end = min(last, default=self._zip.start_dir)
        return [member for member in members if member.header_offset < end], end


def _reader_in(flat: NDArray[np.generic], start: int) -> Reader:
    def read(count: int) -> NDArray[np.generic]:
        nonlocal start
        start += count
        return flat[start - count : start]

    return read


def _reader_of(stream: IO[bytes], dtype: np.dtype[np.generic]) -> Reader:
    return lambda count: np.frombuffer(stream.read(count * dtype.itemsize), dtype)


def _skip(stream: IO[bytes], size_bytes: int) -> None:
    """Read over so many bytes; the archive's own `seek` takes 16 MB at a time to do so."""
    while size_bytes and (read := len(stream.read(min(size_bytes, _SKIPPED_BYTES)))):
        size_bytes -= read


@contextmanager
def open_archive(path: str | Path) -> Iterator[Archive]:
    """The `.npz` in a file."""
    with opened(path) as (stream, limits):
        yield Archive(stream, limits)


@contextmanager
def _open_as(path: str | Path, what: str) -> Iterator[Archive]:
    try:
        with open_archive(path) as archive:
            yield archive
    except NotAnArchiveError as error:
        raise InputError(f"{error}; it must be {what}") from None


def load_arrays(
    path: str | Path, needed: Sequence[str], optional: Sequence[str] = (), *, what: str
) -> dict[str, NDArray[Any]]:
    """These arrays of a `.npz`, as whole ones; `what`: the format, and who writes it, for those who gave another file.

    Raises `InputError` where one is missing, and where they take more together than the file may.
    """
    with _open_as(path, what) as archive:
        for name in needed:
            if name not in archive.names:
                raise InputError(f"{path}: array {name!r} is missing in what must be {what}")
        names = [name for name in (*needed, *optional) if name in archive.names]
        archive.limits.check_held("its arrays", sum(archive.header(name).held_bytes for name in names))
        return {name: archive.read(name) for name in names}


def meta_record(meta: NDArray[np.generic], where: str) -> Record:
    """The JSON object in an array of bytes."""
    if meta.dtype != np.uint8 or meta.ndim != 1:
        raise InputError(f"{where}: must be uint8 in 1 dimension, got {meta.dtype} of shape {meta.shape}")
    with file_errors(where):
        text = meta.tobytes().decode("utf-8")
    return parse_record(text, where)
