"""Write a Model in free MPS, the format that every solver reads."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gapless.io.atomic import write_text
from gapless.model import Model
from gapless.model.arrays import ModelArrays
from gapless.model.lp import legal_names, number, plain_rows

__all__ = ["mps_of_arrays", "mps_text", "write_mps"]


def write_mps(model: Model, path: str | os.PathLike[str]) -> None:
    """Write the model to `path`; raises `InputError` if that can't be done, and leaves an old file as it was."""
    write_text(path, mps_text(model))


def mps_text(model: Model) -> str:
    """The model in free MPS, the same text on every run, with names made legal by `gapless.model.lp.legal_names`.

    The sense is in an OBJSENSE section and the offset is the negated right side of the objective row, as HiGHS, CPLEX
    and Gurobi read them; CBC ignores OBJSENSE. Conditional rows and disjunctions are linearised. Rows without any
    bound are left out.
    """
    arrays, columns, rows = plain_rows(model)
    return mps_of_arrays(legal_names([model.name])[0], arrays, columns, rows)


def mps_of_arrays(name: str, arrays: ModelArrays, columns: list[str], rows: list[str]) -> str:
    """The same from arrays and legal names, one per column and row."""
    objective = "obj"
    while objective in rows:
        objective += "_"
    low, high = arrays.row_lower, arrays.row_upper
    kind = np.where(low == high, "E", np.where(np.isfinite(high), "L", np.where(np.isfinite(low), "G", "")))
    # CBC takes short names for fixed MPS unless this line says otherwise; to the other readers it is part of the name.
    lines = [f"NAME {name} FREE", "OBJSENSE", f"    {'MAX' if arrays.maximize else 'MIN'}", "ROWS", f" N {objective}"]
    lines += [f" {sense} {row}" for sense, row in zip(kind.tolist(), rows, strict=True) if sense]
    # A range can't say that the lower side is above the upper; a second row can.
    crossed = np.flatnonzero((low > high) & np.isfinite(low) & np.isfinite(high)).tolist()
    twins = dict(zip(crossed, _twin_names(rows, crossed), strict=True))
    lines += [f" G {twin}" for twin in twins.values()]
    lines += ["COLUMNS", *_columns(arrays, columns, rows, objective, kind, twins)]
    lines += ["RHS", *_right_sides(arrays, rows, objective, kind, twins)]
    is_ranged = (kind == "L") & np.isfinite(low) & (low < high)
    if is_ranged.any():
        lines.append("RANGES")
        lines += [f"    RNG {rows[i]} {number(high[i] - low[i])}" for i in np.flatnonzero(is_ranged)]
    lines += ["BOUNDS", *_bounds(arrays, columns), "ENDATA", ""]
    return "\n".join(lines)


def _twin_names(rows: list[str], crossed: list[int]) -> list[str]:
    return legal_names([*rows, *(f"{rows[i]}_lower" for i in crossed)])[len(rows) :]


def _columns(
    arrays: ModelArrays, columns: list[str], rows: list[str], objective: str, kind: NDArray[np.str_],
    twins: dict[int, str],
) -> Iterator[str]:  # fmt: skip
    order = np.argsort(arrays.index, kind="stable")
    row_of, value_of = arrays.row_of_entry[order].tolist(), arrays.value[order].tolist()
    first = np.searchsorted(arrays.index[order], np.arange(len(columns) + 1)).tolist()
    cost, is_integer = arrays.cost.tolist(), arrays.is_integer.tolist()
    within = False
    for j, name in enumerate(columns):
        if is_integer[j] != within:
            within = is_integer[j]
            yield f"    MARKER{j} 'MARKER' '{'INTORG' if within else 'INTEND'}'"
        entries = range(first[j], first[j + 1])
        if cost[j] or not any(kind[row_of[k]] for k in entries):
            yield f"    {name} {objective} {number(cost[j])}"
        for k in entries:
            row, value = row_of[k], number(value_of[k])
            if kind[row]:
                yield f"    {name} {rows[row]} {value}"
            if row in twins:
                yield f"    {name} {twins[row]} {value}"
    if within:
        yield "    MARKER 'MARKER' 'INTEND'"


def _right_sides(
    arrays: ModelArrays, rows: list[str], objective: str, kind: NDArray[np.str_], twins: dict[int, str]
) -> Iterator[str]:
    if arrays.offset:
        yield f"    RHS {objective} {number(-arrays.offset)}"
    sides = np.where(kind == "G", arrays.row_lower, arrays.row_upper)
    for i, (name, side) in enumerate(zip(rows, sides.tolist(), strict=True)):
        if kind[i] and side:
            yield f"    RHS {name} {number(side)}"
    for i, twin in twins.items():
        yield f"    RHS {twin} {number(float(arrays.row_lower[i]))}"


def _bounds(arrays: ModelArrays, columns: list[str]) -> Iterator[str]:
    """Every bound that differs from [0, inf), and every bound of an integer: readers differ in their defaults there."""
    lower, upper, is_integer = arrays.lower.tolist(), arrays.upper.tolist(), arrays.is_integer.tolist()
    for name, low, high, integer in zip(columns, lower, upper, is_integer, strict=True):
        if low == high:
            yield f" FX BND {name} {number(low)}"
        elif low == -np.inf and high == np.inf:
            yield f" FR BND {name}"
        else:
            if low == -np.inf:
                yield f" MI BND {name}"
            elif low != 0 or high < np.inf:
                yield f" LO BND {name} {number(low)}"
            if high < np.inf:
                yield f" UP BND {name} {number(high)}"
            elif integer:
                yield f" PL BND {name}"
