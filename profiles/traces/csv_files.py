"""Reader of traces in csv files: with a header, comma separated, plain or gzipped.

Any columns become tables. A column of whole numbers gives them as ids; any other column is numbered 0, 1, 2, ... in the
order in which its values appear, the empty value like any other. The first `BLOCK_EXAMPLES` lines of a column decide
which of the two it is. A cell may be a list, as "3;17;4": a bag of ids, empty where the cell is. A column
has lists where it is named as one, or where its first lines have such lists of whole numbers. The file is read in
chunks; only the distinct values of numbered columns stay in memory.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count, islice
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.io.text_file import Lines, text_lines
from gapless.profiles.traces.bags import bags_of_tables
from gapless.profiles.traces.trace import BLOCK_EXAMPLES, MOST_IDS, Block, Trace

__all__ = ["read_csv_trace"]

_SEPARATOR = ";"
"""Of the parts of a list in a cell."""
_MOST_CELLS, _MOST_CHARACTERS = 2**20, 2**22
"""Of the lines that are read at once: the block of a wide table has fewer of them."""


def read_csv_trace(
    path: str | Path, columns: Sequence[str], string_columns: Collection[str] = (), bag_columns: Collection[str] = ()
) -> Trace:
    """A trace whose tables are the named columns, in the order given.

    `string_columns`: those of them that are numbered even if they look like whole numbers. `bag_columns`: those
    whose cells are lists, of whole numbers or of names. Blank lines are skipped.
    Raises `InputError` at once for an unknown column or an empty file, and while reading for a line with another
    number of fields than the header, and for a number that is no id; the message names the line.
    """
    table = _Table(path, tuple(columns), frozenset(string_columns), frozenset(bag_columns))
    return Trace(str(path), tuple(columns), table.blocks)


class _Table:
    """The chosen columns of one file, checked against its header."""

    def __init__(
        self, path: str | Path, columns: tuple[str, ...], string_columns: frozenset[str], bag_columns: frozenset[str]
    ) -> None:
        self._path, self._columns, self._strings, self._bags = path, columns, string_columns, bag_columns
        with text_lines(path) as lines:
            records = csv.reader(lines)
            header = next(records, [])
            if not header or next(filter(None, records), None) is None:
                raise InputError(f"{path}: must hold a header and at least one line of values")
        if not columns:
            raise InputError(f"{path}: `columns` must name at least one of {_shortened(header)}")
        for name in (*columns, *sorted(string_columns), *sorted(bag_columns)):
            if header.count(name) != 1:
                rule = "stands twice in the header" if name in header else f"must be one of {_shortened(header)}"
                hint = suggestion(name, header) if name not in header else ""
                raise InputError(f"{path}: column {name!r} {rule}" + (f"; {hint}" if hint else ""))
        self._width = len(header)
        self._places = tuple(header.index(name) for name in columns)

    def blocks(self) -> Iterator[Block]:
        """A fresh pass."""
        convert: list[Callable[[Sequence[str]], NDArray[np.int64]]] = []
        is_list: list[bool] = []
        with text_lines(self._path) as lines:
            records, first = csv.reader(lines), 1
            next(records)
            while chunk := self._chunk(records, lines, first):
                rows = list(filter(None, chunk))
                if not rows:
                    first += len(chunk)
                    continue
                cells = [list(map(itemgetter(place), rows)) for place in self._places]
                if not convert:
                    is_list = [self._has_lists(*column) for column in zip(self._columns, cells, strict=True)]
                lists = [_pieces(column) if has else column for column, has in zip(cells, is_list, strict=True)]
                if not convert:
                    convert = [self._converter(*column) for column in zip(self._columns, lists, strict=True)]
                ids = []
                for number, column in enumerate(lists):
                    try:
                        ids.append(convert[number](column))
                    except (ValueError, OverflowError):
                        where = self._columns[number], cells[number], is_list[number]
                        raise self._no_id(*where, chunk, first) from None
                if any(is_list):
                    lengths = [
                        _lengths(column) if has else [1] * len(rows) for column, has in zip(cells, is_list, strict=True)
                    ]
                    yield bags_of_tables(ids, np.array(lengths, dtype=np.int64).T)
                else:
                    yield np.stack(ids).T
                first += len(chunk)

    def _chunk(self, records: Iterator[list[str]], lines: Lines, first: int) -> list[list[str]]:
        """The next records, all with as many fields as the header, or blank."""
        chunk, most = list[list[str]](), lines.characters + _MOST_CHARACTERS
        for record in islice(records, min(BLOCK_EXAMPLES, max(1, _MOST_CELLS // self._width))):
            if record and len(record) != self._width:
                rule = f"must have {self._width} fields as the header, got {len(record)}"
                raise InputError(f"{self._path}: line {self._line(first + len(chunk))}: {rule}")
            chunk.append(record)
            if lines.characters > most:
                break
        return chunk

    def _converter(self, name: str, values: Sequence[str]) -> Callable[[Sequence[str]], NDArray[np.int64]]:
        if name not in self._strings and all(map(_is_whole, values)):
            return _whole_numbers
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        return lambda column: np.fromiter(map(numbers.__getitem__, column), np.int64, len(column))

    def _has_lists(self, name: str, cells: Sequence[str]) -> bool:
        if name in self._bags:
            return True
        return (
            name not in self._strings
            and any(_SEPARATOR in cell for cell in cells)
            and all(map(_is_whole, _pieces(cells)))
        )

    def _no_id(
        self, name: str, values: Sequence[str], has_lists: bool, chunk: list[list[str]], first: int
    ) -> InputError:
        place = next(
            place
            for place, value in enumerate(values)
            if not all(map(_is_id, _pieces([value]) if has_lists else [value]))
        )
        record = first + [number for number, row in enumerate(chunk) if row][place]
        rule, value = f"must be a whole number in 0..{MOST_IDS - 1}", values[place]
        kind = "bag" if _SEPARATOR in value else "string"
        hint = "" if _is_whole(value) else f" as in the lines before; or let it be a {kind} column"
        return InputError(f"{self._path}: line {self._line(record)}: column {name!r} {rule}, got {value!r}{hint}")

    def _line(self, record: int) -> int:
        """The line on which a record ends; a quoted field may span lines. Read again: this is for messages only."""
        with text_lines(self._path) as lines:
            records = csv.reader(lines)
            next(islice(records, record, None))
            return records.line_num


def _pieces(cells: Sequence[str]) -> list[str]:
    """The parts of lists, cell after cell; an empty cell has none."""
    text = _SEPARATOR.join(filter(None, cells))
    return text.split(_SEPARATOR) if text else []


def _lengths(cells: Sequence[str]) -> list[int]:
    return [cell.count(_SEPARATOR) + 1 if cell else 0 for cell in cells]


def _whole_numbers(values: Sequence[str]) -> NDArray[np.int64]:
    ids = np.fromiter(map(int, values), np.int64, len(values))
    if ids.size and (ids.min() < 0 or ids.max() >= MOST_IDS):
        raise ValueError
    return ids


def _is_whole(value: str) -> bool:
    try:
        int(value)
    except ValueError:
        return False
    return True


def _is_id(value: str) -> bool:
    return _is_whole(value) and 0 <= int(value) < MOST_IDS


def _shortened(names: Iterable[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= 300 else text[:297] + "..."
