"""Measured: a plan's run beside the library's own collective, as a file that `report` takes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gapless.io.atomic import write_text
from gapless.io.record import Record, load_record
from gapless.units import format_seconds

__all__ = ["FORMAT", "VERSION", "Measured", "median_interval", "read_measured", "write_measured"]

FORMAT = "gapless.measured"
VERSION = 1
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measured:
    """What a run has found. `plan_sha256`: of the plan's file. `date`: ISO 8601. `backend`: that of torch.distributed.

    `measured_times_s`, `library_times_s`: of calls of the plan and of the library's own collective, in turn; the
    latter is empty where the backend has none. `library_predicted_s`: None where its algorithm isn't modelled.
    """

    plan_sha256: str
    date: str
    backend: str
    ranks: int
    predicted_s: float
    library_predicted_s: float | None
    measured_times_s: tuple[float, ...]
    library_times_s: tuple[float, ...]

    def rows(self) -> list[tuple[str, str]]:
        """Predicted, measured, the library's and the ratio, by name, for people."""
        rows = [("predicted", format_seconds(self.predicted_s)), ("measured", _times(self.measured_times_s))]
        if self.library_predicted_s is not None:
            rows.append(("library predicted", format_seconds(self.library_predicted_s)))
        if not self.library_times_s:
            return [*rows, ("library", f"{self.backend} has no such collective")]
        ratio = self.ratio
        return [
            *rows,
            ("library", _times(self.library_times_s)),
            ("ratio", f"{ratio:.2f} times as fast as the library"),
        ]

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the library's the plan is, by the medians."""
        if not self.library_times_s:
            return None
        return float(np.median(self.library_times_s) / np.median(self.measured_times_s))


def median_interval(times_s: Sequence[float]) -> tuple[float, float, float, float]:
    """The median of what was measured, the ends of its interval, and the interval's confidence.

    Whatever the distribution: the k-th smallest and the k-th largest have the median between them unless fewer than k
    of n independent values fall on one side. k is the largest with a confidence of 95 %, or 1.
    """
    ordered, count = sorted(times_s), len(times_s)
    outside = np.cumsum([2 * math.comb(count, k) / 2**count for k in range(count)])
    place = max(int(np.searchsorted(outside, 1 - _CONFIDENCE, side="right")), 1) - 1
    return float(np.median(ordered)), ordered[place], ordered[-1 - place], max(1 - float(outside[place]), 0.0)


def _times(times_s: Sequence[float]) -> str:
    if len(times_s) == 1:
        return f"{format_seconds(times_s[0])} (measured once)"
    median, low, high, confidence = median_interval(times_s)
    between = f"{format_seconds(low)} to {format_seconds(high)}"
    return f"{format_seconds(median)} (median of {len(times_s)}, {100 * confidence:.0f} % interval {between})"


def write_measured(path: str | Path, measured: Measured) -> None:
    """Write the file."""
    fields = {name: value for name, value in asdict(measured).items() if value is not None}
    data = {"format": FORMAT, "version": VERSION, **fields}
    write_text(path, json.dumps(data, indent=1) + "\n")


def read_measured(path: str | Path) -> Measured:
    """Read what `write_measured` wrote. Raises `InputError` that names file, field and rule."""
    record = load_record(path)
    record.of_format(FORMAT, VERSION)
    found = Measured(
        plan_sha256=record.text("plan_sha256"),
        date=record.text("date"),
        backend=record.text("backend"),
        ranks=record.integer("ranks", 1),
        predicted_s=record.number("predicted_s", 0.0),
        library_predicted_s=record.number("library_predicted_s", 0.0, default=None),
        measured_times_s=_read_times(record, "measured_times_s"),
        library_times_s=_read_times(record, "library_times_s"),
    )
    if not found.measured_times_s:
        raise record.fail("measured_times_s", "must not be empty", [])
    record.close()
    return found


def _read_times(record: Record, key: str) -> tuple[float, ...]:
    return tuple(record.real(f"{key}[{place}]", value, 0.0) for place, value in enumerate(record.array(key)))
