"""Trace: the embedding ids that the examples of a training run look up, in training order, as a stream.

An example looks up one id in each table, or a bag of ids in each (`bags`). An id is private to its table. Nothing here
holds more of a trace than one block and one batch, so a trace may be longer than memory.

A *global id* names a table and an id in one int64: the table in the bits from `TABLE_SHIFT` up, the id below. This
needs no table sizes, which a file doesn't have, and costs the same one addition as offsets would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags, joined
from gapless.report.short_repr import Brief

__all__ = [
    "BLOCK_EXAMPLES",
    "MOST_IDS",
    "MOST_TABLES",
    "TABLE_SHIFT",
    "Block",
    "Trace",
    "block_starts",
    "check_bags",
    "global_ids",
    "numbered",
    "rebatched",
    "split_global_ids",
    "trace_of_array",
    "valid_block",
    "with_table_rows",
]

TABLE_SHIFT = 44
"""The bit from which a global id holds its table."""

MOST_IDS = 1 << TABLE_SHIFT
"""An id is smaller than this; 17 million million."""

MOST_TABLES = 1 << (63 - TABLE_SHIFT)
"""A trace has at most so many tables."""

BLOCK_EXAMPLES = 1 << 14
"""Examples in a block of a generator or reader, at most."""
_MOST_BLOCK_IDS = 1 << 22

Block: TypeAlias = "NDArray[np.int64] | Bags"
"""Some examples: an id in each table, int64 (examples, tables), or bags of ids."""


@dataclass(frozen=True, repr=False)
class Trace(Brief):
    """A stream of examples that can be read again and again, each time the same.

    `blocks()`: a fresh pass; int64 arrays, shape (examples of this block, tables), of ids >= 0 private to their table,
    or `Bags` of such ids in every block.
    `table_names`: of the columns. `table_rows`: rows of each table, where known; ids are smaller.
    `examples`: how many there are, where known. Raises `InputError` naming the trace.
    """

    name: str
    table_names: tuple[str, ...]
    blocks: Callable[[], Iterator[Block]]
    table_rows: tuple[int, ...] | None = None
    examples: int | None = None

    def __post_init__(self) -> None:
        where, tables = f"trace {self.name!r}", len(self.table_names)
        if not 1 <= tables <= MOST_TABLES:
            raise InputError(f"{where}: tables must number 1..{MOST_TABLES}, got {tables}")
        if len(set(self.table_names)) < tables:
            twice = next(name for k, name in enumerate(self.table_names) if name in self.table_names[:k])
            raise InputError(f"{where}: names of tables must differ, got {twice!r} twice")
        if self.table_rows is not None and len(self.table_rows) != tables:
            raise InputError(f"{where}: table_rows must have one entry for each of {tables} tables")
        for name, rows in zip(self.table_names, self.table_rows or (), strict=False):
            if not 1 <= rows <= MOST_IDS:
                raise InputError(f"{where}: table {name!r}: rows must be in 1..{MOST_IDS}, got {rows}")
        if self.examples is not None and self.examples < 1:
            raise InputError(f"{where}: examples must be >= 1, got {self.examples}")

    @property
    def table_count(self) -> int:
        """How many tables an example looks up."""
        return len(self.table_names)

    def batches(self, batch_size: int, most: int | None = None) -> Iterator[Block]:
        """The consecutive batches of a fresh pass, at most `most` of them.

        The last batch of the trace is shorter where `batch_size` doesn't divide the number of examples.
        A batch may share memory with the trace's file and must not be written to.
        """
        if batch_size < 1:
            raise InputError(f"trace {self.name!r}: the batch size must be >= 1, got {batch_size}")
        if most is not None and most < 1:
            raise InputError(f"trace {self.name!r}: the number of batches must be >= 1, got {most}")
        return islice(rebatched(self.blocks(), batch_size), most)


def block_starts(examples: int, tables: int) -> range:
    """Where the blocks of a file begin: fewer examples each where many tables make them wide."""
    return range(0, examples, max(1, min(BLOCK_EXAMPLES, _MOST_BLOCK_IDS // max(1, tables))))


def numbered(tables: int) -> tuple[str, ...]:
    """Names of tables that have none."""
    return tuple(f"table{number}" for number in range(min(tables, MOST_TABLES + 1)))


def rebatched(blocks: Iterable[Block], batch_size: int) -> Iterator[Block]:
    """Cut a stream of blocks into batches of `batch_size` examples; the last may be shorter.

    >>> [batch.tolist() for batch in rebatched([np.array([[1], [2], [3]]), np.array([[4], [5]])], 2)]
    [[[1], [2]], [[3], [4]], [[5]]]
    """
    kept: list[Block] = []
    count = 0
    for block in blocks:
        start = 0
        while count + len(block) - start >= batch_size:
            stop = start + batch_size - count
            kept.append(block[start:stop])
            yield joined(kept)
            kept, count, start = [], 0, stop
        if start < len(block):
            kept.append(block[start:])
            count += len(block) - start
    if kept:
        yield joined(kept)


def trace_of_array(ids: NDArray[np.integer] | Bags, name: str = "array", table_names: tuple[str, ...] = ()) -> Trace:
    """A trace that lies in memory: integers, shape (examples, tables), or bags. Raises `InputError` for others."""
    if isinstance(ids, Bags):
        check_bags(ids, f"trace {name!r}")
    elif ids.dtype.kind not in "iu" or ids.ndim != 2 or not ids.size:
        rule = "must be integers, examples x tables, at least one of each"
        raise InputError(f"trace {name!r}: {rule}, got {ids.dtype} of shape {ids.shape}")
    names = table_names or numbered(ids.shape[1])

    def blocks() -> Iterator[Block]:
        for start in range(0, len(ids), BLOCK_EXAMPLES):
            yield valid_block(ids[start : start + BLOCK_EXAMPLES], f"trace {name!r}", start)

    return Trace(name, names, blocks, examples=len(ids))


def with_table_rows(trace: Trace, table_rows: Sequence[int]) -> Trace:
    """The trace, whose tables have so many rows; reading raises `InputError` for an id that is none of them."""
    rows = np.array(table_rows, dtype=np.int64)

    def blocks() -> Iterator[Block]:
        for block in trace.blocks():
            values, table = (block.values, block.table) if isinstance(block, Bags) else (block, np.arange(len(rows)))
            is_outside = values >= rows[table]
            if is_outside.any():
                place = np.argwhere(is_outside)[0]
                number = int(table[place[-1]])
                rule = f"ids must be below its {rows[number]} rows, got {values[tuple(place)]}"
                raise InputError(f"{trace.name}: table {trace.table_names[number]!r}: {rule}")
            yield block

    return replace(trace, blocks=blocks, table_rows=tuple(rows.tolist()))


def check_bags(bags: Bags, where: str) -> None:
    """Raises `InputError` unless values are integers and lengths, examples x tables, are >= 0 and add up to them."""
    values, lengths = bags.values, bags.lengths
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InputError(f"{where}: values must be integers, one after another, got {values.dtype} of {values.shape}")
    if lengths.ndim != 2 or lengths.dtype.kind not in "iu" or not lengths.size:
        rule = "lengths must be integers, examples x tables, at least one of each"
        raise InputError(f"{where}: {rule}, got {lengths.dtype} of shape {lengths.shape}")
    if lengths.min() < 0:
        example, table = np.argwhere(lengths < 0)[0]
        raise InputError(f"{where}: lengths must be >= 0, got {lengths.min()} in example {example}, table {table}")
    if int(lengths.sum()) != len(values):
        raise InputError(f"{where}: lengths must add up to the {len(values)} values, got {lengths.sum()}")


def valid_block(block: NDArray[np.integer] | Bags, where: str, first_example: int) -> Block:
    """The block as int64. Raises `InputError` for an id that is negative or too large, naming example and table."""
    values = block.values if isinstance(block, Bags) else block
    if values.size and (values.min() < 0 or values.max() >= MOST_IDS):
        place = np.argwhere((values < 0) | (values >= MOST_IDS))[0]
        example, table = (block.example[place[0]], block.table[place[0]]) if isinstance(block, Bags) else place
        rule, value = f"ids must be in 0..{MOST_IDS - 1}", values[tuple(place)]
        raise InputError(f"{where}: {rule}, got {value} in example {first_example + example}, table {table}")
    if isinstance(block, Bags):
        return Bags(np.asarray(values, dtype=np.int64), block.lengths)
    return np.asarray(block, dtype=np.int64)


def global_ids(block: NDArray[np.int64]) -> NDArray[np.int64]:
    """One int64 for each table and id; the same shape. Sorting them sorts by table, then id.

    >>> [int(number) >> TABLE_SHIFT for number in global_ids(np.array([[7, 7, 0]]))[0]]
    [0, 1, 2]
    """
    return block + (np.arange(block.shape[1], dtype=np.int64) << TABLE_SHIFT)


def split_global_ids(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tables and ids of global ids.

    >>> [part.tolist() for part in split_global_ids(global_ids(np.array([[7, 5]])))]
    [[[0, 1]], [[7, 5]]]
    """
    return numbers >> TABLE_SHIFT, numbers & (MOST_IDS - 1)
