"""Bags: several ids of an example in one table, as `torch.nn.EmbeddingBag` and TorchRec's KeyedJaggedTensor hold them.

A bag may be empty, and may hold an id more than once: the model adds its row so often, but the row moves once. Where
every bag holds one id, an array (examples, tables) says the same and is quicker; the functions below take either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints

__all__ = ["Bags", "Lookups", "bags_of_tables", "by_table", "cells", "chosen", "joined", "lookups", "of_tables", "sums"]


Number = TypeVar("Number", bound=np.number)


@dataclass(frozen=True, eq=False)
class Bags:
    """`values`: integers (n,), example by example, table by table within. `lengths`: int64 (examples, tables)."""

    values: NDArray[np.integer]
    lengths: Ints

    @property
    def shape(self) -> tuple[int, ...]:
        """(examples, tables)."""
        return self.lengths.shape

    @property
    def size(self) -> int:
        """How many ids are looked up."""
        return len(self.values)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, examples: slice) -> Bags:
        """Consecutive examples; a view."""
        start, stop, _ = examples.indices(len(self))
        return Bags(self.values[self.starts[start] : self.starts[stop]], self.lengths[start:stop])

    @cached_property
    def starts(self) -> Ints:
        """Where the values of each example begin, and where the last end; int64 (examples + 1,)."""
        return _starts(self.lengths.sum(axis=1))

    @cached_property
    def example(self) -> Ints:
        """The example of each value; int64 (n,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def table(self) -> NDArray[np.int32]:
        """The table of each value; int32 (n,)."""
        examples, tables = self.shape
        return np.repeat(np.tile(np.arange(tables, dtype=np.int32), examples), self.lengths.reshape(-1))

    def take(self, examples: Ints) -> Bags:
        """These examples, in this order."""
        counts = np.diff(self.starts)[examples]
        place = np.arange(int(counts.sum())) + np.repeat(self.starts[examples] - _starts(counts)[:-1], counts)
        return Bags(self.values[place], self.lengths[examples])

    @cached_property
    def order(self) -> Ints:
        """Where in `values` each is, table by table, example by example within; int64 (n,)."""
        bag_starts = _starts(self.lengths.reshape(-1))[:-1].reshape(self.shape)
        counts = self.lengths.T.reshape(-1)
        moved = bag_starts.T.reshape(-1) - _starts(counts)[:-1]
        return np.arange(self.size) + np.repeat(moved, counts)

    def once(self) -> Bags:
        """The distinct values of each example, ascending, in one bag; values >= 0. What a batch costs and moves."""
        span = int(self.values.max(initial=0)) + 1
        pairs = np.sort(self.example * span + self.values)  # one number each: several times quicker than two keys
        pairs = pairs[np.append(True, np.diff(pairs) != 0)[: len(pairs)]]
        example = pairs // span
        values = (pairs - example * span).astype(self.values.dtype)
        return Bags(values, np.bincount(example, minlength=len(self))[:, None])


Lookups: TypeAlias = "NDArray[np.int32] | Bags"
"""Places of ids in some order: of one id in each table (examples, tables), or of bags."""


def joined(blocks: Sequence[Ints | Bags]) -> Ints | Bags:
    """Blocks of one kind after one another."""
    if len(blocks) == 1:
        return blocks[0]
    bags = [each for each in blocks if isinstance(each, Bags)]
    if not bags:
        return np.concatenate([each for each in blocks if not isinstance(each, Bags)])
    return Bags(np.concatenate([each.values for each in bags]), np.concatenate([each.lengths for each in bags]))


def bags_of_tables(columns: Sequence[NDArray[np.integer]], lengths: Ints) -> Bags:
    """The bags of tables, each of whose ids stand example by example.

    >>> bags_of_tables([np.array([5, 6]), np.array([7, 5])], np.array([[2, 1], [0, 1]])).values.tolist()
    [5, 6, 7, 5]
    """
    ids = np.concatenate(columns)
    bags = Bags(np.empty_like(ids), lengths)
    bags.values[bags.order] = ids
    return bags


def by_table(batch: NDArray[np.integer] | Bags) -> tuple[list[NDArray[np.integer]], Ints | None]:
    """The ids of each table, example by example; of bags also where each of those, table after table, is in `values`.

    >>> columns, order = by_table(Bags(np.array([5, 6, 7, 5]), np.array([[2, 1], [0, 1]])))
    >>> [column.tolist() for column in columns], order.tolist()
    ([[5, 6], [7, 5]], [0, 1, 2, 3])
    """
    if not isinstance(batch, Bags):
        return list(np.ascontiguousarray(batch.T)), None
    return np.split(batch.values[batch.order], np.cumsum(batch.lengths.sum(axis=0))[:-1]), batch.order


def of_tables(batch: Ints | Bags, tables: Ints) -> Ints | Bags:
    """The ids of some tables, in this order.

    >>> of_tables(Bags(np.array([5, 6, 7, 5]), np.array([[2, 1], [0, 1]])), np.array([1])).values.tolist()
    [7, 5]
    """
    if not isinstance(batch, Bags):
        return batch[:, tables]
    columns, _ = by_table(batch)
    return bags_of_tables([columns[table] for table in tables.tolist()], batch.lengths[:, tables])


def lookups(index: Lookups) -> tuple[Ints, NDArray[np.integer]]:
    """Example and value of all lookups, example by example."""
    if isinstance(index, Bags):
        return index.example, index.values
    return np.repeat(np.arange(len(index)), index.shape[1]), index.reshape(-1)


def chosen(index: Lookups, examples: Ints | slice) -> Lookups:
    """The lookups of some examples."""
    return index.take(examples) if isinstance(index, Bags) and not isinstance(examples, slice) else index[examples]  # type: ignore[index]


def cells(index: Lookups, number: Ints, width: int) -> Ints:
    """value * width + number[example] of each lookup, flat: cells of a table of values by numbers."""
    if isinstance(index, Bags):
        return index.values.astype(np.int64) * width + number[index.example]
    return (index.astype(np.int64) * width + number[:, None]).reshape(-1)


def sums(per_value: NDArray[Number], index: Lookups) -> NDArray[Number]:
    """The rows of `per_value` (values, width) that each example looks up, added up; (examples, width)."""
    if not isinstance(index, Bags):
        total: NDArray[Number] = per_value[index].sum(axis=1, dtype=per_value.dtype)
        return total
    added = np.zeros((len(index), per_value.shape[1]), dtype=per_value.dtype)
    some = np.flatnonzero(np.diff(index.starts))
    if len(some):
        added[some] = np.add.reduceat(per_value[index.values], index.starts[some], axis=0)
    return added


def _starts(counts: NDArray[np.integer]) -> Ints:
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts
