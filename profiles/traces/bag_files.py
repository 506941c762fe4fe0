"""Reader of bags in a `.npz`: `values` and, of which bag they are, `lengths` or `offsets`.

Two layouts, both of integers:

- `lengths` in two dimensions, examples x tables: the values stand example by example, table by table within;
- one dimension, as a KeyedJaggedTensor has them: the values stand table by table, example by example within, and so do
  the `lengths`; `offsets` are their running sum, from 0 on, with the number of values at the end. `keys`, texts, name
  the tables; without it there is one, as `torch.nn.EmbeddingBag(include_last_offset=True)` takes it.

No more than a block of examples is held: each table's part of an array is a stream of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.arrays import Archive, Reader, open_archive
from gapless.profiles.traces.bags import Bags, bags_of_tables
from gapless.profiles.traces.trace import MOST_TABLES, Block, Trace, block_starts, numbered, valid_block

__all__ = ["read_bags"]

Ints = NDArray[np.int64]


def read_bags(path: str | Path, archive: Archive) -> Trace:
    """The trace in arrays `values`, and `lengths` or `offsets`. Raises `InputError` where they don't fit together."""
    file = _File(path, archive)
    return Trace(str(path), file.table_names, file.blocks, examples=file.examples)


class _File:
    """One file; its bags are counted once, when it is opened."""

    def __init__(self, path: str | Path, archive: Archive) -> None:
        self._path, bounds = path, "lengths" if "lengths" in archive.names else "offsets"
        self._bounds = bounds
        (values,) = self._shape(archive, "values", (1,))
        shape = self._shape(archive, bounds, (1, 2) if bounds == "lengths" else (1,))
        self._by_table = len(shape) == 1
        keys = _keys(path, archive) if "keys" in archive.names else ()
        tables = (len(keys) or 1) if self._by_table else shape[1]
        self.examples = (shape[0] - (bounds == "offsets")) // tables if self._by_table else shape[0]
        self._check_counts(shape, tables, len(keys))
        self.table_names = keys or numbered(tables)
        self._ends = np.cumsum(self._count(archive))
        if self._ends[-1] != values:
            raise InputError(f"{path}: {bounds} must add up to the {values} values, got {self._ends[-1]}")

    def blocks(self) -> Iterator[Block]:
        """A fresh pass."""
        tables = len(self.table_names)
        with open_archive(self._path) as archive, ExitStack() as opened:
            starts = [0, *self._ends[:-1].tolist()] if self._by_table else [0]
            values = _readers(archive, "values", starts, opened)
            for first, lengths in self._lengths(archive, opened):
                archive.limits.check_held("a block of bags", 3 * 8 * int(lengths.sum()))
                if not self._by_table:
                    bags = Bags(values[0](int(lengths.sum())), lengths)
                else:
                    counts = lengths.sum(axis=0).tolist()
                    bags = bags_of_tables([values[table](counts[table]) for table in range(tables)], lengths)
                yield valid_block(bags, str(self._path), first)

    def _lengths(self, archive: Archive, opened: ExitStack) -> Iterator[tuple[int, Ints]]:
        """The number of a block's first example, and its lengths, examples x tables."""
        tables, is_offsets = len(self.table_names), self._bounds == "offsets"
        starts = [table * self.examples for table in range(tables)] if self._by_table else [0]
        readers = _readers(archive, self._bounds, starts, opened)
        ends = [read(1) for read in readers] if is_offsets else []
        if is_offsets and ends[0][0]:
            raise InputError(f"{self._path}: offsets must begin with 0, got {ends[0][0]}")
        blocks = block_starts(self.examples, tables)
        for first in blocks:
            count = min(blocks.step, self.examples - first)
            if not self._by_table:
                lengths = readers[0](count * tables).reshape(count, tables)
            else:
                lengths = np.stack([read(count) for read in readers], axis=1)
            if is_offsets:
                whole = np.concatenate([np.stack(ends, axis=1), lengths])
                lengths, ends = np.diff(whole, axis=0), list(whole[-1:].T)
            if lengths.min() < 0:
                example, table = np.argwhere(lengths < 0)[0]
                rule = "offsets must not fall" if is_offsets else "lengths must be >= 0"
                where = f"example {first + example}, table {table}"
                raise InputError(f"{self._path}: {rule}, got {lengths[example, table]} in {where}")
            yield first, lengths

    def _count(self, archive: Archive) -> Ints:
        """The values of each table; of the other layout, of all."""
        with ExitStack() as opened:
            total = sum(lengths.sum(axis=0) for _, lengths in self._lengths(archive, opened))
        return np.asarray(total) if self._by_table else np.atleast_1d(np.sum(total))

    def _shape(self, archive: Archive, name: str, axes: tuple[int, ...]) -> tuple[int, ...]:
        header = archive.header(name)
        shape = header.shape
        if header.dtype.kind not in "iu" or len(shape) not in axes or (header.is_fortran and len(shape) > 1 < shape[1]):
            rule = f"must be integers in {' or '.join(map(str, axes))} dimensions, row by row"
            raise InputError(f"{self._path}: array {name!r}: {rule}, got {header.words}")
        return shape

    def _check_counts(self, shape: tuple[int, ...], tables: int, keys: int) -> None:
        if not self._by_table and keys not in (0, tables):
            raise InputError(f"{self._path}: keys must name each of {tables} tables, got {keys}")
        more = int(self._bounds == "offsets")
        if self._by_table and shape[0] != self.examples * tables + more:
            rule = f"as many for each of {tables} tables" + (", and one more at the end" if more else "")
            raise InputError(f"{self._path}: {self._bounds} must be {rule}, got {shape[0]}")
        if not self.examples or not tables:
            raise InputError(f"{self._path}: {self._bounds} must be of at least one example and table, got none")


def _keys(path: str | Path, archive: Archive) -> tuple[str, ...]:
    header = archive.header("keys")
    if len(header.shape) != 1 or header.dtype.kind != "U" or not 0 < header.shape[0] <= MOST_TABLES:
        raise InputError(f"{path}: keys must be texts, one for each table, got {header.words}")
    return tuple(archive.read("keys").tolist())


def _readers(archive: Archive, name: str, starts: Sequence[int], opened: ExitStack) -> list[Reader]:
    """Read an array from each of these entries on, as int64."""

    def of(found: Reader) -> Reader:
        def read(count: int) -> Ints:
            values = found(count)
            if len(values) < count:
                raise EOFError(f"array {name!r} ends early")
            return values.astype(np.int64)

        return read

    return [of(found) for found in archive.readers(name, starts, opened)]
