"""The trade-off of memory and time or energy, a row for each budget, and its table as CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gapless.io.atomic import write_text
from gapless.io.csv_table import csv_text
from gapless.solution import Status, StopReason

__all__ = ["SUMMARY_CSV", "SUMMARY_JSON", "Row", "write_table"]

SUMMARY_CSV, SUMMARY_JSON = "summary.csv", "summary.json"


@dataclass(frozen=True)
class Row:
    """What a budget costs; None stands for what is not known, or not there.

    `memory_ratio`: the budget, over the peak of a step that keeps everything. `cost_s`, `energy_j`, `peak_bytes`: as
    replayed; the energy is None where a power is unknown. `bound_s`, or `bound_j` where the energy was minimised: no
    plan has less. `gap`, `overhead`, `overhead_bound`: of what was minimised, the last two over the least without a
    budget. `violations`: rules that the replay found broken, which leaves the plan unwritten. `plan`: the plan file's
    name in the folder. `stop_reason`: why the solver stopped.
    """

    budget_bytes: int
    memory_ratio: float
    status: Status
    cost_s: float | None = None
    energy_j: float | None = None
    bound_s: float | None = None
    bound_j: float | None = None
    gap: float | None = None
    overhead: float | None = None
    overhead_bound: float | None = None
    peak_bytes: int | None = None
    solve_s: float = 0.0
    violations: int = 0
    plan: str | None = None
    stop_reason: StopReason | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody stopped the solver: its plan is the best so far and no answer, a later sweep goes on."""
        return self.stop_reason is StopReason.INTERRUPTED

    @property
    def verdict(self) -> str:
        """The status in a word for people, `interrupted` where it isn't settled."""
        return "interrupted" if self.is_interrupted else self.status.value

    @property
    def data(self) -> dict[str, Any]:
        """The row in plain values, for files."""
        reason = None if self.stop_reason is None else self.stop_reason.value
        return {**asdict(self), "status": self.status.value, "stop_reason": reason}


def write_table(folder: Path, rows: Sequence[Row]) -> None:
    """Write `summary.csv` (an empty cell for None) and `summary.json` (a list of objects)."""
    write_text(folder / SUMMARY_CSV, csv_text([column.name for column in fields(Row)], [row.data for row in rows]))
    lines = ",\n ".join(json.dumps(row.data, allow_nan=False) for row in rows)
    write_text(folder / SUMMARY_JSON, f"[{lines}]\n")
