"""Readers of traces: `.npy` and `.npz` (integers, examples x tables, or bags); `read_trace` also serves csv files.

None of them holds more than a block of examples: a `.npy` is mapped into memory, an array in a `.npz` is inflated as it
is read. The column of an id is its table. Bags are `values` and, of which bag they are, `lengths` or `offsets`, in one
of two layouts, both of integers:

- `lengths` in two dimensions, examples x tables: the values stand example by example, table by table within;
- one dimension, as a KeyedJaggedTensor has them: the values stand table by table, example by example within, and so do
  the `lengths`; `offsets` are their running sum, from 0 on, with the number of values at the end. `keys`, texts, name
  the tables; without it there is one, as `torch.nn.EmbeddingBag(include_last_offset=True)` takes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints
from gapless.errors import InputError
from gapless.io.arrays import Archive, Header, Reader, open_archive, read_header
from gapless.io.reading import file_errors, opened
from gapless.io.record import suggestion
from gapless.profiles.traces.bags import Bags, bags_of_tables
from gapless.profiles.traces.csv_files import read_csv_trace
from gapless.profiles.traces.trace import MOST_TABLES, Block, Trace, block_starts, numbered, valid_block

__all__ = ["read_bags", "read_npy_trace", "read_npz_trace", "read_trace"]


def read_trace(
    path: str | Path, columns: Sequence[str] = (), string_columns: Collection[str] = (), array: str | None = None,
    bag_columns: Collection[str] = (),
) -> Trace:  # fmt: skip
    """The trace in a file, by the ending of its name: .npy, .npz, .csv or .csv.gz.

    `columns`: of a csv, the ones that become tables, all if empty. `string_columns`: those of them that hold names
    instead of ids. `bag_columns`: those with lists of ids, as `3;17;4`. `array`: of a `.npz` that has several. Raises
    `InputError` naming the file.
    """
    name = str(path)
    if name.endswith((".csv", ".csv.gz")):
        return read_csv_trace(path, columns, string_columns, bag_columns)
    if columns or string_columns or bag_columns:
        raise InputError(f"{path}: columns are chosen in a .csv or .csv.gz only; this file's columns all become tables")
    if name.endswith(".npy"):
        return read_npy_trace(path)
    if name.endswith(".npz"):
        return read_npz_trace(path, array)
    raise InputError(f"{path}: a trace must end in .npy, .npz, .csv or .csv.gz")


def read_npy_trace(path: str | Path) -> Trace:
    """An array in a file of its own. Raises `InputError` for other things than integers, examples x tables."""
    with opened(path) as (stream, _):
        header = read_header(stream, str(path), os.fstat(stream.fileno()).st_size, is_whole=False)
    _check_layout(str(path), header)
    examples, tables = header.shape

    def blocks() -> Iterator[Block]:
        order: Literal["F", "C"] = "F" if header.is_fortran else "C"
        with file_errors(path):
            ids = np.memmap(path, header.dtype, "r", header.start, header.shape, order)
        starts = block_starts(examples, tables)
        for start in starts:
            yield valid_block(ids[start : start + starts.step], str(path), start)

    return Trace(str(path), numbered(tables), blocks, examples=examples)


def read_npz_trace(path: str | Path, array: str | None = None) -> Trace:
    """An array in a `.npz`, named by `array` where there are several; `values` with `lengths` or `offsets` are bags.

    One in Fortran order, as `.T` gives, is read as a stream for each table; if it is compressed too, every pass starts
    by inflating what lies before each table.
    """
    with open_archive(path) as archive:
        if array is None and "values" in archive.names and {"lengths", "offsets"} & set(archive.names):
            return read_bags(path, archive)
        name = _array_name(path, array, archive.names)
        header = archive.header(name)
    where = f"{path}: array {name!r}"
    _check_layout(where, header)
    examples, tables = header.shape

    def blocks() -> Iterator[Block]:
        with open_archive(path) as archive, ExitStack() as streams:
            pieces = _pieces(archive, name, header, streams)
            starts = block_starts(examples, tables)
            for start in starts:
                yield valid_block(pieces(min(starts.step, examples - start)), where, start)

    return Trace(str(path), numbered(tables), blocks, examples=examples)


def _pieces(archive: Archive, name: str, header: Header, streams: ExitStack) -> Callable[[int], NDArray[np.integer]]:
    """A function that reads so many more examples of an array."""
    examples, tables = header.shape
    if not header.is_fortran:
        (read,) = archive.readers(name, [0], streams)
        return lambda count: read(count * tables).reshape(count, tables)
    columns = archive.readers(name, [table * examples for table in range(tables)], streams)
    return lambda count: np.stack([each(count) for each in columns]).T


def _array_name(path: str | Path, array: str | None, names: Sequence[str]) -> str:
    if array is None and len(names) == 1:
        return names[0]
    if array is None or array not in names:
        got = "none is named" if array is None else f"got {array!r}"
        hint = suggestion(array or "", names)
        raise InputError(f"{path}: `array` must be one of {', '.join(names)}; {got}" + (f"; {hint}" if hint else ""))
    return array


def _check_layout(where: str, header: Header) -> None:
    if header.dtype.kind not in "iu" or len(header.shape) != 2 or 0 in header.shape:
        raise InputError(f"{where}: must be integers, examples x tables, at least one of each, got {header.words}")


def read_bags(path: str | Path, archive: Archive) -> Trace:
    """The trace in arrays `values`, and `lengths` or `offsets`. Raises `InputError` where they don't fit together."""
    file = _File(path, archive)
    return Trace(str(path), file.table_names, file.blocks, examples=file.examples)


class _File:
    """One file; its bags are counted once, when it is opened."""

    def __init__(self, path: str | Path, archive: Archive) -> None:
        self._path, bounds = path, "lengths" if "lengths" in archive.names else "offsets"
        self._bounds = bounds
        (values,) = self._shape(archive, "values", (1,))
        shape = self._shape(archive, bounds, (1, 2) if bounds == "lengths" else (1,))
        self._by_table = len(shape) == 1
        keys = _keys(path, archive) if "keys" in archive.names else ()
        tables = (len(keys) or 1) if self._by_table else shape[1]
        self.examples = (shape[0] - (bounds == "offsets")) // tables if self._by_table else shape[0]
        self._check_counts(shape, tables, len(keys))
        self.table_names = keys or numbered(tables)
        self._ends = np.cumsum(self._count(archive))
        if self._ends[-1] != values:
            raise InputError(f"{path}: {bounds} must add up to the {values} values, got {self._ends[-1]}")

    def blocks(self) -> Iterator[Block]:
        """A fresh pass."""
        tables = len(self.table_names)
        with open_archive(self._path) as archive, ExitStack() as opened:
            starts = [0, *self._ends[:-1].tolist()] if self._by_table else [0]
            values = _readers(archive, "values", starts, opened)
            for first, lengths in self._lengths(archive, opened):
                archive.limits.check_held("a block of bags", 3 * 8 * int(lengths.sum()))
                if not self._by_table:
                    bags = Bags(values[0](int(lengths.sum())), lengths)
                else:
                    counts = lengths.sum(axis=0).tolist()
                    bags = bags_of_tables([values[table](counts[table]) for table in range(tables)], lengths)
                yield valid_block(bags, str(self._path), first)

    def _lengths(self, archive: Archive, opened: ExitStack) -> Iterator[tuple[int, Ints]]:
        """The number of a block's first example, and its lengths, examples x tables."""
        tables, is_offsets = len(self.table_names), self._bounds == "offsets"
        starts = [table * self.examples for table in range(tables)] if self._by_table else [0]
        readers = _readers(archive, self._bounds, starts, opened)
        ends = [read(1) for read in readers] if is_offsets else []
        if is_offsets and ends[0][0]:
            raise InputError(f"{self._path}: offsets must begin with 0, got {ends[0][0]}")
        blocks = block_starts(self.examples, tables)
        for first in blocks:
            count = min(blocks.step, self.examples - first)
            if not self._by_table:
                lengths = readers[0](count * tables).reshape(count, tables)
            else:
                lengths = np.stack([read(count) for read in readers], axis=1)
            if is_offsets:
                whole = np.concatenate([np.stack(ends, axis=1), lengths])
                lengths, ends = np.diff(whole, axis=0), list(whole[-1:].T)
            if lengths.min() < 0:
                example, table = np.argwhere(lengths < 0)[0]
                rule = "offsets must not fall" if is_offsets else "lengths must be >= 0"
                where = f"example {first + example}, table {table}"
                raise InputError(f"{self._path}: {rule}, got {lengths[example, table]} in {where}")
            yield first, lengths

    def _count(self, archive: Archive) -> Ints:
        """The values of each table; of the other layout, of all."""
        with ExitStack() as opened:
            total = sum(lengths.sum(axis=0) for _, lengths in self._lengths(archive, opened))
        return np.asarray(total) if self._by_table else np.atleast_1d(np.sum(total))

    def _shape(self, archive: Archive, name: str, axes: tuple[int, ...]) -> tuple[int, ...]:
        header = archive.header(name)
        shape = header.shape
        if header.dtype.kind not in "iu" or len(shape) not in axes or (header.is_fortran and len(shape) > 1 < shape[1]):
            rule = f"must be integers in {' or '.join(map(str, axes))} dimensions, row by row"
            raise InputError(f"{self._path}: array {name!r}: {rule}, got {header.words}")
        return shape

    def _check_counts(self, shape: tuple[int, ...], tables: int, keys: int) -> None:
        if not self._by_table and keys not in (0, tables):
            raise InputError(f"{self._path}: keys must name each of {tables} tables, got {keys}")
        more = int(self._bounds == "offsets")
        if self._by_table and shape[0] != self.examples * tables + more:
            rule = f"as many for each of {tables} tables" + (", and one more at the end" if more else "")
            raise InputError(f"{self._path}: {self._bounds} must be {rule}, got {shape[0]}")
        if not self.examples or not tables:
            raise InputError(f"{self._path}: {self._bounds} must be of at least one example and table, got none")


def _keys(path: str | Path, archive: Archive) -> tuple[str, ...]:
    header = archive.header("keys")
    if len(header.shape) != 1 or header.dtype.kind != "U" or not 0 < header.shape[0] <= MOST_TABLES:
        raise InputError(f"{path}: keys must be texts, one for each table, got {header.words}")
    return tuple(archive.read("keys").tolist())


def _readers(archive: Archive, name: str, starts: Sequence[int], opened: ExitStack) -> list[Reader]:
    """Read an array from each of these entries on, as int64."""

    def of(reader: Reader) -> Reader:
        def read(count: int) -> Ints:
            values = reader(count)
            if len(values) < count:
                raise EOFError(f"array {name!r} ends early")
            return values.astype(np.int64)

        return read

    return [of(reader) for reader in archive.readers(name, starts, opened)]
