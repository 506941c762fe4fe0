"""What people and programs see of a result: a summary, a JSON object, progress lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from gapless import __version__
from gapless.checker import Report
from gapless.solution import Status

__all__ = [
    "EXIT_CODES",
    "exit_code",
    "print_json",
]

EXIT_VIOLATIONS = 5
EXIT_CODES = {
    Status.OPTIMAL: 0, Status.FEASIBLE: 0, Status.INFEASIBLE: 3, Status.UNBOUNDED: 3, Status.NO_SOLUTION: 4,
    Status.INVALID: EXIT_VIOLATIONS,
}  # fmt: skip


def exit_code(status: Status, report: Report | None) -> int:
    """The exit code of a solve."""
    if report is not None and not report.valid:
        return EXIT_VIOLATIONS
    return EXIT_CODES[status]


def print_json(data: Mapping[str, object]) -> None:
    """One JSON object on stdout."""
    json.dump({**data, "version": __version__}, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")
