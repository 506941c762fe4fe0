"""The table of a sweep: a row for each size, as CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gapless.io.atomic import write_text
from gapless.io.csv_table import csv_text

__all__ = ["SUMMARY_CSV", "SUMMARY_JSON", "Row", "write_table"]

SUMMARY_CSV, SUMMARY_JSON = "summary.csv", "summary.json"


@dataclass(frozen=True)
class Row:
    """What serves a size, and what it is compared with; None stands for what is not there. Times are replayed.

    `plan`, `instances`, `makespan_s`: what was chosen, a synthesised plan or a baseline that no plan beats, and
    `algbw_bytes_per_s` the size over its time. `bound_s`: no schedule takes less, in chunks of whatever size.
    `synthesised`, `baseline`: the fastest of each kind, with its own best number of instances. `ratio_to_baseline`:
    what was chosen over the fastest baseline, `synthesised_ratio`: the fastest synthesised plan over it. `xml`: the
    file that serves the size. `solve_s`, `stop_reason`: of the syntheses at this size, None where none is there yet.
    """

    size_bytes: int
    plan: str | None
    instances: int | None
    makespan_s: float | None
    algbw_bytes_per_s: float | None
    bound_s: float
    ratio_to_bound: float | None
    baseline: str | None
    baseline_instances: int | None
    baseline_s: float | None
    ratio_to_baseline: float | None
    synthesised: str | None
    synthesised_instances: int | None
    synthesised_s: float | None
    synthesised_ratio: float | None
    xml: str | None
    solve_s: float | None
    stop_reason: str | None

    @property
    def data(self) -> dict[str, Any]:
        """The row in plain values, for files."""
        return asdict(self)


def write_table(folder: Path, rows: Sequence[Row], more: dict[str, Any]) -> None:
    """Write `summary.csv` (an empty cell for None), and `summary.json` with the rows and what `more` there is."""
    write_text(folder / SUMMARY_CSV, csv_text([column.name for column in fields(Row)], [row.data for row in rows]))
    data = {**more, "rows": [row.data for row in rows]}
    write_text(folder / SUMMARY_JSON, json.dumps(data, allow_nan=False, indent=1) + "\n")
