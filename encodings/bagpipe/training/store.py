"""Store: the rows that one trainer has, by id; of several threads each may read and change other rows."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints
from gapless.encodings.bagpipe.ids.row_map import RowMap
from gapless.errors import InputError
from gapless.profiles.traces.trace import split_global_ids
from gapless.torch.library import Tensor, torch

__all__ = ["RowStore"]


class RowStore:
    """Rows of some width, by global id. Raises `InputError` where a row isn't there, or already is."""

    def __init__(self, width: int) -> None:
        self._places, self._values, self._lock = RowMap(), torch.empty(0, width), threading.Lock()

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

    def change(self, ids: Ints, values: Tensor) -> None:
        """New values of rows."""
        with self._lock:
            self._values[self._found(ids)] = values

    def drop(self, ids: Ints) -> None:
        """Be rid of rows, as far as they are there."""
        with self._lock:
            places = self._places.find(ids)
            self._places.remove(places[places >= 0])

    def _found(self, ids: Ints) -> NDArray[np.int32]:
        places: NDArray[np.int32] = self._places.find(ids)
        if (is_missing := places < 0).any():
            raise _error(ids[is_missing], "must be there; the plan didn't bring or keep it")
        return places


def _error(ids: Ints, rule: str) -> InputError:
    table, id_ = split_global_ids(ids[:1])
    return InputError(f"id {id_[0]} of table {table[0]} {rule}")
