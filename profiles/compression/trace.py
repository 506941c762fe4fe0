"""Compression trace: what each mode spoils of each layer's gradient in each epoch of a training, as measured.

Its file is an `.npz` with a text `meta` (JSON) and the columns of `CompressionTrace` as arrays. `meta` holds format
`gapless.compression-trace`, version 1, name, source, `layers` (names), `shapes`, `modes` and `forward_s`. What is sent
isn't there: it follows from shapes and modes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Ints
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.io.typed import Stored, located, read_archive, write_archive
from gapless.profiles.compressors.grammar import known_as, method_of, sent_bytes
from gapless.report.short_repr import Brief

__all__ = ["CompressionTrace", "read_compression_trace", "write_compression_trace"]


_MOST_BYTES = 2**53
"""Up to which sums of what is sent are exact in floating point."""


@dataclass(frozen=True, repr=False)
class CompressionTrace(Brief):
    """E epochs of a training, L layers (tensors, in the order in which their gradients become ready), M modes.

    `shapes[l]`: of the layer's tensor. `steps[e]`: int64, of the epoch. `learning_rate[e]`: float, gamma_e. `error`:
    float, shape (E, L, M): the mean over the epoch's steps of the squared distance between a layer's gradient and what
    the mode makes of it. `norm`: float, shape (E, L): of the sum of all of the epoch's gradients. `deviation_ratio`:
    float, shape (E, L): the mean of |mean / standard deviation| of the gradient's entries. `forward_s`,
    `backward_s[l]`: of a step, and between the gradient before and this one. `compress_s`: float, shape (L, M): what a
    rank computes to send the layer in the mode. Raises `InputError` naming what breaks which rule.
    """

    name: str
    layer_names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    modes: tuple[str, ...]
    steps: Ints
    learning_rate: Floats
    error: Floats
    norm: Floats
    deviation_ratio: Floats
    forward_s: float
    backward_s: Floats
    compress_s: Floats
    source: str = ""

    def __post_init__(self) -> None:
        where = f"trace {self.name!r}"
        for title, names in (("layer_names", self.layer_names), ("modes", self.modes)):
            if not names or len(set(names)) < len(names):
                raise InputError(f"{where}: {title} must be at least one, and differ, got {', '.join(names) or 'none'}")
        for mode in self.modes:
            method_of(mode)
        self._check_shapes(where)
        E, L, M = len(self.steps), len(self.layer_names), len(self.modes)
        if not E or (self.steps < 1).any():
            raise InputError(
                f"{where}: steps must be whole numbers >= 1 of at least one epoch, got {self.steps.min(initial=0)}"
            )
        shapes = {
            "learning_rate": (E,), "error": (E, L, M), "norm": (E, L), "deviation_ratio": (E, L), "backward_s": (L,),
            "compress_s": (L, M),
        }  # fmt: skip
        for title, shape in shapes.items():
            self._check_column(where, title, shape)
        if not (math.isfinite(self.forward_s) and self.forward_s >= 0):
            raise InputError(f"{where}: forward_s must be finite and >= 0, got {self.forward_s}")
        most = sum(max(column) for column in self.sent_bytes.tolist()) * int(self.steps.sum())
        if most > _MOST_BYTES:
            raise InputError(f"{where}: must send at most 2^53 bytes in all, got {most}")

    def _check_shapes(self, where: str) -> None:
        if len(self.shapes) != len(self.layer_names):
            raise InputError(f"{where}: shapes must be {len(self.layer_names)}, one a layer, got {len(self.shapes)}")
        for name, shape in zip(self.layer_names, self.shapes, strict=True):
            if any(length < 1 for length in shape):
                raise InputError(f"layer {name!r}: lengths of a shape must be >= 1, got {list(shape)}")

    def _check_column(self, where: str, title: str, shape: tuple[int, ...]) -> None:
        column = getattr(self, title)
        if column.shape != shape:
            raise InputError(f"{where}: {title} must have shape {shape}, got {column.shape}")
        wrong = ~(np.isfinite(column) & (column >= 0))
        if wrong.any():
            raise InputError(f"{where}: {title} must be finite and >= 0, got {column.reshape(-1)[int(wrong.argmax())]}")

    @property
    def epoch_count(self) -> int:
        """E."""
        return len(self.steps)

    @property
    def layer_count(self) -> int:
        """L."""
        return len(self.layer_names)

    @cached_property
    def sent_bytes(self) -> Ints:
        """What a rank sends of each layer in each mode in a step, int64, shape (L, M): from shapes alone."""
        return np.array([[sent_bytes(mode, shape) for mode in self.modes] for shape in self.shapes], dtype=np.int64)

    def in_modes(self, modes: Sequence[str]) -> CompressionTrace:
        """The same training in some of its modes. Raises `InputError` for one that it doesn't have."""
        modes = [known_as(mode, self.modes) for mode in modes]
        for mode in modes:
            check_known("modes", mode, self.modes)
        chosen = [self.modes.index(mode) for mode in dict.fromkeys(modes)]
        names = tuple(self.modes[number] for number in chosen)
        return replace(self, modes=names, error=self.error[:, :, chosen], compress_s=self.compress_s[:, chosen])

    @property
    def weight(self) -> Floats:
        """Of an epoch's errors: gamma_e^2 for each of its steps, float, shape (E,)."""
        return np.asarray(self.steps * self.learning_rate**2)


_FORMAT = "gapless.compression-trace"
_VERSION = 1
_COLUMNS = ("steps", "learning_rate", "error", "norm", "deviation_ratio", "backward_s", "compress_s")


@dataclass(frozen=True)
class _Meta:
    name: str
    source: str
    layer_names: Annotated[tuple[str, ...], Stored(key="layers")]
    shapes: Annotated[tuple[tuple[int, ...], ...], Stored(1, 2**31 - 1, each="a list of lengths")]
    modes: tuple[str, ...]
    forward_s: Annotated[float, Stored(0)]


def write_compression_trace(path: str | Path, trace: CompressionTrace) -> None:
    """Write a trace, whole or not at all. Raises `InputError` for a name that doesn't end in `.npz`."""
    check_trace_name(path)
    meta = _Meta(trace.name, trace.source, trace.layer_names, trace.shapes, trace.modes, trace.forward_s)
    write_archive(path, meta, _FORMAT, _VERSION, {title: getattr(trace, title) for title in _COLUMNS})


def check_trace_name(path: str | Path) -> None:
    """Raise `InputError` unless the name is that of a trace."""
    if not str(path).endswith(".npz"):
        raise InputError(f"{path}: a compression trace is a .npz file")


def read_compression_trace(path: str | Path) -> CompressionTrace:
    """The trace in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    check_trace_name(path)
    meta, arrays = read_archive(_Meta, path, _FORMAT, _VERSION, _COLUMNS, written_by="gapless profile compression")
    with located(str(path)):
        columns: dict[str, Any] = {title: _column(title, arrays[title]) for title in _COLUMNS}
        return CompressionTrace(**vars(meta), **columns)


def _column(title: str, column: NDArray[np.generic]) -> NDArray[np.generic]:
    kinds, wanted = ("iu", np.int64) if title == "steps" else ("iuf", np.float64)
    if column.dtype.kind not in kinds:
        raise InputError(f"{title}: must hold {'whole ' if title == 'steps' else ''}numbers, got {column.dtype}")
    return column.astype(wanted)
