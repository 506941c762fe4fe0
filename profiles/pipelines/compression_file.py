"""Files of compression tables: what was measured of compressors on one model.

JSON, format `gapless.compression-errors`, version 1; `//` comments are allowed::

    {"format": "gapless.compression-errors", "version": 1, "name": "tiny", "depth": [0.25, 0.75],
     "modes": [{"name": "rank 4", "ratio": 0.1, "rank": 4, "encode_s_per_byte": 1e-11, "decode_s_per_byte": 1e-12,
                "hop_error": [0.02, 0.01], "reduce_error": [0.05, 0.04]}],
     "source": "where the numbers are from"}

`ratio` is the share of the bytes that is sent, and `rank`, optional, that of the matrices that stand for a message. The
errors are one at each depth. `gapless.profiles.pipelines.compression` says what each field means.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.record import Record, load_record
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable

__all__ = ["compression_table_text", "read_compression_table", "write_compression_table"]

_FORMAT = "gapless.compression-errors"
_VERSION = 1


def read_compression_table(path: str | Path) -> CompressionTable:
    """The table in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    record = load_record(path)
    record.of_format(_FORMAT)
    record.integer("version", _VERSION, _VERSION)
    try:
        table = CompressionTable(
            name=record.text("name"),
            depth=_column(record, "depth"),
            modes=tuple(_mode(entry) for entry in record.records("modes")),
            source=record.text("source"),
        )
    except InputError as error:  # a table names its mode, not the file
        message = str(error)
        raise InputError(message if message.startswith(f"{path}: ") else f"{path}: {message}") from None
    record.close()
    return table


def _mode(entry: Record) -> CompressionMode:
    mode = CompressionMode(
        name=entry.text("name"),
        ratio=entry.number("ratio", 0),
        rank=entry.integer("rank", 0, 2**31, default=0),
        encode_s_per_byte=entry.number("encode_s_per_byte", 0),
        decode_s_per_byte=entry.number("decode_s_per_byte", 0),
        hop_error=_column(entry, "hop_error"),
        reduce_error=_column(entry, "reduce_error"),
    )
    entry.close()
    return mode


def _column(record: Record, key: str) -> NDArray[np.float64]:
    return np.array([record.real(f"{key}[{k}]", value, 0) for k, value in enumerate(record.array(key))])


def write_compression_table(path: str | Path, table: CompressionTable) -> None:
    """Write a table, whole or not at all."""
    write_text(path, compression_table_text(table))


def compression_table_text(table: CompressionTable) -> str:
    """A table as JSON, one mode a line."""
    head = {"format": _FORMAT, "version": _VERSION, "name": table.name, "source": table.source}
    modes = [
        json.dumps({
            "name": mode.name, "ratio": mode.ratio, "rank": mode.rank, "encode_s_per_byte": mode.encode_s_per_byte,
            "decode_s_per_byte": mode.decode_s_per_byte, "hop_error": mode.hop_error.tolist(),
            "reduce_error": mode.reduce_error.tolist(),
        })
        for mode in table.modes
    ]  # fmt: skip
    return f'{json.dumps(head)[:-1]}, "depth": {table.depth.tolist()},\n"modes": [\n' + ",\n".join(modes) + "]}\n"
