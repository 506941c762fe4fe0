"""Where the rows of all tables lie among servers, and what a batch says of its ids. Needs the extra `torch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from gapless.array_types import Ints
from gapless.errors import InputError
from gapless.profiles.traces.bags import Lookups
from gapless.profiles.traces.trace import TABLE_SHIFT, split_global_ids
from gapless.torch.library import torch

__all__ = ["BatchIds", "BatchToTrain", "Group", "Sharding"]

Group: TypeAlias = "torch.distributed.ProcessGroup | None"
"""The processes that exchange something; None for all."""


class BatchIds(Protocol):
    """The number of a batch, its count of examples, and its distinct global ids, increasing."""

    @property
    def batch(self) -> int: ...
    @property
    def examples(self) -> int: ...
    @property
    def ids(self) -> Ints: ...


class BatchToTrain(Protocol):
    """What a batch's examples look up: `index`, int32, places in `step.ids`, (examples, tables) or bags."""

    @property
    def step(self) -> BatchIds: ...
    @property
    def index(self) -> Lookups: ...


@dataclass(frozen=True)
class Sharding:
    """Which server has which row. All tables' rows are numbered in a line; row r is number r // p of server r % p.

    `table_rows`: rows of each table; `servers`: p. Raises `InputError` unless all are >= 1.
    """

    table_rows: tuple[int, ...]
    servers: int

    def __post_init__(self) -> None:
        for title, least in (("table_rows", min(self.table_rows, default=0)), ("servers", self.servers)):
            if least < 1:
                raise InputError(f"{title}: must be >= 1, got {least}")

    def rows(self, ids: Ints) -> Ints:
        """The rows of global ids. Raises `InputError` for an id that its table doesn't have."""
        table, id_ = split_global_ids(ids)
        sizes = np.array(self.table_rows, dtype=np.int64)
        if len(ids) and int(table.max()) >= len(sizes):
            raise InputError(f"table_rows: must have one entry for each table, got {len(sizes)}, table {table.max()}")
        is_outside = id_ >= sizes[table]
        if is_outside.any():
            where = int(is_outside.argmax())
            rule = f"ids must be below its {sizes[table[where]]} rows"
            raise InputError(f"table {table[where]}: {rule}, got {id_[where]}")
        rows: Ints = (np.cumsum(sizes) - sizes)[table] + id_
        return rows

    def ids(self, rows: Ints) -> Ints:
        """The global ids of rows."""
        firsts = np.cumsum([0, *self.table_rows])
        table = np.searchsorted(firsts, rows, side="right") - 1
        ids: Ints = (table << TABLE_SHIFT) + rows - firsts[table]
        return ids

    def rows_of(self, server: int) -> Ints:
        """The rows that a server has, in its order."""
        return np.arange(server, sum(self.table_rows), self.servers)
