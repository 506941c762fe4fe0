"""Files of compression traces: `.npz` with a text `meta` (JSON) and the columns of `CompressionTrace` as arrays.

`meta` holds format `gapless.compression-trace`, version 1, name, source, `layers` (names), `shapes`, `modes` and
`forward_s`. What is sent isn't there: it follows from shapes and modes.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.arrays import load_arrays, meta_record
from gapless.io.atomic import write_bytes
from gapless.io.record import Record
from gapless.profiles.compression.trace import CompressionTrace

__all__ = ["read_compression_trace", "write_compression_trace"]

_FORMAT = "gapless.compression-trace"
_VERSION = 1
_COLUMNS = ("steps", "learning_rate", "error", "norm", "deviation_ratio", "backward_s", "compress_s")


def write_compression_trace(path: str | Path, trace: CompressionTrace) -> None:
    """Write a trace, whole or not at all. Raises `InputError` for a name that doesn't end in `.npz`."""
    check_trace_name(path)
    meta = {
        "format": _FORMAT, "version": _VERSION, "name": trace.name, "source": trace.source,
        "layers": list(trace.layer_names), "shapes": [list(shape) for shape in trace.shapes],
        "modes": list(trace.modes), "forward_s": trace.forward_s,
    }  # fmt: skip
    stream = io.BytesIO()
    text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    np.savez_compressed(stream, meta=text, **{title: getattr(trace, title) for title in _COLUMNS})
    write_bytes(path, stream.getvalue())


def check_trace_name(path: str | Path) -> None:
    """Raise `InputError` unless the name is that of a trace."""
    if not str(path).endswith(".npz"):
        raise InputError(f"{path}: a compression trace is a .npz file")


def read_compression_trace(path: str | Path) -> CompressionTrace:
    """The trace in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    check_trace_name(path)
    what = f"a {_FORMAT}, which `gapless profile compression` writes"
    arrays = load_arrays(path, ("meta", *_COLUMNS), what=what)
    record = meta_record(arrays["meta"], f"{path}: meta")
    record.of_format(_FORMAT)
    record.integer("version", _VERSION, _VERSION)
    values: dict[str, Any] = {
        "name": record.text("name"),
        "source": record.text("source"),
        "layer_names": _texts(record, "layers"),
        "shapes": tuple(_shape(record, number, shape) for number, shape in enumerate(record.array("shapes"))),
        "modes": _texts(record, "modes"),
        "forward_s": record.number("forward_s", 0),
    }
    record.close()
    try:
        values |= {title: _column(title, arrays[title]) for title in _COLUMNS}
        return CompressionTrace(**values)
    except InputError as error:  # a trace names its layer, not the file
        raise InputError(f"{path}: {error}") from None


def _texts(record: Record, key: str) -> tuple[str, ...]:
    found = record.array(key)
    if any(not isinstance(text, str) for text in found):
        raise record.fail(key, "a list of texts", found)
    return tuple(found)


def _shape(record: Record, number: int, shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list):
        raise record.fail(f"shapes[{number}]", "a list of lengths", shape)
    return tuple(record.whole(f"shapes[{number}]", length, 1, 2**31 - 1) for length in shape)


def _column(title: str, column: NDArray[Any]) -> NDArray[Any]:
    kinds, wanted = ("iu", np.int64) if title == "steps" else ("iuf", np.float64)
    if column.dtype.kind not in kinds:
        raise InputError(f"{title}: must hold {'whole ' if title == 'steps' else ''}numbers, got {column.dtype}")
    return column.astype(wanted)
