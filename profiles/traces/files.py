"""Readers of traces: `.npy` and `.npz` (integers, examples x tables, or bags); `read_trace` also serves csv files.

None of them holds more than a block of examples: a `.npy` is mapped into memory, an array in a `.npz` is inflated as it
is read. The column of an id is its table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.arrays import Archive, Header, open_archive, read_header
from gapless.io.reading import file_errors, opened
from gapless.io.record import suggestion
from gapless.profiles.traces.bag_files import read_bags
from gapless.profiles.traces.csv_files import read_csv_trace
from gapless.profiles.traces.trace import Block, Trace, block_starts, numbered, valid_block

__all__ = ["read_npy_trace", "read_npz_trace", "read_trace"]


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
