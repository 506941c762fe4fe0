"""Head profile files: a `.npz` with the arrays `scores` and `output`, and `meta`, a JSON object as UTF-8 bytes.

Where rises of the loss are measured, also `rise` and `rise_kept`: the fields of `Rises`.

{"format": "gapless.head-profile", "version": 1, "name": "tiny-llama", "key_heads": 4, "dimension": 16,
 "parameters": 91200, "tokens": 512, "source": "..."}
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
from gapless.profiles.heads.profile import DISTANCES, Floats, HeadProfile, Rises

__all__ = ["read_head_profile", "write_head_profile"]

_FORMAT = "gapless.head-profile"
_VERSION = 1
_LARGEST = 2**53
_RISES = ("rise", "rise_kept")


def write_head_profile(path: str | Path, profile: HeadProfile) -> None:
    """Write a profile; the same profile gives the same bytes. Raises `InputError` where the path can't be written."""
    meta = {"format": _FORMAT, "version": _VERSION, "name": profile.name, "key_heads": profile.key_heads,
            "dimension": profile.dimension, "parameters": profile.parameters, "tokens": profile.tokens,
            "source": profile.source}  # fmt: skip
    arrays: dict[str, Any] = {"meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)}
    arrays |= {name: profile.distance(name) for name in DISTANCES}
    if profile.rises is not None:
        arrays |= dict(zip(_RISES, (profile.rises.loss, profile.rises.kept), strict=True))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def read_head_profile(path: str | Path) -> HeadProfile:
    """The profile in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    what = f"a {_FORMAT}, which `gapless profile heads` writes"
    arrays = load_arrays(path, ("meta", *DISTANCES), _RISES, what=what)
    record = meta_record(arrays["meta"], f"{path}: meta")
    record.of_format(_FORMAT)
    record.integer("version", _VERSION, _VERSION)
    counts = {name: record.integer(name, 1, _LARGEST) for name in ("key_heads", "dimension", "parameters", "tokens")}
    name, source = record.text("name"), record.text("source", default="")
    record.close()
    scores, output = (_floats(path, arrays, title) for title in ("scores", "output"))
    try:
        return HeadProfile(name, scores, output, **counts, source=source, rises=_rises(arrays))
    except InputError as error:  # the profile names itself, not the file
        raise InputError(f"{path}: {error}") from None


def _rises(arrays: dict[str, Any]) -> Rises | None:
    """What is measured of the loss. Raises `InputError` without the file's name for what `Rises` refuses."""
    there = [name for name in _RISES if name in arrays]
    if not there:
        return None
    if len(there) < len(_RISES):
        raise InputError(f"{' and '.join(_RISES)} must be there both or neither, got {there[0]}")
    loss, kept = (arrays[name] for name in _RISES)
    if loss.dtype.kind != "f" or kept.dtype != np.bool_:
        raise InputError(f"rise must hold floats and rise_kept truth values, got {loss.dtype} and {kept.dtype}")
    return Rises(loss.astype(np.float64), kept)


def _floats(path: str | Path, arrays: dict[str, Any], name: str) -> Floats:
    found = arrays[name]
    if found.dtype.kind not in "fiu":
        raise InputError(f"{path}: array {name!r} must hold numbers, got {found.dtype}")
    return np.asarray(found, dtype=np.float64)
