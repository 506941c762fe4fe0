"""Readers of traces: `.npy` and `.npz` (integers, examples x tables, or bags); `read_trace` also serves csv files.

None of them holds more than a block of examples: a `.npy` is mapped into memory, an array in a `.npz` is inflated as it
is read. The column of an id is its table.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.profiles.traces.bag_files import read_bags
from gapless.profiles.traces.csv_files import file_errors, read_csv_trace
from gapless.profiles.traces.npy_headers import NO_PICKLE, check_pickle, npy_header, numbered, skip
from gapless.profiles.traces.trace import BLOCK_EXAMPLES, Block, Trace, valid_block

__all__ = ["read_npy_trace", "read_npz_trace", "read_trace"]

_PICKLE = b"\x80"
"""How pickles begin."""


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

    def opened() -> NDArray[np.integer]:
        with file_errors(path), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers that Python 2 wrote are as good
            with Path(path).open("rb") as stream:
                if stream.peek(1)[:1] == _PICKLE:
                    raise InputError(f"{path}: {NO_PICKLE}")
                _, _, dtype = npy_header(stream)  # without one numpy takes it for a pickle, and advises to trust it
            check_pickle(str(path), dtype)
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise InputError(f"{path}: must be a .npy file with one array")
        return found

    ids = opened()
    _check_layout(str(path), ids.dtype, ids.shape)

    def blocks() -> Iterator[Block]:
        ids = opened()
        for start in range(0, len(ids), BLOCK_EXAMPLES):
            yield valid_block(ids[start : start + BLOCK_EXAMPLES], str(path), start)

    return Trace(str(path), numbered(ids.shape[1]), blocks, examples=len(ids))


def read_npz_trace(path: str | Path, array: str | None = None) -> Trace:
    """An array in a `.npz`, named by `array` where there are several; `values` with `lengths` or `offsets` are bags.

    One in Fortran order, as `.T` gives, is read as a stream for each table; if it is compressed too, every pass starts
    by inflating what lies before each table.
    """
    with file_errors(path), zipfile.ZipFile(path) as archive:
        names = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
    if array is None and "values" in names and {"lengths", "offsets"} & set(names):
        return read_bags(path, names)
    member = _npz_member(path, array, names)
    with file_errors(path), zipfile.ZipFile(path) as archive, archive.open(member) as stream:
        shape, _, dtype = npy_header(stream)
    where = f"{path}: array {member[:-4]!r}"
    _check_layout(where, dtype, shape)
    examples, tables = shape

    def blocks() -> Iterator[Block]:
        with file_errors(path), zipfile.ZipFile(path) as archive, ExitStack() as opened:
            pieces = _pieces(archive, member, opened)
            for start in range(0, examples, BLOCK_EXAMPLES):
                count = min(BLOCK_EXAMPLES, examples - start)
                yield valid_block(pieces(count), where, start)

    return Trace(str(path), numbered(tables), blocks, examples=examples)


def _pieces(archive: zipfile.ZipFile, member: str, opened: ExitStack) -> Callable[[int], NDArray[np.integer]]:
    """A function that reads so many more examples of an array."""
    first = opened.enter_context(archive.open(member))
    (examples, tables), fortran, dtype = npy_header(first)
    if not fortran:
        return lambda count: np.frombuffer(first.read(count * tables * dtype.itemsize), dtype).reshape(count, tables)
    start, streams = first.tell(), [first]
    for table in range(1, tables):
        streams.append(opened.enter_context(archive.open(member)))
        skip(streams[-1], start + table * examples * dtype.itemsize)
    return lambda count: np.stack([np.frombuffer(each.read(count * dtype.itemsize), dtype) for each in streams]).T


def _npz_member(path: str | Path, array: str | None, names: list[str]) -> str:
    if array is None and len(names) == 1:
        return f"{names[0]}.npy"
    if array not in names:
        got = "none is named" if array is None else f"got {array!r}"
        hint = suggestion(array or "", names)
        raise InputError(f"{path}: `array` must be one of {', '.join(names)}; {got}" + (f"; {hint}" if hint else ""))
    return f"{array}.npy"


def _check_layout(where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    check_pickle(where, dtype)
    if dtype.kind not in "iu" or len(shape) != 2 or 0 in shape:
        rule = "must be integers, examples x tables, at least one of each"
        raise InputError(f"{where}: {rule}, got {dtype} of shape {shape}")
