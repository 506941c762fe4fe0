"""What a collective takes at any size of a sweep: by the plans that serve it, and by the algorithms of libraries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gapless.encodings.taccl.sweep.table import FORMAT, VERSION
from gapless.errors import InputError
from gapless.io.record import Record, load_record
from gapless.sweeps.summary import SUMMARY_JSON
from gapless.units import format_bytes

__all__ = ["LIBRARIES", "PLAN", "Curves", "read_curves"]

PLAN = "plan"
"""What serves each size in a sweep."""
LIBRARIES = {"ring": ("ring", "direct"), "tree": ("double-binary-tree", "ring", "direct")}
"""Algorithms of a library that takes rings, or trees where there are some: by what the sweep calls its baselines."""


@dataclass(frozen=True)
class Curves:
    """A collective's times by who carries it out: points (bytes, seconds), sizes rising, between which lines are drawn.

    `where`: the file that they are from.
    """

    collective: str
    ranks: int
    topology: str
    points: dict[str, tuple[tuple[float, float], ...]]
    where: str

    def time_s(self, who: str, size_bytes: float) -> float:
        """Seconds at a size. Raises `InputError` outside of the sizes that were swept, where nothing is known."""
        points = self.points[who]
        if not points:
            raise InputError(f"{self.where}: must have a {who} for {self.collective} at some size, got none")
        sizes, times_s = zip(*points, strict=True)
        if not sizes[0] * (1 - 1e-9) <= size_bytes <= sizes[-1] * (1 + 1e-9):
            swept = f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"
            rule = f"{self.where}: {self.collective} by {who} is known from {swept}, the step needs"
            raise InputError(f"{rule} {format_bytes(size_bytes)}; sweep that size too")
        return float(np.interp(size_bytes, sizes, times_s))


def read_curves(folder: str | Path) -> Curves:
    """The curves of a sweep's folder. Raises `InputError` where it holds no table of a sweep over sizes."""
    path = Path(folder) / SUMMARY_JSON
    record = load_record(path)
    record.of_format(FORMAT, VERSION)
    points: dict[str, list[tuple[float, float]]] = {who: [] for who in (PLAN, *LIBRARIES)}
    for row in record.records("rows"):
        size_bytes, tried = row.integer("size_bytes", 1), _baselines(row)
        if row.raw("makespan_s") is not None:
            points[PLAN].append((size_bytes, row.number("makespan_s", 0)))
        for who, names in LIBRARIES.items():
            first = next((name for name in names if name in tried), None)
            if first is not None:
                points[who].append((size_bytes, tried[first]))
    return Curves(
        record.text("collective"), record.integer("ranks", 1), record.text("topology"),
        {who: tuple(sorted(found)) for who, found in points.items()}, str(path),
    )  # fmt: skip


def _baselines(row: Record) -> dict[str, float]:
    """The fastest of each algorithm at a size, in seconds: a baseline is called by it, its variant in brackets."""
    found: dict[str, float] = {}
    tried = row.record("tried")
    for name in tried.names():
        one = tried.record(name)
        if one.boolean("is_baseline"):
            head, time_s = name.partition(" (")[0], one.number("makespan_s", 0)
            found[head] = min(time_s, found.get(head, time_s))
    return found
