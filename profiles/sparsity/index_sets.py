"""IndexSets: which entries of the gradient each rank selected (its top-k) in each recorded step of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gapless.errors import InputError
from gapless.report.short_repr import Brief

__all__ = ["MOST_ELEMENTS", "IndexSets", "index_sets"]

MOST_ELEMENTS = 2**31 - 1
"""A gradient has at most so many entries: an index on the wire is one word of 4 bytes."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class IndexSets(Brief):
    """The index sets of P ranks over T steps, in columns (CSR): set t * P + i is rank i's in step t.

    `elements`: n, the gradient's entries. `start`: int64 of shape (T * P + 1,). `indices`: int32, ascending within a
    set, in 0..n-1. `values`: float32, the entry at each index (None where only the places were recorded): lower
    densities and the global top-k are found from them. `parameter_start`: int64, the first entry of each parameter,
    ascending from 0, with `parameter_names`; both empty where unknown. `fitted`: float32 (T * P,), the thresholds that
    Gaussiank would have taken for the whole gradients of which the sets are, None where unknown. Raises `InputError`
    for columns that don't fit together, and for indices out of order or range.
    """

    name: str
    elements: int
    steps: int
    ranks: int
    start: Ints
    indices: NDArray[np.int32]
    values: NDArray[np.float32] | None = None
    parameter_start: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    parameter_names: tuple[str, ...] = ()
    fitted: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        where = f"index sets {self.name!r}"
        for title, value, most in (
            ("elements", self.elements, MOST_ELEMENTS), ("steps", self.steps, MOST_ELEMENTS),
            ("ranks", self.ranks, MOST_ELEMENTS),
        ):  # fmt: skip
            if not 1 <= value <= most:
                raise InputError(f"{where}: {title} must be in 1..{most}, got {value}")
        sets, start = self.steps * self.ranks, self.start
        if start.shape != (sets + 1,) or start[0] or start[-1] != len(self.indices) or (np.diff(start) < 0).any():
            rule = (
                f"start must cut the {len(self.indices)} indices into {sets} sets, {self.steps} steps of {self.ranks}"
            )
            raise InputError(f"{where}: {rule} ranks")
        if self.values is not None and self.values.shape != self.indices.shape:
            rule = f"values must be one for each of {len(self.indices)} indices"
            raise InputError(f"{where}: {rule}, got shape {self.values.shape}")
        if self.fitted is not None and (self.fitted.shape != (sets,) or not (self.fitted >= 0).all()):
            raise InputError(f"{where}: fitted must be {sets} thresholds, none below 0, got shape {self.fitted.shape}")
        for number in range(sets):  # set by set, so that checks of a long record need little memory
            self._check_set(where, number)
        self._check_parameters(where)

    def _check_set(self, where: str, number: int) -> None:
        held = self.indices[self.start[number] : self.start[number + 1]]
        if not len(held):
            return
        step, rank = divmod(number, self.ranks)
        if (held[1:] <= held[:-1]).any():
            raise InputError(f"{where}: step {step}, rank {rank}: indices must ascend, each once")
        if held[0] < 0 or held[-1] >= self.elements:
            got = held[0] if held[0] < 0 else held[-1]
            raise InputError(f"{where}: step {step}, rank {rank}: indices must be in 0..{self.elements - 1}, got {got}")
        if self.values is not None and not np.isfinite(self.values[self.start[number] : self.start[number + 1]]).all():
            raise InputError(f"{where}: step {step}, rank {rank}: values must be finite")

    def _check_parameters(self, where: str) -> None:
        first, names = self.parameter_start, self.parameter_names
        if len(names) != len(first):
            raise InputError(f"{where}: parameter_names must be {len(first)}, as parameter_start, got {len(names)}")
        if len(first) and (first[0] or first[-1] >= self.elements or (np.diff(first) <= 0).any()):
            raise InputError(f"{where}: parameter_start must ascend from 0 below {self.elements}")

    def of(self, step: int, rank: int) -> NDArray[np.int32]:
        """The indices of one rank in one step, ascending."""
        number = step * self.ranks + rank
        return self.indices[self.start[number] : self.start[number + 1]]

    def values_of(self, step: int, rank: int) -> NDArray[np.float32]:
        """The entries at `of(step, rank)`. Raises `InputError` where none were recorded."""
        if self.values is None:
            raise InputError(f"index sets {self.name!r}: have no values; record them, or ask for no global top-k")
        number = step * self.ranks + rank
        return self.values[self.start[number] : self.start[number + 1]]

    @cached_property
    def counts(self) -> Ints:
        """Entries of each rank in each step, int64 (steps, ranks)."""
        return np.diff(self.start).reshape(self.steps, self.ranks)

    @property
    def density(self) -> float:
        """The mean share of the gradient's entries that a rank selects."""
        return float(self.counts.mean()) / self.elements

    def union(self, step: int) -> Ints:
        """The entries that some rank selected in a step, ascending, int64."""
        number = step * self.ranks
        held = self.indices[self.start[number] : self.start[number + self.ranks]]
        return distinct(held).astype(np.int64)

    def global_top(self, step: int, count: int) -> Ints:
        """The `count` entries of the ranks' sum that are largest by magnitude (fewer where the union is smaller).

        Ascending, int64; of equally large ones the first are taken. Raises `InputError` where no values are there.
        """
        number = step * self.ranks
        part = slice(self.start[number], self.start[number + self.ranks])
        self.values_of(step, 0)
        assert self.values is not None
        indices = self.indices[part]
        held = distinct(indices).astype(np.int64)
        sums = np.abs(np.bincount(np.searchsorted(held, indices), weights=self.values[part], minlength=len(held)))
        if len(held) <= count:
            return held
        least = np.partition(sums, len(sums) - count)[len(sums) - count]
        is_taken = sums > least
        is_taken[np.flatnonzero(sums == least)[: count - int(is_taken.sum())]] = True
        return np.asarray(held[is_taken])

    def part(self, ranks: int | None = None, density: float | None = None, steps: slice = slice(None)) -> IndexSets:
        """The first ranks, some steps, and of each set the entries that are largest by magnitude.

        A set keeps `round(density * elements)` entries, at least one. Raises `InputError` where there are fewer ranks,
        or a lower density is asked of sets without values, or a higher one than was recorded.
        """
        where, chosen = f"index sets {self.name!r}", range(self.steps)[steps]
        ranks = self.ranks if ranks is None else ranks
        if not 1 <= ranks <= self.ranks:
            raise InputError(f"ranks: must be in 1..{self.ranks}, which {where} have, got {ranks}")
        if not chosen:
            raise InputError(f"{where}: have {self.steps} steps, none of them is left")
        most = int(self.counts.max()) if density is None else max(1, round(density * self.elements))
        rows = np.array([step * self.ranks + rank for step in chosen for rank in range(ranks)])
        lengths = np.diff(self.start)[rows]
        if density is not None and lengths.min() < 0.99 * most:
            raise InputError(f"density: must be at most {self.density:.6g}, which {where} have, got {density}")
        if lengths.max() > 1.01 * most and self.values is None:
            raise InputError(f"density: must be {self.density:.6g}: {where} have no values to choose fewer by")
        pieces = [self._largest(number, most) for number in rows.tolist()]
        start = np.append(0, np.cumsum([len(piece) for piece in pieces]))
        kept = np.concatenate(pieces)
        values = None if self.values is None else self.values[kept]
        fitted = self.fitted[rows] if self.fitted is not None and density is None else None
        return replace(
            self, steps=len(chosen), ranks=ranks, start=start, indices=self.indices[kept], values=values, fitted=fitted
        )

    def _largest(self, number: int, most: int) -> Ints:
        """The places of a set's `most` largest entries; all of them where no values are there."""
        first, stop = int(self.start[number]), int(self.start[number + 1])
        if self.values is None or stop - first <= most:
            return np.arange(first, stop)
        order = np.argsort(-np.abs(self.values[first:stop]), kind="stable")[:most]
        return first + np.sort(order)


def index_sets(
    sets: Sequence[Sequence[ArrayLike]], elements: int, name: str = "array",
    values: Sequence[Sequence[ArrayLike]] | None = None,
) -> IndexSets:  # fmt: skip
    """Index sets from nested lists or arrays: `sets[t][i]` are rank i's indices in step t; `values` in the same shape.

    Raises `InputError` where steps differ in their number of ranks, or indices are out of order or range.
    """
    if len({len(step) for step in sets}) != 1:
        raise InputError(f"index sets {name!r}: every step must have the same number of ranks, at least one")
    held = [np.asarray(held) for step in sets for held in step]
    flat = [each if each.size else np.empty(0, dtype=np.int64) for each in held]  # an empty list says no type
    joined = np.concatenate(flat)
    if joined.size and (joined.dtype.kind not in "iu" or joined.min() < 0 or joined.max() > MOST_ELEMENTS):
        raise InputError(f"index sets {name!r}: indices must be whole numbers in 0..{elements - 1}")
    start = np.append(0, np.cumsum([len(held) for held in flat])).astype(np.int64)
    entries = None
    if values is not None:
        entries = np.concatenate([np.asarray(held, dtype=np.float32) for step in values for held in step])
    return IndexSets(name, elements, len(sets), len(sets[0]), start, joined.astype(np.int32), entries)


def distinct(indices: NDArray[np.int32]) -> NDArray[np.int32]:
    """The indices, ascending, each once: by sorting, which is faster here than numpy's hashes."""
    ordered = np.sort(indices)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered
