"""Traces by name: a generator or a file, with the options that go with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.files import read_trace
from gapless.profiles.traces.generators import (
    avazu_like_trace,
    criteo_like_trace,
    skew_trace,
    terabyte_like_trace,
    zipf_trace,
)
from gapless.profiles.traces.recommendation import named_embedding_dataset
from gapless.profiles.traces.trace import Trace, trace_of_array, with_table_rows
from gapless.profiles.traces.trace_question import EXPONENT, GENERATORS, HOT_SHARE, TraceQuestion
from gapless.question import fields_of, from_question

__all__ = ["find_trace", "trace_of"]

_GENERATED = ("examples", "trace_seed", "pooling_factors", "repeats")
_SUITS = {
    "criteo-like": _GENERATED,
    "avazu-like": _GENERATED,
    "terabyte-like": _GENERATED,
    "zipf": (*_GENERATED, "exponent", "table_rows"),
    "skew": (*_GENERATED, "hot_share", "table_rows"),
    "a .csv or .csv.gz file": ("columns", "string_columns", "bag_columns", "table_rows"),
    "a .npz file": ("array", "table_rows"),
    "a .npy file": ("table_rows",),
    "an object": (),
}
"""Which options go with which traces."""
_LIKE = {"avazu-like": "avazu", "terabyte-like": "criteo-terabyte"}
"""Generators, by the data set that they are like."""


def trace_of(asked: TraceQuestion) -> Trace:
    """The trace that is asked for. Raises `InputError` that names an argument which doesn't go with it."""
    trace, kind = asked.trace, _kind(asked.trace)
    for field in fields_of(TraceQuestion)[1:]:
        if getattr(asked, field.name) is not None and field.name not in _SUITS[kind]:
            suited = " or ".join(other for other, names in _SUITS.items() if field.name in names)
            got = trace if isinstance(trace, (str, Path)) else kind
            raise InputError(f"{field.name}: goes with {suited}, got trace {got}")
    if isinstance(trace, Trace):
        return trace
    if isinstance(trace, (np.ndarray, Bags)):
        return trace_of_array(trace)
    if kind in GENERATORS:
        return _generated(kind, asked)
    in_file = read_trace(trace, asked.columns or (), asked.string_columns or (), asked.array, asked.bag_columns or ())
    return in_file if asked.table_rows is None else with_table_rows(in_file, asked.table_rows)


find_trace = from_question(TraceQuestion)(trace_of)
"""`trace_of` the question that the arguments ask."""


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


def _generated(kind: str, asked: TraceQuestion) -> Trace:
    """The trace of a generator; what isn't given is the data set's that it is like, else Criteo Kaggle's."""
    dataset = named_embedding_dataset(_LIKE.get(kind, "criteo-kaggle"))
    examples = dataset.examples if asked.examples is None else asked.examples
    seed, pooling, repeats = asked.trace_seed or 0, asked.pooling_factors, asked.repeats or 1.0
    table_rows = asked.table_rows or dataset.table_rows
    if kind in _LIKE:
        like = {"avazu-like": avazu_like_trace, "terabyte-like": terabyte_like_trace}
        return like[kind](examples, seed, pooling, repeats)
    if kind == "zipf":
        return zipf_trace(table_rows, asked.exponent or EXPONENT, examples, seed, pooling, repeats)
    if kind == "skew":
        return skew_trace(table_rows, asked.hot_share or HOT_SHARE, examples, seed, pooling, repeats)
    return criteo_like_trace(examples, seed, pooling, repeats)
