"""Write a Model in the LP format, the one that people read: CPLEX, Gurobi, HiGHS, SCIP and CBC take it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

import numpy as np

from gapless.io.atomic import write_text
from gapless.model import Model
from gapless.model.arrays import ModelArrays
from gapless.model.linearise import linearise

__all__ = ["legal_names", "lp_text", "number", "plain_rows", "write_lp"]

_WIDTH = 100
_LONGEST_NAME = 200  # readers take 255; some room stays for what makes names unique
_KEYWORDS = re.compile(
    r"bin|binary|binaries|bounds?|end|free|gen|generals?|inf|infinity|int|integers?|max|maximi[sz]e|maximum|min|"
    r"minimi[sz]e|minimum|obj|s\.t\.|semi|sin|sos[12]?|st\.?|subject|such|to",
    re.IGNORECASE,
)


def write_lp(model: Model, path: str | os.PathLike[str]) -> None:
    """Write the model to `path`; raises `InputError` if that can't be done, and leaves an old file as it was."""
    write_text(path, lp_text(model))


def lp_text(model: Model) -> str:
    """The model in LP format, the same text on every run.

    A row with two different bounds becomes two rows, the second named `..._lower`, as not every reader takes a range.
    Conditional rows and disjunctions are linearised. Rows without any bound are left out. Names are made legal by
    `legal_names`.
    """
    arrays, columns, rows = plain_rows(model)
    lines = [f"\\ {' '.join(model.name.split())}", "Maximize" if arrays.maximize else "Minimize"]
    lines += _objective(arrays, columns)
    lines += ["Subject To", *_rows(arrays, columns, rows)]
    lines += ["Bounds", *_bounds(arrays, columns)]
    is_binary = arrays.is_integer & (arrays.lower == 0) & (arrays.upper == 1)
    for title, chosen in (("Generals", arrays.is_integer & ~is_binary), ("Binaries", is_binary)):
        if chosen.any():
            lines += [title, *_wrapped("", [columns[j] for j in np.flatnonzero(chosen)])]
    return "\n".join([*lines, "End", ""])


def plain_rows(model: Model) -> tuple[ModelArrays, list[str], list[str]]:
    """The model in plain rows, with a legal name per column and row; what linearising adds is named by number."""
    given = model.arrays()
    arrays = linearise(given)
    columns, rows = model.column_names(), model.row_names()
    if not given.is_linear:
        rows = [name for name, condition in zip(rows, given.only_if.tolist(), strict=True) if condition < 0]
        columns += [f"linearised_{k}" for k in range(len(arrays.cost) - len(columns))]
        rows += [f"linearised_{k}" for k in range(len(arrays.row_lower) - len(rows))]
    return arrays, legal_names(columns), legal_names(rows)


def legal_names(names: Sequence[str]) -> list[str]:
    """The names with what LP readers do not take replaced by `_`, all different, in the same order.

    Letters, digits, `_` and `.` stay. A name that starts like a number or an exponent, or is a keyword, gets a `_` in
    front; a name that is there already gets `_2`, `_3`, ... behind.
    """
    taken: set[str] = set()
    legal: list[str] = []
    for name in names:
        clean = re.sub(r"[^A-Za-z0-9_.]", "_", name)[:_LONGEST_NAME]
        if not clean or re.match(r"[0-9.]|[eE][0-9.]*$|[eE][0-9]", clean) or _KEYWORDS.fullmatch(clean):
            clean = f"_{clean}"
        unique, repeat = clean, 1
        while unique in taken:
            repeat += 1
            unique = f"{clean}_{repeat}"
        taken.add(unique)
        legal.append(unique)
    return legal


def number(value: float) -> str:
    """The shortest text that reads back as the same float; whole numbers without a point."""
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return repr(float(value))


def _objective(arrays: ModelArrays, columns: list[str]) -> list[str]:
    is_used = np.zeros(len(columns), dtype=bool)
    is_written = np.isfinite(arrays.row_lower) | np.isfinite(arrays.row_upper)
    is_used[arrays.index[is_written[arrays.row_of_entry]]] = True
    # A column that is in no row must be named here for the reader to know it before its bounds.
    shown = np.flatnonzero((arrays.cost != 0) | ~is_used)
    terms = _terms(arrays.cost[shown], [columns[j] for j in shown])
    if arrays.offset:
        terms.append(f"{'-' if arrays.offset < 0 else '+'} {number(abs(arrays.offset))}")
    return _wrapped("obj:", terms)


def _rows(arrays: ModelArrays, columns: list[str], rows: list[str]) -> Iterable[str]:
    taken = set(rows)
    for row, name in enumerate(rows):
        entries = slice(arrays.start[row], arrays.start[row + 1])
        terms = _terms(arrays.value[entries], [columns[j] for j in arrays.index[entries]])
        low, high = float(arrays.row_lower[row]), float(arrays.row_upper[row])
        if not terms and np.isfinite([low, high]).any():
            terms = [f"0 {columns[0]}"] if columns else []
        sides = [("=", low)] if low == high else [("<=", high), (">=", low)]
        for sense, side in sides:
            if not np.isfinite(side) or not terms:
                continue
            label = name
            if sense == ">=" and np.isfinite(high):
                label = f"{name}_lower"
                while label in taken:
                    label += "_"
                taken.add(label)
            yield from _wrapped(f"{label}:", [*terms, f"{sense} {number(side)}"])


def _bounds(arrays: ModelArrays, columns: list[str]) -> Iterable[str]:
    for name, low, high in zip(columns, arrays.lower.tolist(), arrays.upper.tolist(), strict=True):
        if low == high:
            yield f" {name} = {number(low)}"
        elif low == -np.inf and high == np.inf:
            yield f" {name} free"
        elif high == np.inf:
            if low != 0:
                yield f" {name} >= {number(low)}"
        else:
            yield f" {number(low) if low > -np.inf else '-inf'} <= {name} <= {number(high)}"


def _terms(values: Iterable[float], names: list[str]) -> list[str]:
    return [
        f"{'-' if value < 0 else '+'} {'' if abs(value) == 1 else number(abs(value)) + ' '}{name}"
        for value, name in zip(values, names, strict=True)
    ]


def _wrapped(head: str, words: list[str]) -> list[str]:
    """`head` and `words` on as many indented lines as the width asks for."""
    lines, line = [], f" {head}" if head else ""
    for word in words:
        if len(line) + 1 + len(word) > _WIDTH and line.strip():
            lines.append(line)
            line = "  "
        line += f" {word}"
    return [*lines, line]
