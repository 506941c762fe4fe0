"""What is asked of embedding tables: the trace of their accesses, and the optimiser of their rows.

A trace is a generator or a file, with the options that go with it. What an optimiser keeps beside a row moves with it
from server to cache and back. All trainers that hold a row apply the same sum of gradients to the same state: gradients
are synchronised, state never.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.io.record import check_known
from gapless.question import Asked, asked
from gapless.question.fields import Listed, Number, Object, Text, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from gapless.profiles.traces.bags import Bags
    from gapless.profiles.traces.trace import Trace

__all__ = ["EXPONENT", "GENERATORS", "HOT_SHARE", "OPTIMIZERS", "TraceQuestion", "state_values"]

OPTIMIZERS = ("sgd", "rowwise-adagrad", "adagrad", "adam")
"""Plain descent; Adagrad with one sum of squares a row (the mean over its values), and with one a value; Adam."""


def state_values(optimizer: str, dimension: int) -> int:
    """How many fp32 values an optimiser keeps for a row of `dimension` values. Raises `InputError` for an unknown one.

    >>> [state_values(name, 48) for name in OPTIMIZERS]
    [0, 1, 48, 96]
    """
    check_known("optimizer", optimizer, OPTIMIZERS)
    return {"sgd": 0, "rowwise-adagrad": 1, "adagrad": dimension, "adam": 2 * dimension}[optimizer]


GENERATORS = ("criteo-like", "avazu-like", "terabyte-like", "zipf", "skew")
EXPONENT, HOT_SHARE = 1.0, 0.4
"""Of the generators zipf and skew, if nothing is said."""
_KINDS = ("gapless.profiles.traces.trace.Trace", "gapless.profiles.traces.bags.Bags", "numpy.ndarray")
_GROUP = "trace"


@dataclass(frozen=True, repr=False)
class TraceQuestion(Asked):
    """The trace of a generator, in a file, in an array of ids (examples x tables) or bags, or the trace itself."""

    trace: str | Path | Trace | NDArray[np.integer] | Bags = asked(
        Object(_KINDS), f"{', '.join(GENERATORS)}, or a file: .npy, .npz (integers, examples x tables), .csv, .csv.gz",
        is_required=True, metavar="NAME|FILE", names=lambda: GENERATORS, group=_GROUP,
    )  # fmt: skip
    _: KW_ONLY
    columns: Sequence[str] | None = asked(
        Listed(Text()), "of a csv: the columns that become tables", metavar="A,B,...", group=_GROUP
    )
    string_columns: Sequence[str] | None = asked(
        Listed(Text()), "columns whose numbers are names, not ids", metavar="A,...", group=_GROUP
    )
    bag_columns: Sequence[str] | None = asked(
        Listed(Text()), "columns whose cells are lists, such as 3;17;4", metavar="A,...", group=_GROUP
    )
    array: str | None = asked(Text(), "the array, of a .npz that has several", metavar="NAME", group=_GROUP)
    exponent: float | None = asked(
        Number(1), "skew of the generator zipf, 1 to 5", otherwise=EXPONENT, metavar="A", group=_GROUP
    )
    hot_share: float | None = asked(
        Number(0, strict=True), "for the generator skew: share of accesses to the hottest 1 % of rows",
        otherwise=HOT_SHARE, metavar="S", group=_GROUP,
    )  # fmt: skip
    table_rows: Sequence[int] | None = asked(
        Listed(Whole(1, 2**40)), "rows of each table, for zipf, skew and files", otherwise="Criteo Kaggle's",
        metavar="R,R,...", group=_GROUP,
    )  # fmt: skip
    examples: int | None = asked(
        Whole(1, 10**12), "examples to generate", otherwise="as many as the data set has, or 39.2 M", metavar="N",
        group=_GROUP,
    )  # fmt: skip
    trace_seed: int | None = asked(Whole(0), "seed of a generator", otherwise=0, metavar="N", group=_GROUP)
    pooling_factors: Sequence[float] | None = asked(
        Listed(Number(1)), "for generators: mean ids of a bag, one for each table or for all", metavar="F,F,...",
        group=_GROUP,
    )  # fmt: skip
    repeats: float | None = asked(
        Number(1), "for generators: mean lookups near each other that an id serves once it is drawn", otherwise=1,
        metavar="R", group=_GROUP,
    )  # fmt: skip
