"""Options that name a trace of embedding ids: a generator or a file."""

from __future__ import annotations

import argparse
from typing import Any

from gapless.cli import arguments as shared

__all__ = ["add_trace_options"]


def add_trace_options(group: Any) -> None:
    """Add `--trace` and what goes with it; in Python they are arguments of the same names."""
    group.add_argument(
        "--trace", required=True, metavar="NAME|FILE",
        help="criteo-like, zipf, skew, or a file: .npy, .npz (integers, examples x tables), .csv, .csv.gz",
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


def _names(text: str) -> list[str]:
    names = text.split(",")
    if not all(names):
        raise argparse.ArgumentTypeError(f"must be names with commas between them, got {text!r}")
    return names


def _rows(text: str) -> list[int]:
    return [shared.Whole(1, 2**40)(part) for part in text.split(",")]
