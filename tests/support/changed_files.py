"""Run files that are changed at random or on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

EXTREMES = (-(2**63), -129, -3, -2, -1, 0, 1, 2, 3, 7, 2**15, 2**31, 2**62, 2**63 - 1)
LITERALS = ("0", "-1", "1", "2.5", "1e308", "1e999", "-0.0", "null", "true", '""', '"x"', "[]", "[1]", "{}", "9" * 400)


def arrays_of(path: Path) -> Arrays:
    """All arrays of a file."""
    with np.load(path) as archive:
        return dict(archive)


def meta_of(arrays: Arrays, name: str = "meta") -> dict[str, Any]:
    """What stands in the array `meta`, or another one of JSON text."""
    return json.loads(arrays[name].tobytes())


def as_meta(text: str) -> np.ndarray:
    """A text as the array `meta`."""
    return np.frombuffer(text.encode(), dtype=np.uint8)


def mutate(source: Path, target: Path, chance: Random) -> None:
    """Write a copy with one to three random changes: to whole arrays, single entries, the JSON text, or bytes."""
    arrays = arrays_of(source)
    for _ in range(chance.randint(1, 3)):
        chance.choice(_MUTATIONS)(arrays, chance)
    (np.savez if chance.random() < 0.5 else np.savez_compressed)(target, **arrays)
    if chance.random() < 0.15:
        data = bytearray(target.read_bytes())
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        target.write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.3 else data)


def _entry(arrays: Arrays, chance: Random) -> None:
    """Set a few entries to a value of the type, often an extreme one."""
    name = _any(arrays, chance)
    column = arrays[name].copy()
    for _ in range(chance.randint(1, 3) if column.size else 0):
        place = tuple(chance.randrange(length) for length in column.shape)
        if column.dtype.kind == "f":
            column[place] = chance.choice([np.nan, np.inf, -1.0, 0.0, float(np.finfo(column.dtype).max), 0.01])
        elif column.dtype.kind in "iu":
            info = np.iinfo(column.dtype)
            column[place] = min(max(chance.choice(EXTREMES), int(info.min)), int(info.max))
    arrays[name] = column


def _type(arrays: Arrays, chance: Random) -> None:
    name = _any(arrays, chance)
    if arrays[name].dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            arrays[name] = arrays[name].astype(chance.choice(["f4", "f8", "c8", "?", "S3", "u8", "i2", "i1", ">i8"]))


def _shape(arrays: Arrays, chance: Random) -> None:
    name = _any(arrays, chance)
    column = arrays[name]
    shorter = slice(0, chance.randrange(len(column) + 1)) if column.ndim else ...
    arrays[name] = chance.choice(
        [column[None], column.ravel(), column[shorter], np.concatenate([column.ravel()] * 2), np.array(3)]
    )


def _shuffle(arrays: Arrays, chance: Random) -> None:
    name = _any(arrays, chance)
    if arrays[name].ndim:
        order = list(range(len(arrays[name])))
        chance.shuffle(order)
        arrays[name] = arrays[name][order]


def _leave_out(arrays: Arrays, chance: Random) -> None:
    if len(arrays) > 1 and chance.random() < 0.3:
        del arrays[_any(arrays, chance)]


def _literal(arrays: Arrays, chance: Random) -> None:
    """Put another value in place of one in the JSON text."""
    if "meta" not in arrays or arrays["meta"].dtype != np.uint8:
        return
    try:
        meta = json.loads(arrays["meta"].tobytes())
    except ValueError:
        return
    inside = meta
    while isinstance(inside, dict) and inside:
        key = chance.choice(sorted(inside))
        if not isinstance(inside[key], dict) or chance.random() < 0.2:
            inside[key] = "@"
            break
        inside = inside[key]
    arrays["meta"] = as_meta(json.dumps(meta).replace('"@"', chance.choice(LITERALS)))


def _any(arrays: Arrays, chance: Random) -> str:
    return chance.choice(sorted(arrays))


_MUTATIONS: list[Callable[[Arrays, Random], None]] = [
    _entry,
    _entry,
    _entry,
    _type,
    _shape,
    _shuffle,
    _leave_out,
    _literal,
]
