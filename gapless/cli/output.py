"""What people and programs see of a result: a summary, a JSON object, progress lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gapless import __version__
from gapless.checker import Report
from gapless.solution import Status
from gapless.units import format_bandwidth, format_bytes, format_joules, format_seconds

__all__ = [
    "EXIT_CODES",
    "described",
    "exit_code",
    "print_json",
    "print_table",
    "report_data",
    "words",
]

EXIT_CODES = {Status.OPTIMAL: 0, Status.FEASIBLE: 0, Status.INFEASIBLE: 3, Status.UNBOUNDED: 3, Status.NO_SOLUTION: 4}
EXIT_VIOLATIONS = 5

_UNITS: dict[str, Callable[[float], str]] = {
    "_bytes": format_bytes,
    "bytes_per_s": format_bandwidth,
    "_per_s": lambda rate: f"{rate:.0f} a second",
    "_j": format_joules,
    "_s": format_seconds,
    "gap": lambda gap: f"{100 * gap:.2f} %",
}
"""How a number is told, by the ending of its name."""

_MOST_LISTED = 8
"""Longer lists are told by their length; the JSON object and the plan file have them in full."""


def exit_code(status: Status, report: Report | None) -> int:
    """The exit code of a solve."""
    if report is not None and not report.valid:
        return EXIT_VIOLATIONS
    return EXIT_CODES[status]


def report_data(report: Report | None) -> dict[str, Any]:
    """What the replay found, for the JSON object."""
    if report is None:
        return {"valid": False, "violations": None, "makespan_s": None, "peak_bytes": None}
    return {
        "valid": report.valid,
        "violations": {rule.value: count for rule, count in report.violation_counts.items()},
        "makespan_s": report.makespan_s,
        **({} if report.energy_j is None else {"energy_j": report.energy_j}),
        "peak_bytes": max(report.peak_bytes, default=0),
    }


def print_json(data: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    json.dump({**data, "version": __version__}, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


def described(name: str, value: Any) -> str:
    """A named value in words; the name's ending tells the unit."""
    if value is None:
        return "-"
    if isinstance(value, list) and len(value) > _MOST_LISTED:
        return f"{len(value)} entries"
    if isinstance(value, Mapping):
        inner = name if name.endswith("_s") else f"{name}_s" if name == "stages" else ""
        return ", ".join(f"{key} {described(inner or key, part)}" for key, part in value.items())
    if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:  # a file may hold any whole number
        for ending, in_words in _UNITS.items():
            if name.endswith(ending):
                return in_words(value)
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def print_table(table: Sequence[Sequence[str]]) -> None:
    """Lines of cells on stdout, right-aligned, the titles first."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def words(name: str) -> str:
    """A name without the ending that tells the unit."""
    for ending in ("_per_s", "_s", "_j", "_bytes"):
        name = name.removesuffix(ending)
    return name.replace("_", " ")
