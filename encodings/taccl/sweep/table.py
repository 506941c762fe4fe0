"""The table of a sweep: a row for each size, and what a person sees of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from gapless.report.text import described, table

__all__ = ["FORMAT", "VERSION", "Outcome", "Refused", "Row", "Served", "Tried", "notes_of", "text_of"]

FORMAT, VERSION = "gapless.size-sweep", 1
"""Of the table's `summary.json`."""


@dataclass(frozen=True)
class Tried:
    """What a plan or a baseline takes at a size with its best number of instances, chosen or not."""

    sketch: str | None
    is_baseline: bool
    instances: int
    makespan_s: float


@dataclass(frozen=True)
class Row:
    """What serves a size, and what it is compared with; None stands for what is not there. Times are replayed.

    `plan`, `instances`, `makespan_s`: what was chosen, a synthesised plan or a baseline that no plan beats, and
    `algbw_bytes_per_s` the size over its time. `sketch`: what that plan was synthesised under, `auto` where the sketch
    was sought, None without one and for a baseline. `bound_s`: no schedule takes less, in chunks of whatever size.
    `synthesised`, `baseline`: the fastest of each kind, with its own best number of instances. `ratio_to_baseline`:
    what was chosen over the fastest baseline, `synthesised_ratio`: the fastest synthesised plan over it. `xml`: the
    file that serves the size. `solve_s`, `stop_reason`: of the syntheses at this size, None where none is there yet.
    `tried`: by name all that was timed at this size, the fastest first; in `summary.json` alone.
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
    tried: dict[str, Tried] = field(default_factory=dict)


@dataclass(frozen=True)
class Served:
    """The file that serves a range of sizes, see `Range`."""

    xml: str
    plan: str
    instances: int
    min_bytes: int
    max_bytes: int
    sizes_bytes: list[int]


@dataclass(frozen=True)
class Refused:
    """What could not be lowered, and why."""

    plan: str
    instances: int
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What a sweep has found: a row for each size, the files by range, and what could not be lowered.

    `is_complete`: whether every size has had its synthesis and is served by a file.
    """

    rows: list[Row]
    ranges: list[Served]
    refused: list[Refused]
    is_complete: bool

    @property
    def data(self) -> dict[str, list[dict[str, object]]]:
        """Ranges, refusals and rows in plain values, for files."""
        return {
            "ranges": [asdict(one) for one in self.ranges],
            "refused": [asdict(one) for one in self.refused],
            "rows": [asdict(row) for row in self.rows],
        }


_COLUMNS = {
    "size_bytes": "size", "plan": "plan", "sketch": "sketch", "instances": "x", "makespan_s": "time",
    "algbw_bytes_per_s": "algbw", "ratio_to_bound": "/ bound", "ratio_to_baseline": "/ baseline",
    "synthesised_ratio": "synthesised /", "baseline": "best baseline", "baseline_s": "its time", "solve_s": "solved in",
}  # fmt: skip


def text_of(outcome: Outcome) -> str:
    """The table as people see it, and the files by range."""
    rows = [[described(name, getattr(row, name)) for name in _COLUMNS] for row in outcome.rows]
    printed = table([list(_COLUMNS.values()), *rows])
    if not outcome.ranges:
        return printed
    heads = ["min_bytes", "max_bytes", "instances", "xml"]
    return f"{printed}\n\n{table([heads, *([str(getattr(one, name)) for name in heads] for one in outcome.ranges)])}"


def notes_of(outcome: Outcome) -> tuple[str, ...]:
    """What is missing, if anything is."""
    if outcome.is_complete:
        return ()
    if not outcome.ranges and outcome.refused:
        first = outcome.refused[0]
        return (f"nothing could be lowered; {first.plan}: {first.reason}",)
    solved = sum(row.solve_s is not None for row in outcome.rows)
    return (f"{solved} of {len(outcome.rows)} sizes have a plan of their own",)
