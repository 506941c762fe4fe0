"""Model: a mixed-integer linear program held as arrays, known to no solver.

Variables come in blocks, rows in families; both are numpy arrays from the start, so that building a model of a million
coefficients is a handful of array operations.

>>> model = Model("knapsack")
>>> take = model.binaries("take", 3)
>>> model.add("capacity", (np.array([3.0, 4.0, 5.0]), take), upper=8.0)
>>> model.maximize((np.array([4.0, 5.0, 6.0]), take))
>>> model.summary()
'knapsack: 3 columns (3 integer), 1 rows, 3 nonzeros'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gapless.errors import ModelError
from gapless.model.arrays import Cumulative, Disjunction, Floats, Ids, ModelArrays
from gapless.units import format_count

__all__ = ["Family", "Model", "Term"]

Labels: TypeAlias = "Sequence[str] | Callable[[int], str] | None"
Term: TypeAlias = tuple[ArrayLike, ArrayLike]
"""(coefficients, column ids); the coefficients broadcast against the ids."""


@dataclass(frozen=True)
class _Block:
    """Variables that were added together; `labels[k]` names the k-th, else its index in `shape` does."""

    name: str
    first: int
    shape: tuple[int, ...]
    labels: Labels


@dataclass(frozen=True)
class Family:
    """Rows that state one rule of the problem: `count` rows from row `first` on; `cite` is where the rule is from."""

    name: str
    first: int
    count: int
    cite: str
    labels: Labels


class Model:
    """A mixed-integer linear program under construction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.families: list[Family] = []
        self._blocks: list[_Block] = []
        self._names: set[str] = set()
        self._lower: list[Floats] = []
        self._upper: list[Floats] = []
        self._is_integer: list[NDArray[np.bool_]] = []
        self._row_lower: list[Floats] = []
        self._row_upper: list[Floats] = []
        self._entries: list[tuple[Ids, Ids, Floats]] = []
        self._only_if: list[Ids] = []
        self._disjunctions: list[Disjunction] = []
        self._cumulatives: list[Cumulative] = []
        self._objective: tuple[Term, ...] = ()
        self._offset = 0.0
        self._maximize = False
        self.column_count = 0
        self.row_count = 0

    # -- columns ------------------------------------------------------------------------------------------------------

    def binaries(self, name: str, shape: int | tuple[int, ...] = (), labels: Labels = None) -> Any:
        """Add 0/1 variables; returns their ids in an int64 array of that shape (a scalar id for shape ())."""
        return self._add_block(name, shape, 0.0, 1.0, True, labels)

    def integers(
        self, name: str, shape: int | tuple[int, ...] = (), lower: ArrayLike = 0.0, upper: ArrayLike = np.inf,
        labels: Labels = None,
    ) -> Any:  # fmt: skip
        """Add integer variables; `lower` and `upper` broadcast to the shape."""
        return self._add_block(name, shape, lower, upper, True, labels)

    def continuous(
        self, name: str, shape: int | tuple[int, ...] = (), lower: ArrayLike = 0.0, upper: ArrayLike = np.inf,
        labels: Labels = None,
    ) -> Any:  # fmt: skip
        """Add real variables; `lower` and `upper` broadcast to the shape."""
        return self._add_block(name, shape, lower, upper, False, labels)

    def _add_block(
        self, name: str, shape: int | tuple[int, ...], lower: ArrayLike, upper: ArrayLike, integer: bool, labels: Labels
    ) -> Any:
        shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(length) for length in shape)
        count = int(np.prod(shape, dtype=np.int64))
        if name in self._names:
            raise ModelError(f"model {self.name!r}: variable block {name!r} is there already; block names must differ")
        if isinstance(labels, Sequence) and len(labels) != count:
            raise ModelError(f"variable block {name!r}: labels must be {count}, one per variable, got {len(labels)}")
        low = np.broadcast_to(np.asarray(lower, dtype=np.float64), shape).reshape(-1)
        high = np.broadcast_to(np.asarray(upper, dtype=np.float64), shape).reshape(-1)
        if not ((low <= high) & (low < np.inf) & (high > -np.inf)).all():
            raise ModelError(f"variable block {name!r}: bounds must be numbers with lower <= upper")
        first = self.column_count
        self._names.add(name)
        self._blocks.append(_Block(name, first, shape, labels))
        self._lower.append(low.copy())
        self._upper.append(high.copy())
        self._is_integer.append(np.full(count, integer))
        self.column_count += count
        return np.arange(first, first + count, dtype=np.int64).reshape(shape) if shape else np.int64(first)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def add(
        self, family: str, *terms: Term, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf,
        only_if: ArrayLike = -1, cite: str = "", labels: Labels = None,
    ) -> None:  # fmt: skip
        """Add a family of rows `lower <= sum of terms <= upper`.

        A term is (coefficients, ids): the last axis of `ids` is summed, the axes before it number the rows, so ids of
        shape (k,) make one row and ids of shape (rows, k) make `rows` of them; a scalar id enters every row. Leading
        axes and bounds broadcast. `only_if` (ids of binaries, broadcast likewise): each row holds only where its binary
        is 1, always where the id is -1.
        """
        arrays = [_term_arrays(family, term) for term in terms]
        try:
            bounds_and_conditions = np.shape(lower), np.shape(upper), np.shape(only_if)
            lead = np.broadcast_shapes(*bounds_and_conditions, *(ids.shape[:-1] for _, ids in arrays))
        except ValueError:
            shapes = ", ".join(str(ids.shape) for _, ids in arrays)
            bounds = f"{np.shape(lower)} and {np.shape(upper)}"
            raise ModelError(f"row family {family!r}: terms {shapes} and bounds {bounds} differ in rows") from None
        count = int(np.prod(lead, dtype=np.int64))
        rows, columns, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
        for coefficients, ids in arrays:
            width = ids.shape[-1] if ids.ndim else 1
            rows.append(np.repeat(np.arange(count), width))
            columns.append(np.broadcast_to(ids, (*lead, width)).reshape(-1))
            values.append(np.broadcast_to(coefficients, (*lead, width)).reshape(-1))
        self.add_sparse(
            family, count, np.concatenate(rows), np.concatenate(columns), np.concatenate(values),
            lower=np.broadcast_to(np.asarray(lower, dtype=np.float64), lead).reshape(-1),
            upper=np.broadcast_to(np.asarray(upper, dtype=np.float64), lead).reshape(-1),
            only_if=np.broadcast_to(np.asarray(only_if), lead).reshape(-1), cite=cite, labels=labels,
        )  # fmt: skip

    def add_sparse(
        self, family: str, count: int, rows: ArrayLike, columns: ArrayLike, coefficients: ArrayLike,
        lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf, only_if: ArrayLike = -1, cite: str = "",
        labels: Labels = None,
    ) -> None:  # fmt: skip
        """Add `count` rows from coordinate arrays; entries that name one (row, column) twice are summed."""
        row = np.asarray(rows, dtype=np.int64).reshape(-1)
        column = np.asarray(columns, dtype=np.int64).reshape(-1)
        value = np.broadcast_to(np.asarray(coefficients, dtype=np.float64), column.shape)
        if row.shape != column.shape:
            raise ModelError(f"row family {family!r}: {len(row)} row numbers for {len(column)} columns")
        if column.size and not (column.min() >= 0 and column.max() < self.column_count):
            raise ModelError(f"row family {family!r}: column ids must be in 0..{self.column_count - 1}")
        if row.size and not (row.min() >= 0 and row.max() < count):
            raise ModelError(f"row family {family!r}: row numbers must be in 0..{count - 1}")
        if not np.isfinite(value).all():
            raise ModelError(f"row family {family!r}: coefficients must be finite")
        low = np.broadcast_to(np.asarray(lower, dtype=np.float64), (count,))
        high = np.broadcast_to(np.asarray(upper, dtype=np.float64), (count,))
        if np.isnan(low).any() or np.isnan(high).any() or (low == np.inf).any() or (high == -np.inf).any():
            raise ModelError(f"row family {family!r}: bounds must be numbers, lower below inf and upper above -inf")
        condition = np.broadcast_to(np.asarray(only_if, dtype=np.int64), (count,))
        self._check_binaries(family, condition)
        if any(known.name == family for known in self.families):
            raise ModelError(f"model {self.name!r}: row family {family!r} is there already; family names must differ")
        self.families.append(Family(family, self.row_count, count, cite, labels))
        self._row_lower.append(low.copy())
        self._row_upper.append(high.copy())
        self._only_if.append(condition.copy())
        self._entries.append((row + self.row_count, column, value.copy()))
        self.row_count += count

    def no_overlap(self, family: str, activities: Sequence[tuple[ArrayLike, ...]], cite: str = "") -> None:
        """Add a family of disjunctions: of each (start columns, durations) no two activities overlap in time.

        A third part has ids of binaries, broadcast likewise: an activity is there only where its binary is 1, always
        where the id is -1.
        """
        self._add_logic(family, cite)
        for starts, durations, *choices in activities:
            ids, times = self._activities(family, starts, durations, "durations")
            present = np.broadcast_to(np.asarray(choices[0] if choices else -1, dtype=np.int64).reshape(-1), ids.shape)
            self._check_binaries(family, present)
            self._disjunctions.append(Disjunction(family, ids, times, present))

    def cumulative(
        self, family: str, starts: ArrayLike, ends: ArrayLike, delays: ArrayLike, demands: ArrayLike, capacity: float,
        cite: str = "",
    ) -> None:  # fmt: skip
        """Add a family of one rule: the activities that run at once demand no more than the capacity.

        An activity runs from the value of its start column to that of its end column plus its delay.
        """
        self._add_logic(family, cite)
        start_ids, held = self._activities(family, starts, demands, "demands")
        end_ids, late = self._activities(family, ends, delays, "delays")
        if start_ids.shape != end_ids.shape or not np.isfinite(capacity):
            raise ModelError(f"family {family!r}: needs as many ends as starts, and a finite capacity")
        self._cumulatives.append(Cumulative(family, start_ids, end_ids, late, held, float(capacity)))

    def _add_logic(self, family: str, cite: str) -> None:
        if any(known.name == family for known in self.families):
            raise ModelError(f"model {self.name!r}: row family {family!r} is there already; family names must differ")
        self.families.append(Family(family, self.row_count, 0, cite, None))

    def _activities(self, family: str, columns: ArrayLike, numbers: ArrayLike, what: str) -> tuple[Ids, Floats]:
        """Columns in range, and a finite number >= 0 for each."""
        ids = np.asarray(columns, dtype=np.int64).reshape(-1)
        values = np.broadcast_to(np.asarray(numbers, dtype=np.float64).reshape(-1), ids.shape)
        if ids.size and not (ids.min() >= 0 and ids.max() < self.column_count):
            raise ModelError(f"family {family!r}: columns must be in 0..{self.column_count - 1}")
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ModelError(f"family {family!r}: {what} must be finite and >= 0")
        return ids, values

    def _check_binaries(self, family: str, condition: Ids) -> None:
        for binary in np.unique(condition[condition != -1]).tolist():
            if not (0 <= binary < self.column_count and self._is_binary(binary)):
                raise ModelError(f"row family {family!r}: only_if must name binary columns or be -1, got {binary}")

    def _is_binary(self, column: int) -> bool:
        for block, lower, upper, integer in zip(self._blocks, self._lower, self._upper, self._is_integer, strict=True):
            if block.first <= column < block.first + len(lower):
                k = column - block.first
                return bool(integer[k] and lower[k] >= 0 and upper[k] <= 1)
        return False

    # -- objective ----------------------------------------------------------------------------------------------------

    def minimize(self, *terms: Term, offset: float = 0.0) -> None:
        """Set the objective; replaces any earlier one, so that one model can be solved for several goals in turn."""
        self._set_objective(terms, offset, maximize=False)

    def maximize(self, *terms: Term, offset: float = 0.0) -> None:
        """Set the objective to be maximised; replaces any earlier one."""
        self._set_objective(terms, offset, maximize=True)

    def _set_objective(self, terms: tuple[Term, ...], offset: float, maximize: bool) -> None:
        for coefficients, ids in (_term_arrays("objective", term) for term in terms):
            if ids.size and not (ids.min() >= 0 and ids.max() < self.column_count):
                raise ModelError(f"objective of model {self.name!r}: column ids must be in 0..{self.column_count - 1}")
            if not np.isfinite(coefficients).all():
                raise ModelError(f"objective of model {self.name!r}: coefficients must be finite")
        if not np.isfinite(offset):
            raise ModelError(f"objective of model {self.name!r}: offset must be finite, got {offset}")
        self._objective, self._offset, self._maximize = terms, float(offset), maximize

    # -- what solvers and writers read --------------------------------------------------------------------------------

    def relaxed(self) -> Model:
        """The linear relaxation, to be read only: the same columns and rows, with all columns real."""
        other = Model(self.name)
        other.__dict__.update(self.__dict__)
        other._is_integer = [np.zeros_like(block) for block in self._is_integer]
        return other

    def arrays(self) -> ModelArrays:
        """The whole model in solver form."""
        cost = np.zeros(self.column_count)
        for term in self._objective:
            coefficients, ids = _term_arrays("objective", term)
            np.add.at(cost, ids.reshape(-1), np.broadcast_to(coefficients, ids.shape).reshape(-1))
        start, index, value = self._csr()
        return ModelArrays(
            cost=cost,
            offset=self._offset,
            maximize=self._maximize,
            lower=_join(self._lower, np.float64),
            upper=_join(self._upper, np.float64),
            is_integer=_join(self._is_integer, np.bool_),
            row_lower=_join(self._row_lower, np.float64),
            row_upper=_join(self._row_upper, np.float64),
            start=start,
            index=index,
            value=value,
            only_if=_join(self._only_if, np.int64),
            disjunctions=tuple(self._disjunctions),
            cumulatives=tuple(self._cumulatives),
        )

    def _csr(self) -> tuple[Ids, Ids, Floats]:
        row = _join([entry[0] for entry in self._entries], np.int64)
        column = _join([entry[1] for entry in self._entries], np.int64)
        value = _join([entry[2] for entry in self._entries], np.float64)
        order = np.lexsort((column, row))
        row, column, value = row[order], column[order], value[order]
        if row.size:
            is_new = np.r_[True, (np.diff(row) != 0) | (np.diff(column) != 0)]
            firsts = np.flatnonzero(is_new)
            row, column, value = row[firsts], column[firsts], np.add.reduceat(value, firsts)
            kept = value != 0
            row, column, value = row[kept], column[kept], value[kept]
        start = np.searchsorted(row, np.arange(self.row_count + 1))
        return start.astype(np.int64), column, value

    def column_names(self) -> list[str]:
        """A readable name per column: block name and label or index, such as `is_sent_c3_r0_r1` or `keep_2_0`."""
        names: list[str] = []
        for block in self._blocks:
            names += _names(block.name, block.shape, block.labels)
        return names

    def row_names(self) -> list[str]:
        """A readable name per row: family name and label or number."""
        names: list[str] = []
        for family in self.families:
            names += _names(family.name, (family.count,), family.labels)
        return names

    def __getstate__(self) -> dict[str, object]:
        """What pickle saves: labels given as functions are written out, since a function need not be picklable."""
        state = dict(self.__dict__)
        state["_blocks"] = [replace(block, labels=_written_out(block.labels, block.shape)) for block in self._blocks]
        state["families"] = [replace(rows, labels=_written_out(rows.labels, (rows.count,))) for rows in self.families]
        return state

    def summary(self) -> str:
        """One line: columns, rows, nonzeros."""
        integers = sum(int(block.sum()) for block in self._is_integer)
        nonzeros = len(self._csr()[1])
        return (
            f"{self.name}: {format_count(self.column_count)} columns ({format_count(integers)} integer), "
            f"{format_count(self.row_count)} rows, {format_count(nonzeros)} nonzeros"
        )


def _term_arrays(family: str, term: Term) -> tuple[Floats, Ids]:
    coefficients = np.asarray(term[0], dtype=np.float64)
    ids = np.asarray(term[1])
    if ids.size and not np.issubdtype(ids.dtype, np.integer):
        raise ModelError(f"row family {family!r}: a term is (coefficients, column ids); the ids must be integers")
    ids = ids.astype(np.int64, copy=False)
    try:
        np.broadcast_to(coefficients, ids.shape)
    except ValueError:
        shapes = f"{coefficients.shape} and {ids.shape}"
        raise ModelError(f"row family {family!r}: coefficients must broadcast against ids, got {shapes}") from None
    return np.broadcast_to(coefficients, ids.shape), ids


def _written_out(labels: Labels, shape: tuple[int, ...]) -> Sequence[str] | None:
    if labels is None or not callable(labels):
        return labels
    return [labels(k) for k in range(int(np.prod(shape, dtype=np.int64)))]


def _join(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype=dtype)


def _names(name: str, shape: tuple[int, ...], labels: Labels) -> list[str]:
    written = _written_out(labels, shape)
    if written is not None:
        return [f"{name}_{label}" for label in written]
    if not shape or shape == (1,):
        return [name]
    return [name + "".join(f"_{k}" for k in index) for index in np.ndindex(*shape)]
