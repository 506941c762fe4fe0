"""Cache profile files: a `.npz` with the arrays of `CacheProfile`, and `meta`, a JSON object as UTF-8 bytes.

{"format": "gapless.cache-profile", "version": 2, "name": "tiny-llama", "heads": 8, "key_heads": 8, "dimension": 8,
 "group": 32, "recent": 32, "sinks": 4, "parameters": 91200, "tokens": 512, "sequence": 128, "source": "..."}

Version 1 had no formats of 6 and 5 bits, so that nothing is known of these: such a file is made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.typed import Stored, located, read_archive, write_archive
from gapless.profiles.cache.layout import Layout
from gapless.profiles.cache.profile import CacheProfile, Floats, Ints

__all__ = ["read_cache_profile", "write_cache_profile"]

_FORMAT = "gapless.cache-profile"
_VERSION = 2
_LARGEST = 2**53
_FLOATS = ("formats", "shares", "window", "sharing")
_WHOLE = ("windows", "counts", "representatives")
_COUNTS = ("heads", "key_heads", "parameters", "tokens", "sequence")
_OF_LAYOUT = ("dimension", "group", "recent", "sinks")


@dataclass(frozen=True)
class _Meta:
    name: str
    heads: Annotated[int, Stored(1, _LARGEST)]
    key_heads: Annotated[int, Stored(1, _LARGEST)]
    parameters: Annotated[int, Stored(1, _LARGEST)]
    tokens: Annotated[int, Stored(1, _LARGEST)]
    sequence: Annotated[int, Stored(1, _LARGEST)]
    dimension: Annotated[int, Stored(1, _LARGEST)]
    group: Annotated[int, Stored(1, _LARGEST)]
    recent: Annotated[int, Stored(1, _LARGEST)]
    sinks: Annotated[int, Stored(0, _LARGEST)]
    source: str = ""


def write_cache_profile(path: str | Path, profile: CacheProfile) -> None:
    """Write a profile; the same profile gives the same bytes. Raises `InputError` where the path can't be written."""
    numbers = {name: getattr(profile, name) for name in _COUNTS}
    layout = {name: getattr(profile.layout, name) for name in _OF_LAYOUT}
    arrays: dict[str, NDArray[np.generic]] = {name: getattr(profile, name) for name in _FLOATS}
    arrays |= {name: np.asarray(getattr(profile, name), dtype=np.int64) for name in _WHOLE}
    write_archive(path, _Meta(profile.name, **numbers, **layout, source=profile.source), _FORMAT, _VERSION, arrays)


def read_cache_profile(path: str | Path) -> CacheProfile:
    """The profile in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    meta, arrays = read_archive(
        _Meta, path, _FORMAT, _VERSION, (*_FLOATS, *_WHOLE), (), written_by="gapless profile cache"
    )
    with located(str(path)):
        formats, shares, window, sharing = (_floats(name, arrays[name]) for name in _FLOATS)
        windows, counts, representatives = (_whole(name, arrays[name]) for name in _WHOLE)
        return CacheProfile(
            meta.name, Layout(meta.dimension, meta.group, meta.recent, meta.sinks), meta.heads, meta.key_heads,
            meta.parameters, meta.tokens, meta.sequence, formats, shares, tuple(windows.ravel().tolist()), window,
            tuple(counts.ravel().tolist()), representatives, sharing, meta.source,
        )  # fmt: skip


def _floats(name: str, found: NDArray[np.generic]) -> Floats:
    if found.dtype.kind != "f":
        raise InputError(f"array {name!r} must hold floats, got {found.dtype}")
    return np.asarray(found, dtype=np.float64)


def _whole(name: str, found: NDArray[np.generic]) -> Ints:
    if found.dtype.kind != "i":
        raise InputError(f"array {name!r} must hold whole numbers, got {found.dtype}")
    return np.asarray(found, dtype=np.int64)
