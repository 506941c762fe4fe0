"""Options that name a trace of embedding ids: a generator or a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.errors import InputError

if TYPE_CHECKING:  # numpy and the readers are imported by the command itself: --help stays fast
    from gapless.profiles.traces.trace import Trace

__all__ = ["GENERATORS", "add_trace_options", "read_trace_options"]

GENERATORS = ("criteo-like", "zipf", "skew")

_GENERATED, _CSV = ("examples", "trace_seed"), ("columns", "string_columns")
_SUITS = {
    "criteo-like": _GENERATED,
    "zipf": (*_GENERATED, "exponent", "table_rows"),
    "skew": (*_GENERATED, "hot_share", "table_rows"),
    "a .csv or .csv.gz file": _CSV,
    "a .npz file": ("array",),
    "a .npy file": (),
}
"""Which options go with which traces."""


def add_trace_options(group: Any) -> None:
    """Add `--trace` and what goes with it; `read_trace_options` reads them."""
    group.add_argument(
        "--trace", required=True, metavar="NAME|FILE",
        help=f"{', '.join(GENERATORS)}, or a file: .npy, .npz (integers, examples x tables), .csv, .csv.gz",
    )  # fmt: skip
    group.add_argument("--columns", type=_names, metavar="A,B,...", help="of a csv: the columns that become tables")
    group.add_argument(
        "--string-columns", type=_names, metavar="A,...", help="those of them whose numbers are names, not ids"
    )
    group.add_argument("--array", metavar="NAME", help="of a .npz that has several")
    group.add_argument("--exponent", type=shared.Number(1), metavar="A", help="of zipf, 1 to 5 (default 1)")
    group.add_argument(
        "--hot-share", type=shared.Number(0, strict=True), metavar="S",
        help="of skew: share of accesses on the hottest 1 %% (default 0.4)",
    )  # fmt: skip
    group.add_argument(
        "--table-rows",
        type=_rows,
        metavar="R,R,...",
        help="of zipf and skew: one table each (default: Criteo Kaggle's)",
    )
    group.add_argument(
        "--examples", type=shared.Whole(1, 10**12), metavar="N", help="to generate (default: as Criteo Kaggle, 39.2 M)"
    )
    group.add_argument("--trace-seed", type=shared.Whole(0), metavar="N", help="of a generator (default 0)")


def read_trace_options(arguments: argparse.Namespace) -> Trace:
    """The trace that the options name. Raises `InputError` for options that don't go with it."""
    from gapless.io.record import suggestion
    from gapless.profiles.traces.files import read_trace

    name = arguments.trace
    kind = name if name in GENERATORS else _file_kind(name)
    if kind is None:
        hint = suggestion(name, GENERATORS)
        rule = f"must be one of {', '.join(GENERATORS)}, or a file ending in .npy, .npz, .csv or .csv.gz"
        raise InputError(f"--trace: {rule}, got {name!r}" + (f"; {hint}" if hint else ""))
    for option in dict.fromkeys(option for options in _SUITS.values() for option in options):
        if getattr(arguments, option) is not None and option not in _SUITS[kind]:
            friends = " or ".join(friend for friend, options in _SUITS.items() if option in options)
            raise InputError(f"--{option.replace('_', '-')} goes with {friends}, got --trace {name}")
    if kind in GENERATORS:
        return _generated(kind, arguments)
    return read_trace(name, arguments.columns or (), arguments.string_columns or (), arguments.array)


def _file_kind(name: str) -> str | None:
    if name.endswith((".csv", ".csv.gz")):
        return "a .csv or .csv.gz file"
    return next((f"a {ending} file" for ending in (".npz", ".npy") if name.endswith(ending)), None)


def _generated(kind: str, arguments: argparse.Namespace) -> Trace:
    from gapless.profiles.traces.generators import criteo_like_trace, skew_trace, zipf_trace
    from gapless.profiles.traces.recommendation import named_embedding_dataset

    kaggle = named_embedding_dataset("criteo-kaggle")
    examples = kaggle.examples if arguments.examples is None else arguments.examples
    seed = arguments.trace_seed or 0
    table_rows = arguments.table_rows or kaggle.table_rows or ()
    if kind == "zipf":
        return zipf_trace(table_rows, 1.0 if arguments.exponent is None else arguments.exponent, examples, seed)
    if kind == "skew":
        return skew_trace(table_rows, 0.4 if arguments.hot_share is None else arguments.hot_share, examples, seed)
    return criteo_like_trace(examples, seed)


def _names(text: str) -> list[str]:
    names = text.split(",")
    if not all(names):
        raise argparse.ArgumentTypeError(f"must be names with commas between them, got {text!r}")
    return names


def _rows(text: str) -> list[int]:
    return [shared.Whole(1, 2**40)(part) for part in text.split(",")]
