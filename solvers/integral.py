"""What the integer backends need of a model: rows and costs as whole numbers, and bounds that rows imply."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.model.arrays import Floats, Ids, ModelArrays
from gapless.solvers.backend import Task

__all__ = ["cost_factor", "implied_bounds", "scale_to_integers", "whole_bounds"]

_LARGEST_DENOMINATOR = 10**6
_LARGEST_WHOLE = 2.0**53  # above it a float is no longer an exact integer
_TOLERANCE = 1e-9


def scale_to_integers(values: Floats, group: Ids, group_count: int) -> Floats:
    """A factor per group (float, whole) that makes all its values whole numbers to 1e-9; NaN where there is none.

    `group[k]` is the group (a row, say) of `values[k]`. Powers of ten up to 1e6 are tried first, then the least common
    denominator of the values as fractions.
    """
    factor = np.full(group_count, np.nan)
    is_open = np.ones(group_count, dtype=bool)
    for power in range(7):
        fails = np.zeros(group_count, dtype=bool)
        fails[group[~_is_whole(values * 10.0**power)]] = True
        factor[is_open & ~fails] = 10.0**power
        is_open &= fails
        if not is_open.any():
            return factor
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], np.arange(group_count + 1))
    for g in np.flatnonzero(is_open):
        factor[g] = _common_denominator(values[order[first[g] : first[g + 1]]])
    return factor


def cost_factor(task: Task, solver: str) -> float:
    """The factor that makes all costs whole. Raises `InputError`, naming a column, where there is none."""
    cost = task.arrays.cost
    factor = float(scale_to_integers(cost, np.zeros(len(cost), dtype=np.int64), 1)[0])
    if np.isnan(factor):
        alone = scale_to_integers(cost, np.arange(len(cost)), len(cost))
        column = int(np.argmax(np.isnan(alone))) if np.isnan(alone).any() else int(np.argmax(np.abs(cost)))
        name = task.model.column_names()[column]
        rule = f"costs must be whole numbers after a common factor up to 1e6 for {solver}"
        raise InputError(f"variable {name!r}: {rule}, got cost {cost[column]!r}; use --solver highs")
    return factor


def whole_bounds(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """The bounds of something that is a whole number: lower rounded up, upper down, to within 1e-9."""
    return np.ceil(lower - _slack(lower)), np.floor(upper + _slack(upper))


def implied_bounds(arrays: ModelArrays) -> tuple[Floats, Floats]:
    """The column bounds, with infinite ones replaced by what rows imply for integer columns, as far as they do.

    An unconditional row `sum a_j x_j <= b` bounds x_k by what is left of b when every other term is at its least.
    Passes over all rows go on until they find nothing new.
    """
    lower, upper = arrays.lower.copy(), arrays.upper.copy()
    while np.isinf(lower).any() or np.isinf(upper).any():
        before = int(np.isfinite(lower).sum() + np.isfinite(upper).sum())
        # A row is two inequalities: as it stands, and with all signs changed.
        _tighten(arrays, arrays.value, arrays.row_upper, lower, upper)
        _tighten(arrays, -arrays.value, -arrays.row_lower, lower, upper)
        if int(np.isfinite(lower).sum() + np.isfinite(upper).sum()) == before:
            break
    return lower, upper


def _tighten(arrays: ModelArrays, value: Floats, right: Floats, lower: Floats, upper: Floats) -> None:
    """One pass over the rows `value @ x <= right`; changes infinite entries of `lower` and `upper` in place."""
    row, column = arrays.row_of_entry, arrays.index
    least = np.where(value > 0, value * lower[column], value * upper[column])
    is_open = np.isinf(least)
    known = np.where(is_open, 0.0, least)
    total = np.bincount(row, weights=known, minlength=len(right))
    open_count = np.bincount(row, weights=is_open, minlength=len(right))
    others_known = (open_count[row] - is_open == 0) & np.isfinite(right[row]) & arrays.is_integer[column]
    others_known &= arrays.only_if[row] < 0
    limit = (right[row] - (total[row] - known)) / value
    for bound, applies, best, rounded in (
        (upper, others_known & (value > 0), np.minimum, np.floor(limit + _TOLERANCE)),
        (lower, others_known & (value < 0), np.maximum, np.ceil(limit - _TOLERANCE)),
    ):
        found = bound.copy()
        best.at(found, column[applies], rounded[applies])
        bound[:] = np.where(np.isinf(bound), found, bound)


def _slack(values: Floats) -> Floats:
    """What a float may be off a whole number and still mean it: 1e-9 and a few roundings."""
    return _TOLERANCE + 4 * np.spacing(np.where(np.isfinite(values), np.abs(values), 0.0))


def _is_whole(values: Floats) -> NDArray[np.bool_]:
    return (np.abs(values - np.round(values)) <= _slack(values)) & (np.abs(values) <= _LARGEST_WHOLE)


def _common_denominator(values: Floats) -> float:
    factor = 1
    for value in values:
        factor = math.lcm(factor, Fraction(float(value)).limit_denominator(_LARGEST_DENOMINATOR).denominator)
        if factor > _LARGEST_DENOMINATOR:
            return math.nan
    return float(factor) if _is_whole(values * factor).all() else math.nan
