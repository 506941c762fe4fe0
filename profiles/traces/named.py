"""Traces by name: a generator or a file, with the options that go with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.files import read_trace
from gapless.profiles.traces.generators import criteo_like_trace, skew_trace, zipf_trace
from gapless.profiles.traces.recommendation import named_embedding_dataset
from gapless.profiles.traces.trace import Trace, trace_of_array, with_table_rows

__all__ = ["GENERATORS", "find_trace"]

GENERATORS = ("criteo-like", "zipf", "skew")

_GENERATED = ("examples", "trace_seed", "pooling_factors")
_SUITS = {
    "criteo-like": _GENERATED,
    "zipf": (*_GENERATED, "exponent", "table_rows"),
    "skew": (*_GENERATED, "hot_share", "table_rows"),
    "a .csv or .csv.gz file": ("columns", "string_columns", "bag_columns", "table_rows"),
    "a .npz file": ("array", "table_rows"),
    "a .npy file": ("table_rows",),
    "an object": (),
}
"""Which options go with which traces."""


def find_trace(
    trace: str | Path | Trace | NDArray[np.integer] | Bags,
    *,
    columns: Sequence[str] | None = None,
    string_columns: Sequence[str] | None = None,
    bag_columns: Sequence[str] | None = None,
    array: str | None = None,
    exponent: float | None = None,
    hot_share: float | None = None,
    table_rows: Sequence[int] | None = None,
    examples: int | None = None,
    trace_seed: int | None = None,
    pooling_factors: Sequence[float] | None = None,
) -> Trace:
    """The trace of a generator, in a file, in an array of ids (examples x tables) or bags, or the trace itself.

    `columns`: of a csv, those that become tables; `string_columns`: those of them whose numbers are names;
    `bag_columns`: those whose cells are lists. `array`: of a .npz that has several. `exponent`: of zipf, 1 by default.
    `hot_share`: of skew, the share of accesses on the hottest 1 %, 0.4 by default. `table_rows`: of zipf and skew,
    Criteo Kaggle's by default; of a file, what its ids are below. `examples`: to generate, as many as Criteo Kaggle has
    by default; `trace_seed`: 0 by default; `pooling_factors`: mean ids of a bag, for each table or for all, no bags by
    default.
    Raises `InputError` that names an argument which doesn't go with the trace.
    """
    options = {
        "columns": columns, "string_columns": string_columns, "bag_columns": bag_columns, "array": array,
        "exponent": exponent, "hot_share": hot_share, "table_rows": table_rows, "examples": examples,
        "trace_seed": trace_seed, "pooling_factors": pooling_factors,
    }  # fmt: skip
    kind = _kind(trace)
    for name, value in options.items():
        if value is not None and name not in _SUITS[kind]:
            suited = " or ".join(other for other, names in _SUITS.items() if name in names)
            got = trace if isinstance(trace, (str, Path)) else kind
            raise InputError(f"{name}: goes with {suited}, got trace {got}")
    if isinstance(trace, Trace):
        return trace
    if isinstance(trace, (np.ndarray, Bags)):
        return trace_of_array(trace)
    if kind in GENERATORS:
        return _generated(kind, options)
    found = read_trace(trace, columns or (), string_columns or (), array, bag_columns or ())
    return found if table_rows is None else with_table_rows(found, table_rows)


def _kind(trace: object) -> str:
    """The kind of a trace, of those in `_SUITS`."""
    if isinstance(trace, (Trace, np.ndarray, Bags)):
        return "an object"
    if not isinstance(trace, (str, Path)):
        raise InputError(f"trace: must be a name, a file, an array of ids or a Trace, got {type(trace).__name__}")
    name = str(trace)
    if name in GENERATORS:
        return name
    if name.endswith((".csv", ".csv.gz")):
        return "a .csv or .csv.gz file"
    for ending in (".npz", ".npy"):
        if name.endswith(ending):
            return f"a {ending} file"
    hint = suggestion(name, GENERATORS)
    rule = f"must be one of {', '.join(GENERATORS)}, or a file ending in .npy, .npz, .csv or .csv.gz"
    raise InputError(f"trace: {rule}, got {name!r}" + (f"; {hint}" if hint else ""))


def _generated(kind: str, options: dict[str, Any]) -> Trace:
    """The trace of a generator; what isn't given is Criteo Kaggle's."""
    kaggle = named_embedding_dataset("criteo-kaggle")
    given = {name: value for name, value in options.items() if value is not None}
    examples, seed = given.get("examples", kaggle.examples), given.get("trace_seed", 0)
    pooling = given.get("pooling_factors")
    table_rows = given.get("table_rows") or kaggle.table_rows or ()
    if kind == "zipf":
        return zipf_trace(table_rows, given.get("exponent", 1.0), examples, seed, pooling)
    if kind == "skew":
        return skew_trace(table_rows, given.get("hot_share", 0.4), examples, seed, pooling)
    return criteo_like_trace(examples, seed, pooling)
