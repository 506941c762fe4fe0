"""Index sets from a file, by the name of a generator, or as they are.

A file is an .npz of format `gapless.index-sets`, version 1. `meta`: a JSON object as bytes (uint8), with `format`,
`version`, `name`, `elements`, `steps`, `ranks`, and `parameter_names`, a list that may be empty. `start`: int64,
(steps * ranks + 1,). `indices`: int32, ascending in each set. `values`: float32, may be left out. `parameter_start`:
int64, one for each name. `fitted`: float32, one for each set, may be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from gapless.errors import InputError
from gapless.io.record import Record, suggestion
from gapless.io.typed import Stored, located, read_archive, write_archive
from gapless.profiles.sparsity.generators import generated_sets
from gapless.profiles.sparsity.index_sets import MOST_ELEMENTS, IndexSets
from gapless.topologies.families import read_options

__all__ = [
    "FORMAT", "GENERATORS", "VERSION", "find_index_sets", "index_generator_names", "read_index_sets",
    "write_index_sets",
]  # fmt: skip

FORMAT, VERSION = "gapless.index-sets", 1

_COLUMNS = {
    "start": np.int64, "indices": np.int32, "values": np.float32, "parameter_start": np.int64, "fitted": np.float32,
}  # fmt: skip
_OPTIONAL = ("values", "fitted")


@dataclass(frozen=True)
class _Meta:
    name: str
    elements: Annotated[int, Stored(1, MOST_ELEMENTS)]
    steps: Annotated[int, Stored(1, MOST_ELEMENTS)]
    ranks: Annotated[int, Stored(1, MOST_ELEMENTS)]
    parameter_names: tuple[str, ...]


def write_index_sets(path: str | Path, sets: IndexSets) -> None:
    """Write a file, whole or not at all. Raises `InputError` where the place can't be written to."""
    meta = _Meta(sets.name, sets.elements, sets.steps, sets.ranks, sets.parameter_names)
    arrays = {name: getattr(sets, name) for name in _COLUMNS if getattr(sets, name) is not None}
    write_archive(path, meta, FORMAT, VERSION, arrays)


def read_index_sets(path: str | Path) -> IndexSets:
    """The sets in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    needed = [name for name in _COLUMNS if name not in _OPTIONAL]
    meta, arrays = read_archive(_Meta, path, FORMAT, VERSION, needed, list(_OPTIONAL), written_by="gapless profile")
    for name, kind in _COLUMNS.items():
        if name in arrays and (arrays[name].ndim != 1 or arrays[name].dtype != kind):
            got = f"{arrays[name].dtype} of shape {arrays[name].shape}"
            raise InputError(f"{path}: {name} must be {np.dtype(kind)} of one dimension, got {got}")
    with located(str(path)):
        return IndexSets(
            meta.name, meta.elements, meta.steps, meta.ranks, start=arrays["start"], indices=arrays["indices"],
            values=arrays.get("values"), parameter_start=arrays["parameter_start"],
            parameter_names=meta.parameter_names, fitted=arrays.get("fitted"),
        )  # fmt: skip


GENERATORS = {"uniform": (0.0, 0.0), "clustered": (2.0, 0.0), "drifting": (2.0, 0.2)}
"""Spread and drift of each generator, unless the name says other ones."""

_ELEMENTS, _STEPS, _DENSITY = 1_000_000, 8, 0.01


def index_generator_names() -> list[str]:
    """The generators, sorted."""
    return sorted(GENERATORS)


def find_index_sets(
    indices: str | Path | IndexSets, ranks: int | None = None, density: float | None = None
) -> IndexSets:
    """Recorded sets, from a file or as they are, or generated ones; of so many ranks at such a density.

    Generated: `clustered:elements=1000000,steps=8`, with `layers`, `spread`, `drift`, `overlap` and `seed`. `ranks`: of
    recorded sets the first (None: all), of generated ones 4 by default. `density`: None for what was recorded, 0.01 of
    generated ones. Raises `InputError`.
    """
    if isinstance(indices, IndexSets):
        return indices.part(ranks, density)
    text = str(indices)
    name, _, rest = text.partition(":")
    if name in GENERATORS:
        where = f"indices {text!r}"
        options = read_options(rest, where, "elements") if rest else Record({}, where)
        return _generated(text, name, options, 4 if ranks is None else ranks, _DENSITY if density is None else density)
    if not text.endswith(".npz"):
        hint = suggestion(name, GENERATORS)
        rule = f"indices: must be {', '.join(index_generator_names())}, or an .npz file, got {text!r}"
        raise InputError(f"{rule}; {hint}" if hint else rule)
    return read_index_sets(text).part(ranks, density)


def _generated(text: str, name: str, options: Record, ranks: int, density: float) -> IndexSets:
    spread, drift = GENERATORS[name]
    elements = options.integer("elements", 1, MOST_ELEMENTS, default=_ELEMENTS)
    steps = options.integer("steps", 1, 10**6, default=_STEPS)
    if max(1.0, density * elements) * ranks * steps > MOST_ELEMENTS:
        raise InputError(f"indices {text!r}: must hold at most {MOST_ELEMENTS:,} indices in all; ask for fewer steps")
    layers = options.integer("layers", 1, 10**6, default=24)
    spread = options.number("spread", 0, default=spread)
    drift = options.number("drift", 0, default=drift)
    overlap = options.number("overlap", 0, default=0.5)
    seed = options.integer("seed", 0, default=0)
    for title, asked, most in (("overlap", overlap, 1.0), ("spread", spread, 10.0), ("drift", drift, 10.0)):
        if asked > most:
            raise options.fail(title, f"at most {most:g}", asked)
    options.close()
    return generated_sets(
        text, elements, ranks, steps, density, layers=layers, spread=spread, drift=drift, overlap=overlap, seed=seed
    )
