"""The table of a sweep: a row for each size."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["FORMAT", "VERSION", "Row"]

FORMAT, VERSION = "gapless.size-sweep", 1
"""Of the table's `summary.json`."""


@dataclass(frozen=True)
class Row:
    """What serves a size, and what it is compared with; None stands for what is not there. Times are replayed.

    `plan`, `instances`, `makespan_s`: what was chosen, a synthesised plan or a baseline that no plan beats, and
    `algbw_bytes_per_s` the size over its time. `sketch`: what that plan was synthesised under, `auto` where the sketch
    was sought, None without one and for a baseline. `bound_s`: no schedule takes less, in chunks of whatever size.
    `synthesised`, `baseline`: the fastest of each kind, with its own best number of instances. `ratio_to_baseline`:
    what was chosen over the fastest baseline, `synthesised_ratio`: the fastest synthesised plan over it. `xml`: the
    file that serves the size. `solve_s`, `stop_reason`: of the syntheses at this size, None where none is there yet.
    """

    size_bytes: int
    plan: str | None
    sketch: str | None
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
