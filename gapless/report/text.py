"""Plain text that people read: named values with their unit, and tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gapless.units import format_bandwidth, format_bytes, format_count, format_floats, format_joules, format_seconds

__all__ = ["aligned", "described", "table", "words"]

_UNITS: dict[str, Callable[[float], str]] = {
    "_bytes": format_bytes,
    "bytes_per_s": format_bandwidth,
    "_per_s": lambda rate: f"{rate:.0f} a second",
    "_j": format_joules,
    "_s": format_seconds,
    "_floats": format_floats,
    "error": lambda error: f"{error:.4g}",
    "errors": lambda error: f"{error:.4g}",
    "_cost": lambda cost: f"{cost:,.0f}" if isinstance(cost, float) else f"{cost:,}",
    "gap": lambda gap: f"{100 * gap:.2f} %",
}
"""How a number is written, by the ending of its name."""

_SMALL, _WITHOUT_DIGITS, _MOST_IN_FULL = 0.01, 100, 1e15
_NAMES = 16
"""Letters of a name, without the space after it; few are longer."""

_MOST_LISTED = 8
"""Longer lists are described by their length; the JSON object and the plan file have them in full."""


def described(name: str, value: Any) -> str:
    """A named value in words; the name's ending says the unit."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return _listed(name, value)
    if isinstance(value, Mapping):
        inner = name if name.endswith("_s") else f"{name}_s" if name == "stages" else ""
        between = "; " if any(isinstance(part, (Mapping, list, tuple)) for part in value.values()) else ", "
        return between.join(f"{words(key)} {described(inner or key, part)}" for key, part in value.items())
    if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:  # a file may hold any whole number
        for ending, in_words in _UNITS.items():
            if name.endswith(ending):
                return in_words(value)
        if not name.endswith("seed"):  # a name, not a count: it is typed again as it stands
            return format_count(value) if isinstance(value, int) else _number(value)
    return str(value)


def _number(value: float) -> str:
    """A number without a unit: whole ones without a fraction, small ones with the digits that they have."""
    if abs(value) < _MOST_IN_FULL and (value.is_integer() or abs(value) >= _WITHOUT_DIGITS):
        return format_count(value)
    return f"{value:.4g}" if abs(value) < _SMALL else f"{value:.4f}"


def _listed(name: str, values: Sequence[Any]) -> str:
    """A short list in words, each part with its unit, lists in it apart by semicolons; a long one by its length."""
    if len(values) > _MOST_LISTED or any(isinstance(part, Mapping) for part in values):
        return f"{len(values)} {'entry' if len(values) == 1 else 'entries'}"
    between = "; " if any(isinstance(part, (list, tuple)) for part in values) else ", "
    return between.join(described(name, part) for part in values) or "none"


def words(name: str) -> str:
    """A name without the ending that says the unit."""
    for ending in ("_per_s", "_s", "_j", "_bytes", "_floats"):
        name = name.removesuffix(ending)
    return name.replace("_", " ")


def aligned(rows: Sequence[tuple[str, str]], indent: str = "") -> str:
    """A line for each name and value; values begin in one column, the usual one where no name is longer."""
    width = max([_NAMES, *(len(name) for name, _ in rows)])
    return "\n".join(f"{indent}{name:<{width}} {value}" for name, value in rows)


def table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells in right-aligned columns; the titles are the first line."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
