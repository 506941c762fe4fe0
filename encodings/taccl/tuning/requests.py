"""The cells of the table: each collective in each group at each size, from the options or from a TOML file.

[[cells]]
collectives = ["allreduce", "allgather"]
groups = ["all", "0-3"]
sizes = ["64KB", "1MB"]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gapless.encodings.taccl.tuning.question import COLLECTIVES, TuneQuestion
from gapless.errors import InputError
from gapless.io.record import Record, suggestion
from gapless.io.text_file import load_toml
from gapless.ir.collective import Collective, collective_by_name
from gapless.ir.process_groups import along_axes, read_group
from gapless.units import parse_bytes

__all__ = ["ELEMENT_BYTES", "Request", "requests_of", "whole"]

ELEMENT_BYTES = 4
"""Buffers that are measured are of float32."""
_SIZES = (1_000, 64_000, 1_000_000)
_MOST_CELLS = 10_000


@dataclass(frozen=True, order=True)
class Request:
    """A collective among ranks, for input buffers of `size_bytes`: a whole number of elements in each share."""

    collective: str
    ranks: tuple[int, ...]
    size_bytes: int


def whole(name: str, ranks: int) -> Collective:
    """The collective in as few chunks as there can be."""
    return collective_by_name(name, ranks, 1)


def requests_of(question: TuneQuestion, ranks: int) -> list[Request]:
    """The cells, in the order of collectives, groups and sizes. Raises `InputError` for what isn't there."""
    given = (question.collectives, question.groups, question.sizes)
    if question.cells_file is not None:
        if any(one is not None for one in given):
            raise InputError("give `cells_file`, or `collectives`, `groups` and `sizes`, not both")
        found = list(_of_file(question.cells_file, ranks))
    else:
        found = list(_product(*given, ranks))
    cells = sorted(set(found), key=lambda one: (one.collective, len(one.ranks) != ranks, one.ranks, one.size_bytes))
    if len(cells) > _MOST_CELLS:
        raise InputError(f"sizes: must make at most {_MOST_CELLS:,} cells, got {len(cells):,}")
    return cells


def _of_file(path: str, ranks: int) -> Iterable[Request]:
    record = Record(load_toml(path), path)
    tables = record.records("cells")
    record.close()
    if not tables:
        raise record.fail("cells", "at least one table", [])
    for table in tables:
        texts = {
            name: table.texts(name, "a list of texts", ()) if name in table else None
            for name in ("collectives", "groups", "sizes")
        }
        table.close()
        try:
            sizes = None if texts["sizes"] is None else [parse_bytes(text, "sizes") for text in texts["sizes"]]
            yield from _product(texts["collectives"], texts["groups"], sizes, ranks)
        except InputError as error:
            raise InputError(f"{table.where}: {error}") from None


def _product(
    collectives: Sequence[str] | None, groups: Sequence[str] | None, sizes: Sequence[int] | None, ranks: int
) -> Iterable[Request]:
    for name in collectives or COLLECTIVES:
        if name.lower() not in COLLECTIVES:
            hint = suggestion(name.lower(), COLLECTIVES)
            rule = f"collectives: must be some of {', '.join(COLLECTIVES)}, got {name!r}"
            raise InputError(f"{rule}; {hint}" if hint else rule)
        for text in groups or ("all",):
            for members in _groups(text, ranks):
                for size_bytes in sizes or _SIZES:
                    yield _rounded(name.lower(), members, size_bytes)


def _groups(text: str, ranks: int) -> list[tuple[int, ...]]:
    if text == "all":
        return [tuple(range(ranks))]
    named, collective, size = read_group(text)
    if collective or size:
        raise InputError(f"groups: must be all, ranks or axes, got {text!r}")
    lists = along_axes(named, ranks) if isinstance(named, Mapping) else [named]
    for members in lists:
        if len(members) < 2 or len(set(members)) != len(members) or max(members) >= ranks:
            raise InputError(f"groups: must be two or more of the ranks 0-{ranks - 1}, each once, got {text!r}")
    return [tuple(members) for members in lists]


def _rounded(name: str, ranks: tuple[int, ...], size_bytes: int) -> Request:
    """The size as a whole number of elements in each chunk of the largest buffer."""
    unit = ELEMENT_BYTES * max(map(len, whole(name, len(ranks)).inputs))
    return Request(name, ranks, -(-size_bytes // unit) * unit)
