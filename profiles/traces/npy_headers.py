"""What all readers of NumPy's files need: headers, and a reader past what isn't wanted."""

from __future__ import annotations

import warnings
from typing import IO

import numpy as np
from numpy.lib import format as npy

from gapless.errors import InputError

__all__ = ["NO_PICKLE", "check_pickle", "npy_header", "numbered", "skip"]

_SKIPPED_BYTES = 1 << 18

NO_PICKLE = "is pickled, which is not read, since it may run code; save integers: np.save(path, ids.astype('int64'))"


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Shape, whether in Fortran order, and type of the array that begins here."""
    version = npy.read_magic(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers that Python 2 wrote are as good
        if version == (1, 0):
            return npy.read_array_header_1_0(stream)
        return npy.read_array_header_2_0(stream)


def check_pickle(where: str, dtype: np.dtype[np.generic]) -> None:
    """Raises `InputError` for an array of objects."""
    if dtype.hasobject:
        raise InputError(f"{where}: {NO_PICKLE}")


def numbered(tables: int) -> tuple[str, ...]:
    """Names of tables that have none."""
    return tuple(f"table{number}" for number in range(tables))


def skip(stream: IO[bytes], size_bytes: int) -> None:
    """Read over so many bytes; the archive's own `seek` takes 16 MB at a time to do so."""
    while size_bytes and (read := len(stream.read(min(size_bytes, _SKIPPED_BYTES)))):
        size_bytes -= read
