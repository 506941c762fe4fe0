"""Index sets by the name of a generator, from a file, or as they are."""

from __future__ import annotations

from pathlib import Path

from gapless.errors import InputError
from gapless.io.record import Record, suggestion
from gapless.profiles.sparsity.generators import generated_sets
from gapless.profiles.sparsity.index_file import read_index_sets
from gapless.profiles.sparsity.index_sets import MOST_ELEMENTS, IndexSets
from gapless.topologies.families import read_options

__all__ = ["GENERATORS", "find_index_sets", "index_generator_names"]

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
    asked = {
        "layers": options.integer("layers", 1, 10**6, default=24),
        "spread": options.number("spread", 0, default=spread),
        "drift": options.number("drift", 0, default=drift),
        "overlap": options.number("overlap", 0, default=0.5),
        "seed": options.integer("seed", 0, default=0),
    }
    for title, most in (("overlap", 1.0), ("spread", 10.0), ("drift", 10.0)):
        if asked[title] > most:
            raise options.fail(title, f"at most {most:g}", asked[title])
    options.close()
    return generated_sets(text, elements, ranks, steps, density, **asked)
