"""Head profile files: a `.npz` with the arrays `scores` and `output`, and `meta`, a JSON object as UTF-8 bytes.

Where rises of the loss are measured, also `rise` and `rise_kept`: the fields of `Rises`; where squares are, `squares`.

{"format": "gapless.head-profile", "version": 1, "name": "tiny-llama", "key_heads": 4, "dimension": 16,
 "parameters": 91200, "tokens": 512, "source": "..."}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.typed import Stored, located, read_archive, write_archive
from gapless.profiles.heads.profile import DISTANCES, Floats, HeadProfile, Rises

__all__ = ["read_head_profile", "write_head_profile"]

_FORMAT = "gapless.head-profile"
_VERSION = 1
_LARGEST = 2**53
_RISES = ("rise", "rise_kept")
_SQUARES = "squares"


@dataclass(frozen=True)
class _Meta:
    name: str
    key_heads: Annotated[int, Stored(1, _LARGEST)]
    dimension: Annotated[int, Stored(1, _LARGEST)]
    parameters: Annotated[int, Stored(1, _LARGEST)]
    tokens: Annotated[int, Stored(1, _LARGEST)]
    source: str = ""


def write_head_profile(path: str | Path, profile: HeadProfile) -> None:
    """Write a profile; the same profile gives the same bytes. Raises `InputError` where the path can't be written."""
    counts = (profile.key_heads, profile.dimension, profile.parameters, profile.tokens)
    arrays: dict[str, NDArray[np.generic]] = {name: profile.distance(name) for name in DISTANCES}
    if profile.rises is not None:
        arrays |= dict(zip(_RISES, (profile.rises.loss, profile.rises.kept), strict=True))
    if profile.squares is not None:
        arrays[_SQUARES] = profile.squares
    write_archive(path, _Meta(profile.name, *counts, profile.source), _FORMAT, _VERSION, arrays)


def read_head_profile(path: str | Path) -> HeadProfile:
    """The profile in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    meta, arrays = read_archive(
        _Meta, path, _FORMAT, _VERSION, tuple(DISTANCES), (*_RISES, _SQUARES), written_by="gapless profile heads"
    )
    scores, output = (_floats(path, arrays, title) for title in ("scores", "output"))
    with located(str(path)):
        return HeadProfile(
            meta.name, scores, output, meta.key_heads, meta.dimension, meta.parameters, meta.tokens, meta.source,
            _rises(arrays), _floats(path, arrays, _SQUARES) if _SQUARES in arrays else None,
        )  # fmt: skip


def _rises(arrays: Mapping[str, NDArray[np.generic]]) -> Rises | None:
    """What is measured of the loss. Raises `InputError` without the file's name for what `Rises` refuses."""
    there = [name for name in _RISES if name in arrays]
    if not there:
        return None
    if len(there) < len(_RISES):
        raise InputError(f"{' and '.join(_RISES)} must be there both or neither, got {there[0]}")
    loss, kept = (arrays[name] for name in _RISES)
    if loss.dtype.kind != "f" or kept.dtype != np.bool_:
        raise InputError(f"rise must hold floats and rise_kept truth values, got {loss.dtype} and {kept.dtype}")
    return Rises(loss.astype(np.float64), kept.astype(np.bool_))


def _floats(path: str | Path, arrays: Mapping[str, NDArray[np.generic]], name: str) -> Floats:
    found = arrays[name]
    if found.dtype.kind not in "fiu":
        raise InputError(f"{path}: array {name!r} must hold numbers, got {found.dtype}")
    return np.asarray(found, dtype=np.float64)
