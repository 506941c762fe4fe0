"""Columns of numbers in JSON: arrays written piece by piece, and read back with what is wrong in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.ir.schedule import Ragged

__all__ = ["float_column", "int_column", "json_pieces", "ragged_data", "read_ragged"]

_LARGE_COLUMN = 1000
"""From so many numbers on, equal ones are put into words once."""


def json_pieces(value: Any) -> Iterator[str]:
    """A value as JSON in pieces; arrays are columns."""
    if isinstance(value, dict):
        for number, (key, inner) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{json.dumps(key)}: "
            yield from json_pieces(inner)
        yield "}" if value else "{}"
    elif isinstance(value, np.ndarray):
        yield f"[{', '.join(_texts_of(value))}]" if len(value) else "[]"
    else:
        yield json.dumps(value, allow_nan=False)


def _texts_of(column: NDArray[np.generic]) -> list[str]:
    """Each number as JSON has it; of a large column, one that stands there often is put into words once.

    Raises `ValueError` for nan and inf.
    """
    if len(column) < _LARGE_COLUMN:
        return _words(column)
    if column.dtype == np.float64:
        bits, place = np.unique(column.view(np.int64), return_inverse=True)  # 0.0 is not -0.0
        values = bits.view(np.float64)
    else:
        least, most = int(column.min()), int(column.max())
        if most - least > len(column):
            return _words(column)
        values, place = np.arange(least, most + 1).astype(column.dtype), column.astype(np.int64) - least
    found: list[str] = np.array(_words(values), dtype=object)[place].tolist()
    return found


def _words(values: NDArray[np.generic]) -> list[str]:
    return json.dumps(values.tolist(), allow_nan=False)[1:-1].split(", ")


def ragged_data(lists: Ragged) -> dict[str, NDArray[np.int64]]:
    """Lists of numbers as two columns."""
    return {"start": lists.start, "values": lists.values}


def read_ragged(record: Record) -> Ragged:
    """Lists of numbers from two columns. Raises `InputError` where `start` doesn't rise to the number of values."""
    start, values = int_column(record, "start"), int_column(record, "values")
    record.close()
    if not len(start) or start[0] != 0 or start[-1] != len(values) or (np.diff(start) < 0).any():
        raise InputError(f"{record.where}: start must rise from 0 to the number of values, {len(values)}")
    return Ragged(start, values)


def int_column(record: Record, key: str) -> NDArray[np.int64]:
    """A column of whole numbers, int64. Raises `InputError` for anything else."""
    if isinstance(found := record.raw(key), np.ndarray) and found.dtype == np.int64:
        return found
    column = record.array(key)
    if set(map(type, column)) <= {int}:
        with suppress(OverflowError):
            found = np.array(column, dtype=np.int64)
            if ((found > -(2**62)) & (found < 2**62)).all():
                return found
    raise record.fail(key, "a list of whole numbers below 2^62", column)


def float_column(record: Record, key: str) -> NDArray[np.float64]:
    """A column of numbers, float. Raises `InputError` for anything else."""
    if isinstance(found := record.raw(key), np.ndarray) and found.dtype == np.float64:
        return found
    column = record.array(key)
    if not set(map(type, column)) <= {int, float}:
        raise record.fail(key, "a list of numbers", column)
    try:
        return np.array(column, dtype=np.float64)
    except OverflowError:
        raise record.fail(key, "a list of numbers that fit into 64 bits", column) from None
