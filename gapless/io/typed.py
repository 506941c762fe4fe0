"""Typed records: JSON objects and `.npz` files as frozen dataclasses, which say each field's type and limits once.

A field's type hint says what its value is: a text, true or false, a whole number, a number, another such class, an
array or a tuple of numbers, texts or such classes. A field with a default may be left out of a file, and is where it
has that value. `Stored` says what the hint can't. One reader and one writer serve all formats of profiles.
"""

from __future__ import annotations

import dataclasses
import io
import json
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.arrays import load_arrays, meta_record
from gapless.io.atomic import write_bytes
from gapless.io.record import Record, load_record

__all__ = [
    "Stored",
    "data_of",
    "located",
    "read_archive",
    "read_file",
    "read_record",
    "text_of",
    "write_archive",
]

T = TypeVar("T")

_NONE = object()


@dataclasses.dataclass(frozen=True)
class Stored:
    """What a type hint can't say of a field.

    `minimum`, `maximum`: of a number, or of each number of several; a whole number is at least 0 where nothing is said.
    `key`: the field's name in files, where it is another one. `choices`: the texts that may stand there, or in a list
    there. `kinds`: the classes that may, by what the object's `kind` says. `is_needed`: it must be in the file although
    the class has a default. `is_filled`: a list must hold something. `otherwise`: what a file without the field means,
    where the class has no default. `each`: the rule of what stands in a list, in words: `[bytes, seconds]`. `place`:
    fields are written in the order of their places, then of the class.
    """

    minimum: float | None = None
    maximum: int | None = None
    _: dataclasses.KW_ONLY
    key: str = ""
    choices: Collection[str] = ()
    kinds: Mapping[str, type] = dataclasses.field(default_factory=dict)
    is_needed: bool = False
    is_filled: bool = False
    otherwise: object = _NONE
    each: str = ""
    place: int = 0


@dataclasses.dataclass(frozen=True)
class _Field:
    name: str
    key: str
    hint: Any
    rule: Stored
    default: object

    @property
    def is_optional(self) -> bool:
        """Whether a file may leave it out."""
        return self.default is not _NONE and not self.rule.is_needed


def _fields(kind: type) -> tuple[_Field, ...]:
    if kind in _KNOWN:
        return _KNOWN[kind]
    hints, found = get_type_hints(kind, include_extras=True), []
    for field in dataclasses.fields(kind):
        hint, rule = hints[field.name], Stored()
        if get_origin(hint) is Annotated:
            hint, rule = get_args(hint)
        if get_origin(hint) in (Union, types.UnionType) and not rule.kinds:
            hint = next(option for option in get_args(hint) if option is not type(None))
        default = _NONE if field.default is dataclasses.MISSING else field.default
        if rule.otherwise is not _NONE:
            default = rule.otherwise
        found.append(_Field(field.name, rule.key or field.name, hint, rule, default))
    return _KNOWN.setdefault(kind, tuple(found))


_KNOWN: dict[type, tuple[_Field, ...]] = {}
"""Fields of classes that were read or written."""


@contextmanager
def located(where: str) -> Iterator[None]:
    """Within the block, what is refused is said of `where`: classes name themselves, not the file."""
    try:
        yield
    except InputError as error:
        message = str(error)
        raise InputError(message if message.startswith(f"{where}: ") else f"{where}: {message}") from None


# -- reading -----------------------------------------------------------------------------------------------------------


def read_file(kind: type[T], path: str | Path, name: str, version: int) -> T:
    """What a JSON file of a format and version holds.

    Raises `InputError`, one line that names the file, the field, the rule and the value.
    """
    record = load_record(path)
    record.of_format(name, version)
    return read_record(kind, record)


def read_record(kind: type[T], record: Record, where: str = "") -> T:
    """What a record holds, which must be no more than that; what the class refuses is said of `where`."""
    where = where or record.where
    values = {field.name: _value(field, record, where) for field in _fields(kind)}
    record.close()
    with located(where):
        return kind(**values)


def _value(field: _Field, record: Record, where: str) -> Any:
    key, hint, rule = field.key, field.hint, field.rule
    if field.is_optional and key not in record:
        record.raw(key, None)  # is known
        return field.default
    if rule.kinds:
        entry, kinds = record.record(key), rule.kinds
        return read_record(kinds[entry.text("kind", choices=list(kinds))], entry)
    if hint is str:
        return record.text(key, list(rule.choices))
    if hint is bool:
        return record.boolean(key)
    if hint is int:
        return record.integer(key, int(rule.minimum or 0), rule.maximum)
    if hint is float:
        return record.number(key, *(() if rule.minimum is None else (rule.minimum,)))
    if get_origin(hint) is tuple:
        return _values(get_args(hint), field, record, where)
    if get_origin(hint) is np.ndarray:
        return np.array(
            [record.real(f"{key}[{k}]", value, rule.minimum or 0) for k, value in enumerate(record.array(key))]
        )
    return read_record(hint, record.record(key), where)


def _values(kinds: tuple[Any, ...], field: _Field, record: Record, where: str) -> tuple[Any, ...]:
    key, rule, item = field.key, field.rule, kinds[0]
    minimum = int(rule.minimum or 0)
    if dataclasses.is_dataclass(item):
        entries = record.records(key)
        if rule.is_filled and not entries:
            raise record.fail(key, "a list of at least one", [])
        return tuple(read_record(item, entry, where) for entry in entries)  # type: ignore[arg-type]
    values = record.array(key)
    if rule.is_filled and not values:
        raise record.fail(key, "a list of at least one", [])
    if item is str:
        return record.texts(key, rule.each or "a list of texts", rule.choices)
    if item is int:
        numbers: tuple[int, ...] = record.integers(key, minimum, rule.maximum)
        if Ellipsis not in kinds and len(numbers) != len(kinds):
            raise record.fail(key, rule.each, list(numbers))
        return numbers
    if item is float:
        return tuple(_number(f"{key}[{k}]", value, rule, record) for k, value in enumerate(values))
    return tuple(_row(f"{key}[{k}]", value, get_args(item), rule, record) for k, value in enumerate(values))


def _number(title: str, value: object, rule: Stored, record: Record) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _least(rule) <= value <= _most(rule):
        raise record.fail(title, rule.each, value)
    return float(value)


def _row(title: str, value: object, kinds: tuple[Any, ...], rule: Stored, record: Record) -> tuple[Any, ...]:
    """A list in a list: whole numbers in limits, or so many numbers as the hint says."""
    if not isinstance(value, list):
        raise record.fail(title, rule.each, value)
    if Ellipsis in kinds:
        return tuple(record.whole(title, number, int(rule.minimum or 0), rule.maximum) for number in value)
    allowed = (int,) if int in kinds else (int, float)
    if len(value) != len(kinds) or any(type(number) not in allowed for number in value):
        raise record.fail(title, rule.each, value)
    if int in kinds:
        return tuple(value)
    try:
        return tuple(map(float, value))
    except OverflowError:
        raise record.fail(title, "two numbers that fit into 64 bits", value) from None


def _least(rule: Stored) -> float:
    return -np.inf if rule.minimum is None else rule.minimum


def _most(rule: Stored) -> float:
    return np.inf if rule.maximum is None else rule.maximum


# -- writing -----------------------------------------------------------------------------------------------------------


def data_of(value: object) -> dict[str, Any]:
    """A typed record in plain values, as `read_record` takes them; what has its default is left out."""
    data: dict[str, object] = {}
    for field in sorted(_fields(type(value)), key=lambda field: field.rule.place):
        held = getattr(value, field.name)
        is_left_out = field.is_optional and field.rule.otherwise is _NONE and not isinstance(held, np.ndarray)
        if is_left_out and held == field.default:
            continue
        data[field.key] = float(held) if field.hint is float else _plain(held)
        kinds = [name for name, kind in field.rule.kinds.items() if isinstance(held, kind)]
        if kinds:
            data[field.key] = {"kind": kinds[0], **data_of(held)}
    return data


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return data_of(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def text_of(value: object, name: str, version: int, lists: Sequence[str]) -> str:
    """A typed record as a JSON file of a format and version; of these lists at its end, each entry is a line."""
    data: dict[str, Any] = {"format": name, "version": version, **data_of(value)}
    lines = {key: ",\n".join(json.dumps(entry) for entry in data.pop(key)) for key in lists}
    rest = "".join(f',\n"{key}": [\n{text}]' for key, text in lines.items())
    return f"{json.dumps(data)[:-1]}{rest}}}\n"


# -- archives ----------------------------------------------------------------------------------------------------------


def write_archive(
    path: str | Path, meta: object, name: str, version: int, arrays: Mapping[str, NDArray[np.generic]]
) -> None:
    """Write a `.npz` with a typed record as its `meta`, whole or not at all; the same values give the same bytes."""
    text = json.dumps({"format": name, "version": version, **data_of(meta)})
    stream = io.BytesIO()
    np.savez_compressed(stream, **{"meta": np.frombuffer(text.encode(), dtype=np.uint8), **arrays})  # type: ignore[arg-type]
    write_bytes(path, stream.getvalue())


def read_archive(
    kind: type[T], path: str | Path, name: str, version: int, needed: Sequence[str], optional: Sequence[str] = (), *,
    written_by: str,
) -> tuple[T, dict[str, NDArray[Any]]]:  # fmt: skip
    """The `meta` of a `.npz` of a format and version, and its arrays. `written_by`: a command, for the message.

    Raises `InputError`, one line that names the file, the field, the rule and the value.
    """
    what = f"a {name}, which `{written_by}` writes"
    record = meta_record(load_arrays(path, ("meta",), what=what)["meta"], f"{path}: meta")
    record.of_format(name)
    found = record.integer("version", 1, version)
    if found < version:  # its arrays may be others
        raise record.fail("version", str(version), found, f"`{written_by}` makes the file again")
    return read_record(kind, record), load_arrays(path, needed, optional, what=what)
