"""Compression tables: what compressors of gradients spoil and take, measured on one model, and their files.

JSON, format `gapless.compression-errors`, version 1; `//` comments are allowed::

    {"format": "gapless.compression-errors", "version": 1, "name": "tiny", "depth": [0.25, 0.75],
     "modes": [{"name": "rank 4", "ratio": 0.1, "rank": 4, "encode_s_per_byte": 1e-11, "decode_s_per_byte": 1e-12,
                "hop_error": [0.02, 0.01], "reduce_error": [0.05, 0.04]}],
     "source": "where the numbers are from"}

`ratio` is the share of the bytes that is sent, and `rank`, optional, that of the matrices that stand for a message. The
errors are one at each depth. `CompressionMode` says what each field means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from gapless.array_types import Floats
from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.typed import Stored, read_file, text_of
from gapless.report.short_repr import Brief

__all__ = [
    "CompressionMode",
    "CompressionTable",
    "compression_table_text",
    "read_compression_table",
    "write_compression_table",
]


@dataclass(frozen=True)
class CompressionMode:
    """One compressor at one setting.

    `rank`: of the matrices that stand for a message of a known shape; 0 where `ratio`, the share of the bytes that is
    sent, says it all. `encode_s_per_byte`, `decode_s_per_byte`: of the bytes before compression.
    `hop_error[k]`: float, at the depths of the table: the relative squared error of the whole gradient if each
    micro-batch's gradient at this depth of the model is compressed. `reduce_error[k]`: the same if the sum of the
    layers at this depth is compressed, as a density: a stage has the mean over its depths times its share of the model.
    """

    name: str
    ratio: Annotated[float, Stored(0)]
    rank: Annotated[int, Stored(0, 2**31, otherwise=0)]
    encode_s_per_byte: Annotated[float, Stored(0)]
    decode_s_per_byte: Annotated[float, Stored(0)]
    hop_error: Floats
    reduce_error: Floats

    def __post_init__(self) -> None:
        where = f"mode {self.name!r}"
        if not 0 < self.ratio <= 1:
            raise InputError(f"{where}: ratio must be > 0 and <= 1, got {self.ratio}")
        for title in ("encode_s_per_byte", "decode_s_per_byte"):
            value = getattr(self, title)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{where}: {title} must be finite and >= 0, got {value}")
        for title in ("hop_error", "reduce_error"):
            column = getattr(self, title)
            wrong = ~(np.isfinite(column) & (column >= 0))
            if wrong.any():
                raise InputError(f"{where}: {title} must be finite and >= 0, got {column[int(wrong.argmax())]}")

    def hop_ratio(self, shape: tuple[int, int] | None) -> float:
        """The share of a message's bytes that is sent: r (n + m) / (n m) for rank r where the shape n x m is known."""
        if not self.rank or shape is None:
            return self.ratio
        rows, columns = shape
        return min(1.0, self.rank * (rows + columns) / (rows * columns))


@dataclass(frozen=True, repr=False)
class CompressionTable(Brief):
    """Modes measured on a model. `depth`: float, where in the model (0: its input, 1: its output); `source`: how.

    Raises `InputError` naming the table.
    """

    name: str
    depth: Floats
    modes: tuple[CompressionMode, ...]
    source: Annotated[str, Stored(is_needed=True)] = ""

    def __post_init__(self) -> None:
        where = f"table {self.name!r}"
        if not self.modes:
            raise InputError(f"{where}: modes must hold at least one, got none")
        if not len(self.depth) or (np.diff(self.depth) <= 0).any() or self.depth[0] < 0 or self.depth[-1] > 1:
            raise InputError(f"{where}: depth must be numbers in 0..1 that grow, got {self.depth.tolist()}")
        for mode in self.modes:
            for title in ("hop_error", "reduce_error"):
                if getattr(mode, title).shape != self.depth.shape:
                    raise InputError(
                        f"mode {mode.name!r}: {title} must have one entry for each of {len(self.depth)} depths"
                    )
        names = [mode.name for mode in self.modes]
        if len(set(names)) < len(names):
            twice = next(name for k, name in enumerate(names) if name in names[:k])
            raise InputError(f"{where}: names of modes must differ, got {twice!r} twice")

    def hop_error(self, mode: int, depth: Floats) -> Floats:
        """Between the measured depths it is interpolated, beyond them it stays; float, shape of `depth`."""
        return np.interp(depth, self.depth, self.modes[mode].hop_error)

    def reduce_error(self, mode: int, depth: Floats) -> Floats:
        """As `hop_error`, of the sums."""
        return np.interp(depth, self.depth, self.modes[mode].reduce_error)


_FORMAT = "gapless.compression-errors"
_VERSION = 1


def read_compression_table(path: str | Path) -> CompressionTable:
    """The table in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    return read_file(CompressionTable, path, _FORMAT, _VERSION)


def write_compression_table(path: str | Path, table: CompressionTable) -> None:
    """Write a table, whole or not at all."""
    write_text(path, compression_table_text(table))


def compression_table_text(table: CompressionTable) -> str:
    """A table as JSON, one mode a line."""
    return text_of(table, _FORMAT, _VERSION, ["modes"])
