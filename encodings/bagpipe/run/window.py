"""Run window: some batches of a run file as arrays, written and read; what breaks a rule is named in one line.

Arrays stay as narrow as the file has them: a batch is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints
from gapless.encodings.bagpipe.designs.counts import PLACES
from gapless.encodings.bagpipe.lowering.actions import BY_ROW, SHARED, Actions
from gapless.errors import InputError

__all__ = [
    "BY_BATCH",
    "WINDOW",
    "Columns",
    "KnownBatch",
    "PlannedBatch",
    "Window",
    "check_by_batch",
    "check_shape",
    "checked_type",
    "checked_whole",
    "lengths_of",
    "window_arrays",
]

Columns = dict[str, NDArray[np.number]]


@dataclass(frozen=True)
class KnownBatch:
    """What going on with a run needs of a batch that is in its file. `trainer`: of each example. `counts`: what
    `row_of` gives. `measured`: what the partition costs, its bound, the largest load, NaN where unknown.
    """

    ids: Ints
    trainer: Ints
    counts: tuple[int, ...]
    measured: tuple[float, ...]


@dataclass(frozen=True)
class PlannedBatch(KnownBatch):
    """One batch of a run. `is_cut`: the partition isn't the one that was asked for."""

    actions: Actions
    is_cut: bool


@dataclass(frozen=True)
class _Column:
    """An array of a window. `of`: what a batch has there, one entry for the batch (`per`), or for each example or row.

    `type`: of any integers if None. `width`: of an entry that is several numbers. `least`: of the values. `is_narrow`:
    written in as few bytes as hold them.
    """

    name: str
    per: str
    of: Callable[[PlannedBatch], object]
    type: type | None = None
    width: int = 0
    least: int | None = None
    is_narrow: bool = False

    @property
    def dimensions(self) -> int:
        """Of the array."""
        return 2 if self.width or self.name == "users" else 1

    def written(self, batches: Sequence[PlannedBatch]) -> NDArray[np.number]:
        """The array of these batches."""
        if self.per == "batch":
            return np.array([self.of(batch) for batch in batches], dtype=self.type)
        values = np.concatenate([np.asarray(self.of(batch)) for batch in batches])
        if not self.is_narrow:
            return values
        fits = not len(values) or (values.min() >= -(2**7) and values.max() < 2**7)
        return values.astype(np.int8 if fits else np.int16)


_COLUMNS = (
    _Column("rows", "batch", lambda batch: len(batch.ids), least=1),
    _Column("examples", "batch", lambda batch: len(batch.trainer), least=1),
    _Column("prefetch_after", "batch", attrgetter("actions.prefetch_after"), least=-1),
    _Column("counts", "batch", attrgetter("counts"), width=len(PLACES), least=-1),
    _Column("measured", "batch", attrgetter("measured"), np.float64, width=3),
    _Column("is_cut", "batch", attrgetter("is_cut"), np.uint8, least=0),
    _Column("trainer", "example", attrgetter("trainer"), is_narrow=True),
    _Column("users", "row", lambda batch: np.packbits(batch.actions.users, axis=1), np.uint8),
    _Column("id_steps", "row", lambda batch: np.diff(batch.ids, prepend=0)),
    *(_Column(name, "row", attrgetter(f"actions.{name}"), is_narrow=True) for name in BY_ROW[1:]),
)
"""The arrays of a window, as docs/formats.md has them."""
_BY_BATCH = tuple(column for column in _COLUMNS if column.per == "batch")
WINDOW, BY_BATCH = (tuple(column.name for column in columns) for columns in (_COLUMNS, _BY_BATCH))
_TYPES: dict[str, tuple[type | None, int]] = {
    **{column.name: (column.type, column.dimensions) for column in _COLUMNS},
    **dict.fromkeys(("meta", "end", "made", "written_back"), (np.uint8, 1)),
    "spans": (np.float64, 3),
}
"""Of all arrays of a run, the type, any integers if None, and the dimensions."""


def window_arrays(batches: Sequence[PlannedBatch]) -> Columns:
    """The arrays of a window."""
    return {column.name: column.written(batches) for column in _COLUMNS}


def checked_type(name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    """Raise `InputError` unless an array has the type and dimensions that its name asks for."""
    exact, dimensions = _TYPES[name.rpartition("/")[2]]
    if not (dtype == exact if exact else dtype.kind in "iu") or len(shape) != dimensions:
        kind = np.dtype(exact).name if exact else "integers"
        raise InputError(f"{name}: must be {kind} in {dimensions} dimensions, got {dtype} of shape {shape}")


def checked_whole(name: str, column: NDArray[np.number]) -> Ints:
    """Whole numbers as int64."""
    if len(column) and not -(2**63) <= int(column.max()) < 2**63:
        raise InputError(f"{name}: must fit into int64, got {column.max()}")
    return column.astype(np.int64)


def check_by_batch(first: int, columns: Mapping[str, NDArray[np.number]]) -> None:
    """Raise `InputError` where what a window has of each batch breaks a rule."""
    batches = len(columns["rows"])
    for known in _BY_BATCH:
        column, where = columns[known.name], f"{first:08d}/{known.name}"
        if len(column) != batches or not batches:
            rule = f"must have one entry for each batch of the window, {max(1, batches)}"
            raise InputError(f"{where}: {rule}; got {len(column)}")
        if known.least is not None and column.size and column.min() < known.least:
            raise InputError(f"{where}: must be >= {known.least}, got {column.min()}")
    for known in _BY_BATCH:
        if known.width and (got := columns[known.name].shape[1]) != known.width:
            raise InputError(f"{first:08d}/{known.name}: must have {known.width} for each batch, got {got}")
    if (columns["measured"] < 0).any() or np.isinf(columns["measured"]).any():
        raise InputError(f"{first:08d}/measured: must be >= 0 and finite, or NaN where nothing is known")
    if columns["is_cut"].max() > 1:
        raise InputError(f"{first:08d}/is_cut: must be 0 or 1, got {columns['is_cut'].max()}")


def lengths_of(columns: Mapping[str, NDArray[np.number]], trainers: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the other arrays of a window."""
    rows, examples = (sum(columns[name].tolist()) for name in ("rows", "examples"))  # exact: no 64 bits overflow
    lengths = {column.name: (rows if column.per == "row" else examples,) for column in _COLUMNS[len(_BY_BATCH) :]}
    return {**lengths, "users": (rows, -(-trainers // 8))}


class Window:
    """The batches from `first` on. `columns`: those of `WINDOW`. Raises `InputError` where they break a rule."""

    def __init__(self, first: int, columns: Mapping[str, NDArray[np.number]], trainers: int) -> None:
        for name in WINDOW:
            checked_type(f"{first:08d}/{name}", columns[name].dtype, columns[name].shape)
        check_by_batch(first, columns)
        for name, shape in lengths_of(columns, trainers).items():
            check_shape(first, name, columns[name].shape, shape)
        self.first, self.columns, self._trainers = first, columns, trainers
        self._row_cuts = np.cumsum([0, *columns["rows"].tolist()])
        self._example_cuts = np.cumsum([0, *columns["examples"].tolist()])
        taken = columns["trainer"]
        if not (taken.min() >= 0 and taken.max() < trainers):
            rule = f"must be in 0..{trainers - 1}"
            raise InputError(f"{first:08d}/trainer: {rule}, got {taken.min()}..{taken.max()}")

    def __len__(self) -> int:
        return len(self.columns["rows"])

    @property
    def size_bytes(self) -> int:
        """Of its arrays."""
        return sum(column.nbytes for column in self.columns.values())

    def ids(self, number: int) -> Ints:
        """The ids of a batch, ascending."""
        return np.cumsum(self._of(number, "id_steps"))

    def trainer(self, number: int) -> Ints:
        """Who trains on each example of a batch."""
        place = number - self.first
        return self.columns["trainer"][self._example_cuts[place] : self._example_cuts[place + 1]].astype(np.int64)

    def actions(self, number: int) -> Actions:
        """What the trainers do in a batch. Raises `InputError` where it breaks a rule of `Actions`."""
        place, after = number - self.first, int(self.columns["prefetch_after"][number - self.first])
        if after >= number:
            raise InputError(f"prefetch_after: batch {number} must have one before it or -1, got {after}")
        users = self.columns["users"][self._row_cuts[place] : self._row_cuts[place + 1]]
        batch = Actions(
            ids=self.ids(number),
            fetched_by=self._of(number, "fetched_by"),
            private_to=self._of(number, "private_to"),
            sync=self._of(number, "sync"),
            evicted=self._of(number, "evicted"),
            examples=np.bincount(self.trainer(number), minlength=self._trainers),
            prefetch_after=after,
            users=np.unpackbits(users.view(np.uint8), axis=1, count=self._trainers).view(np.bool_),
        )
        _check_users(number, batch)
        return batch

    def _of(self, number: int, name: str) -> Ints:
        place = number - self.first
        part = self.columns[name][self._row_cuts[place] : self._row_cuts[place + 1]]
        return checked_whole(f"{self.first:08d}/{name}", part)


def check_shape(first: int, name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raise `InputError` where an array of a window has not as many entries as its batches have rows or examples."""
    if shape[:1] != wanted[:1]:
        of = "examples" if name == "trainer" else "rows"
        rule = f"must have as many entries as the batches have {of}, {wanted[0]}"
        raise InputError(f"{first:08d}/{name}: {rule}; got {shape[0]}")
    if shape != wanted:
        raise InputError(f"{first:08d}/{name}: must have a bit for each trainer, {wanted[1]} bytes; got {shape[1]}")


def _check_users(number: int, batch: Actions) -> None:
    """Every row is used, and one that is private to a trainer by that one alone: the others could not have it."""
    users, private_to = batch.users, batch.private_to
    counted = np.count_nonzero(users, axis=1)
    is_private = (private_to != SHARED) & (batch.sync == 0)
    wrong = np.where(is_private, (counted != 1) | ~users[np.arange(len(users)), private_to], counted == 0)
    if wrong.any():
        row = int(wrong.argmax())
        rule = f"trainer {private_to[row]} alone, to which it is private" if is_private[row] else "a trainer"
        got = np.flatnonzero(users[row]).tolist()
        raise InputError(f"batch {number}: users: row {batch.ids[row]} must be used by {rule}, got {got}")
