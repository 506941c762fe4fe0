"""Families of sparse rows from tables of column ids in which -1 stands for no column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model import Model

__all__ = ["Entry", "add_entries", "add_terms", "is_set"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

Entry: TypeAlias = tuple[NDArray[np.signedinteger[Any]], "Floats | float", Ids]
"""(row numbers, coefficients, column ids) of nonzeros; one coefficient may stand for all."""


def add_entries(
    model: Model, family: str, count: int, entries: Sequence[Entry], lower: Floats | float = -np.inf,
    upper: Floats | float = np.inf, cite: str = "",
) -> None:  # fmt: skip
    """Add `count` rows; what entries say of one row and column is summed."""
    rows = np.concatenate([rows for rows, _, _ in entries])
    columns = np.concatenate([columns for _, _, columns in entries])
    values = np.concatenate([np.broadcast_to(value, columns.shape) for _, value, columns in entries])
    model.add_sparse(family, count, rows, columns, values, lower=lower, upper=upper, cite=cite)


def add_terms(
    model: Model, family: str, terms: Sequence[tuple[float, Ids]], lower: float = -np.inf, upper: float = np.inf,
    cite: str = "",
) -> None:  # fmt: skip
    """Add one row per place of the terms' ids: the sum of coefficient times column, without columns that are -1."""
    count = len(terms[0][1])
    entries = [(np.flatnonzero(columns >= 0), value, columns[columns >= 0]) for value, columns in terms]
    add_entries(model, family, count, entries, lower=lower, upper=upper, cite=cite)


def is_set(table: Ids, values: Floats) -> NDArray[np.bool_]:
    """Where the column of a table exists and is 1."""
    return np.asarray((table >= 0) & (values[np.maximum(table, 0)] > 0.5), dtype=np.bool_)
