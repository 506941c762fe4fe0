"""Files of index sets: an .npz of format `gapless.index-sets`, version 1.

`meta`: a JSON object as bytes (uint8), with `format`, `version`, `name`, `elements`, `steps`, `ranks`, and
`parameter_names`, a list that may be empty. `start`: int64, (steps * ranks + 1,). `indices`: int32, ascending in each
set. `values`: float32, may be left out. `parameter_start`: int64, one for each name.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from gapless.errors import InputError
from gapless.io.arrays import load_arrays, meta_record
from gapless.io.atomic import write_bytes
from gapless.profiles.sparsity.index_sets import MOST_ELEMENTS, IndexSets

__all__ = ["FORMAT", "VERSION", "read_index_sets", "write_index_sets"]

FORMAT, VERSION = "gapless.index-sets", 1

_COLUMNS = {"start": np.int64, "indices": np.int32, "values": np.float32, "parameter_start": np.int64}


def write_index_sets(path: str | Path, sets: IndexSets) -> None:
    """Write a file, whole or not at all. Raises `InputError` where the place can't be written to."""
    meta = {
        "format": FORMAT, "version": VERSION, "name": sets.name, "elements": sets.elements, "steps": sets.steps,
        "ranks": sets.ranks, "parameter_names": list(sets.parameter_names),
    }  # fmt: skip
    arrays: dict[str, Any] = {name: getattr(sets, name) for name in _COLUMNS if getattr(sets, name) is not None}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    write_bytes(path, stream.getvalue())


def read_index_sets(path: str | Path) -> IndexSets:
    """The sets in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    needed = ["meta", *(name for name in _COLUMNS if name != "values")]
    arrays = load_arrays(path, needed, ["values"], what=f"a {FORMAT}, which `gapless profile` writes")
    for name, kind in _COLUMNS.items():
        if name in arrays and (arrays[name].ndim != 1 or arrays[name].dtype != kind):
            got = f"{arrays[name].dtype} of shape {arrays[name].shape}"
            raise InputError(f"{path}: {name} must be {np.dtype(kind)} of one dimension, got {got}")
    record = meta_record(arrays["meta"], f"{path}: meta")
    record.of_format(FORMAT)
    record.integer("version", VERSION, VERSION)
    name = record.text("name")
    sizes = {title: record.integer(title, 1, MOST_ELEMENTS) for title in ("elements", "steps", "ranks")}
    names = tuple(map(str, record.array("parameter_names")))
    record.close()
    try:
        return IndexSets(
            name, **sizes, start=arrays["start"], indices=arrays["indices"], values=arrays.get("values"),
            parameter_start=arrays["parameter_start"], parameter_names=names,
        )  # fmt: skip
    except InputError as error:  # the sets name step and rank, not the file
        raise InputError(f"{path}: {error}") from None
