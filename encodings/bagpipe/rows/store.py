"""Store: the rows that one trainer has, by id; of several threads each may read and change other rows."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints
from gapless.encodings.bagpipe.ids.row_map import RowMap
from gapless.errors import InputError
from gapless.profiles.traces.trace import split_global_ids
from gapless.torch.library import Tensor, torch

__all__ = ["Journal", "RowStore"]


class Journal:
    """Rows as they were before they were changed or dropped, with the batch that did so, to go back by."""

    def __init__(self) -> None:
        self._before: deque[tuple[int, Ints, Tensor]] = deque()

    def record(self, batch: int, ids: Ints, values: Tensor) -> None:
        """These rows are about to be changed for a batch. `values`: a copy."""
        self._before.append((batch, ids, values))

    def forget(self, below: int) -> None:
        """Nobody goes back to before these batches."""
        self._before = deque(entry for entry in self._before if entry[0] >= below)

    def undone(self, last: int) -> Iterator[tuple[Ints, Tensor]]:
        """The rows that batches after one changed, as they were, the latest change first."""
        for batch, ids, values in reversed(self._before):
            if batch > last:
                yield ids, values
        self._before = deque(entry for entry in self._before if entry[0] <= last)


class RowStore:
    """Rows of some width, by global id. Raises `InputError` where a row isn't there, or already is.

    `journal`: of what batches change here, where somebody may want to go back.
    """

    def __init__(self, width: int, journal: Journal | None = None) -> None:
        self._places, self._values, self._lock = RowMap(), torch.empty(0, width), threading.Lock()
        self._journal = journal

    def __len__(self) -> int:
        return self._places.count

    @property
    def width(self) -> int:
        """Of a row."""
        width: int = self._values.shape[1]
        return width

    def add(self, ids: Ints, values: Tensor) -> None:
        """Rows that aren't there."""
        with self._lock:
            if (is_there := self._places.find(ids) >= 0).any():
                raise _error(ids[is_there], "must not be there already when it comes")
            places = self._places.add(ids)
            if (most := int(places.max(initial=-1)) + 1) > len(self._values):
                more = max(most, 2 * len(self._values)) - len(self._values)
                self._values = torch.cat([self._values, self._values.new_empty(more, self._values.shape[1])])
            self._values[places] = values

    def read(self, ids: Ints) -> Tensor:
        """A copy of rows."""
        with self._lock:
            return self._values[self._found(ids)]

    def all(self) -> Tensor:
        """A copy of all rows, by ascending id."""
        with self._lock:
            ids = self._places.ids[:-2]
            places = np.flatnonzero(ids >= 0)
            return self._values[places[np.argsort(ids[places])]]

    def change(self, ids: Ints, values: Tensor, batch: int) -> None:
        """New values of rows, after a batch."""
        with self._lock:
            places = self._found(ids)
            self._record(batch, ids, places)
            self._values[places] = values

    def drop(self, ids: Ints, batch: int) -> None:
        """Be rid of rows after a batch, as far as they are there."""
        with self._lock:
            places = self._places.find(ids)
            is_there = places >= 0
            self._record(batch, ids[is_there], places[is_there])
            self._places.remove(places[is_there])

    def go_back(self, last: int, ids: Ints) -> None:
        """To the rows `ids`, as they were once batch `last` was over."""
        assert self._journal is not None
        for changed, values in self._journal.undone(last):
            is_there = self._places.find(changed) >= 0
            self._values[self._places.find(changed[is_there])] = values[is_there]
            self.add(changed[~is_there], values[~is_there])
        held = self._places.ids[:-2]
        places = np.flatnonzero(held >= 0)
        self._places.remove(places[~np.isin(held[places], ids)].astype(np.int32))
        self._found(ids)

    def _record(self, batch: int, ids: Ints, places: NDArray[np.int32]) -> None:
        if self._journal is not None and len(ids):
            self._journal.record(batch, ids, self._values[places])

    def _found(self, ids: Ints) -> NDArray[np.int32]:
        places: NDArray[np.int32] = self._places.find(ids)
        if (is_missing := places < 0).any():
            raise _error(ids[is_missing], "must be there; the plan didn't bring or keep it")
        return places


def _error(ids: Ints, rule: str) -> InputError:
    table, id_ = split_global_ids(ids[:1])
    return InputError(f"id {id_[0]} of table {table[0]} {rule}")
