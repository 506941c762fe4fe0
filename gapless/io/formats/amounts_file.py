"""Tables of numbers in files: bytes of each pair of ranks or of each rank, and loads of experts.

`.csv`: a line a row, commas between its entries; lines that start with `#` are left out. `.json`: a list of rows, or
one row. `.npy`: an array of one or two dimensions. Bytes may have a unit in CSV and JSON (`1.5MB`), and be 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.arrays import array_bytes
from gapless.io.reading import opened
from gapless.io.record import parse_json
from gapless.io.text_file import load_text
from gapless.units import parse_bytes

__all__ = ["Rows", "read_rows", "rows_of_array"]

Rows = tuple[tuple[int, ...], ...]

_MOST_ENTRIES = 4_000_000
"""2,000 ranks; more than any plan here can serve."""


def read_rows(path: str | Path, has_units: bool = True) -> Rows:
    """The rows of a table in a file, by its ending; `has_units`: entries are bytes, else plain numbers.

    Raises `InputError` that names file, row and column.
    """
    readers: dict[str, Callable[[str | Path, bool], Rows]] = {".csv": _csv, ".json": _json, ".npy": _npy}
    ending = Path(path).suffix.lower()
    if ending not in readers:
        raise InputError(f"{path}: must end in {', '.join(readers)}, got {ending or 'no ending'!r}")
    return readers[ending](path, has_units)


def rows_of_array(array: NDArray[Any], where: str) -> Rows:
    """The rows of an array; one of one dimension is a row. Raises `InputError` for anything but whole numbers >= 0."""
    if array.ndim not in (1, 2) or not 1 <= array.size <= _MOST_ENTRIES:
        raise InputError(f"{where}: must be a table of 1 to {_MOST_ENTRIES:,} numbers, got shape {array.shape}")
    if array.dtype.kind not in "iuf":
        raise InputError(f"{where}: must hold numbers, got {array.dtype}")
    table = array.reshape(-1, array.shape[-1])
    bad = np.argwhere(~((table >= 0) & (table < 2**62) & (table == np.floor(table))))
    if len(bad):
        row, column = bad[0].tolist()
        raise InputError(
            f"{where}: row {row}, column {column}: must be a whole number >= 0, got {table[row, column].item()!r}"
        )
    return tuple(map(tuple, table.astype(np.int64).tolist()))


def _csv(path: str | Path, has_units: bool) -> Rows:
    lines = [line.strip() for line in load_text(path).splitlines()]
    rows = [line.split(",") for line in lines if line and not line.startswith("#")]
    return _read(str(path), rows, has_units)


def _json(path: str | Path, has_units: bool) -> Rows:
    data = parse_json(load_text(path), str(path))
    if not isinstance(data, list):
        raise InputError(f"{path}: must be a list of rows, got {type(data).__name__}")
    rows = data if any(isinstance(row, list) for row in data) else [data]
    for number, row in enumerate(rows):
        if not isinstance(row, list):
            raise InputError(f"{path}: row {number}: must be a list, got {row!r}")
    return _read(str(path), rows, has_units)


def _npy(path: str | Path, has_units: bool) -> Rows:
    with opened(path) as (stream, _):
        return rows_of_array(array_bytes(stream.read(), str(path)), str(path))


def _read(path: str, rows: list[list[Any]], has_units: bool) -> Rows:
    lengths = sorted({len(row) for row in rows})
    if not rows or not lengths[0] or sum(map(len, rows)) > _MOST_ENTRIES:
        raise InputError(f"{path}: must be a table of 1 to {_MOST_ENTRIES:,} numbers, got {sum(map(len, rows)):,}")
    if len(lengths) > 1:
        raise InputError(f"{path}: rows must be of one length, got {lengths[0]} and {lengths[-1]}")
    return tuple(
        tuple(_entry(f"{path}: row {s}, column {t}", entry, has_units) for t, entry in enumerate(row))
        for s, row in enumerate(rows)
    )


def _entry(where: str, value: object, has_units: bool) -> int:
    """A whole number, or bytes with a unit."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    if isinstance(text, str):
        if text.isascii() and text.isdigit() and len(text) < 19:
            return int(text)
        if has_units:
            return parse_bytes(text, where)
    raise InputError(f"{where}: must be {'bytes' if has_units else 'a whole number'} >= 0, got {value!r}")
