"""Turn conditional rows and disjunctions into plain rows, for the solvers that know nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gapless.errors import ModelError
from gapless.model.arrays import ModelArrays

__all__ = ["linearise"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def linearise(arrays: ModelArrays) -> ModelArrays:
    """The same feasible set in plain rows.

    A conditional row gets a big-M term for each of its finite bounds, with M from the bounds of its columns. Each pair
    of activities of a disjunction gets a binary that says which goes first; these columns are appended to the others.
    Raises `ModelError` where a column without a finite bound leaves no finite M, and for activities that share a
    capacity: the binaries that those need grow with the square of their number, and no solver gets far with them.
    """
    if arrays.is_linear:
        return arrays
    if arrays.cumulatives:
        family = arrays.cumulatives[0].family
        raise ModelError(f"family {family!r}: activities that share a capacity are not linearised; use --solver cpsat")
    return _without_conditions(_without_disjunctions(arrays))


def _without_disjunctions(arrays: ModelArrays) -> ModelArrays:
    """Of activities i and j, either i ends before j starts (binary 1) or j ends before i starts (binary 0), where both
    are there."""
    columns, count = len(arrays.cost), 0
    rows: list[tuple[Ids, Floats, float]] = []
    for disjunction in arrays.disjunctions:
        start, duration = disjunction.starts, disjunction.durations
        low, high = arrays.lower[start], arrays.upper[start]
        for i, j in zip(*np.triu_indices(len(start), k=1), strict=True):
            binary = columns + count
            count += 1
            for first, second, when in ((i, j, 1.0), (j, i, -1.0)):
                big_m = high[first] + duration[first] - low[second]
                if not np.isfinite(big_m):
                    raise ModelError(f"family {disjunction.family!r}: start times must have finite bounds to linearise")
                # second - first >= duration - M (1 - binary), or - M binary for the other order; and - M (1 - present)
                given = [column for column in disjunction.present[[i, j]].tolist() if column >= 0]
                ids = np.array([start[second], start[first], binary, *given])
                values = np.array([1.0, -1.0, -when * big_m, *(-big_m for _ in given)])
                rows.append((ids, values, duration[first] - big_m * ((when > 0) + len(given))))
    widen = replace(
        arrays,
        cost=np.concatenate([arrays.cost, np.zeros(count)]),
        lower=np.concatenate([arrays.lower, np.zeros(count)]),
        upper=np.concatenate([arrays.upper, np.ones(count)]),
        is_integer=np.concatenate([arrays.is_integer, np.ones(count, dtype=np.bool_)]),
        disjunctions=(),
    )
    return _with_rows(
        widen,
        [ids for ids, _, _ in rows],
        [values for _, values, _ in rows],
        np.array([lower for _, _, lower in rows]),
        np.full(len(rows), np.inf),
    )


def _without_conditions(arrays: ModelArrays) -> ModelArrays:
    """`a x >= L if b` becomes `a x + (m - L) b >= m` with m the least that a x can be; likewise for upper bounds."""
    conditional = np.flatnonzero(arrays.only_if >= 0)
    ids, values, lower, upper = [], [], [], []
    for row in conditional.tolist():
        entries = slice(arrays.start[row], arrays.start[row + 1])
        columns, coefficients = arrays.index[entries], arrays.value[entries]
        ends = np.stack([coefficients * arrays.lower[columns], coefficients * arrays.upper[columns]])
        for bound, extreme, is_lower in (
            (arrays.row_lower[row], ends.min(axis=0).sum(), True),
            (arrays.row_upper[row], ends.max(axis=0).sum(), False),
        ):
            if not np.isfinite(bound):
                continue
            if not np.isfinite(extreme):
                raise ModelError(f"conditional row {row}: its columns must have finite bounds to linearise")
            ids.append(np.append(columns, arrays.only_if[row]))
            values.append(np.append(coefficients, extreme - bound))
            lower.append(extreme if is_lower else -np.inf)
            upper.append(np.inf if is_lower else extreme)
    kept = arrays.only_if < 0
    entry_kept = kept[arrays.row_of_entry]
    lengths = np.diff(arrays.start)[kept]
    plain = replace(
        arrays,
        row_lower=arrays.row_lower[kept],
        row_upper=arrays.row_upper[kept],
        start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        index=arrays.index[entry_kept],
        value=arrays.value[entry_kept],
        only_if=arrays.only_if[kept],
    )
    return _with_rows(plain, ids, values, np.array(lower), np.array(upper))


def _with_rows(arrays: ModelArrays, ids: list[Ids], values: list[Floats], lower: Floats, upper: Floats) -> ModelArrays:
    """The arrays with rows appended; entries of one column in a row are summed and sorted."""
    merged = [np.unique(block, return_inverse=True) for block in ids]
    sums = [np.bincount(where, weights=block) for (_, where), block in zip(merged, values, strict=True)]
    starts = arrays.start[-1] + np.cumsum([len(block) for block, _ in merged], dtype=np.int64)
    return replace(
        arrays,
        row_lower=np.concatenate([arrays.row_lower, lower]),
        row_upper=np.concatenate([arrays.row_upper, upper]),
        start=np.concatenate([arrays.start, starts]),
        index=np.concatenate([arrays.index, *(block for block, _ in merged)]),
        value=np.concatenate([arrays.value, *sums]),
        only_if=np.concatenate([arrays.only_if, np.full(len(ids), -1, dtype=np.int64)]),
    )
