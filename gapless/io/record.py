"""Record: reads a JSON object field by field, and says file, field, rule and value where one is broken."""

from __future__ import annotations

import difflib
import io
import json
import math
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, TypeVar

from gapless.errors import InputError
from gapless.io.reading import Limits
from gapless.io.text_file import load_text

__all__ = ["Record", "is_number", "load_record", "parse_json", "parse_record", "suggestion"]

D = TypeVar("D")

_MISSING: Any = object()
"""The default of a field that must be there."""

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*')

_MOST_DEPTH = 100
_LIST_BYTES, _OBJECT_BYTES, _KEY_BYTES, _STRING_BYTES, _NUMBER_BYTES = 96, 64, 100, 64, 10.25
"""Of a list of one to four values, an empty object, a name in one, a text of two characters, a character of a number:
the worst is `257,`, an object of 32 bytes and its place in a list.
"""

_MOST_DIGITS = 19
"""Of a number in a name; more don't fit into 64 bits."""

_MOST_SHOWN = 8
"""Of the fields that stand in a message."""

_OF_MACHINES = "what a machine says of itself, of which `gapless convert` makes a topology"
_OTHER_KINDS = {
    "<algo": "TACCL-EF XML, which `gapless check` executes",
    "<system": _OF_MACHINES,
    "<topology": _OF_MACHINES,
    "GPU0": _OF_MACHINES,
    "ROWS": "a model for a solver, which no command takes",
    "NAME": "a model for a solver, which no command takes",
}
"""Text that is given where JSON is meant, by how it begins."""

_START = 2000
"""Letters at the start of a text that say what it is."""

_TAKEN_BY = {
    "gapless.plan": "a plan, which check, show, plot, report and export take",
    "gapless.topology": "a topology, which --topology-file takes",
    "gapless.collective": "a collective, which --collective-file takes",
    "gapless.groups": "process groups, which --groups-file takes",
    "gapless.training-graph": "a training graph, which --graph takes",
    "gapless.fusion-profile": "a fusion profile, which --profile takes",
    "gapless.pipeline-profile": "a profile of a model's layers, which --profile takes",
    "gapless.compression-errors": "a table of measured errors, which --compression takes",
    "gapless.measured": "a measured run, which report --measured takes",
    "gapless.tuned": "a selector, whose folder `gapless.torch.collectives.install` takes",
    "gapless.tuned-table": "the table of `gapless tune`, for people",
    "gapless.head-profile": "a profile of attention heads, which --profile takes",
    "gapless.training-step": "a training step, which advise step --step takes",
    "gapless.size-sweep": "the table of a sweep over sizes, whose folder advise step --sweep takes",
    "gapless.sweep": "a sweep, which sweep takes",
    "gapless.measure": "a list of commands to measure, which sweep --choose takes",
    "gapless.ddp-buckets": "a set of buckets, which `gapless.torch.ddp.distribute` takes",
}
"""What files of gapless's own formats are for, for those who give one where another belongs."""


class Record:
    """A JSON object under validation. `where` opens every message, for instance `ring.json: links[3]`.

    Every reader takes a default; without one the field must be there. `close` refuses the fields that nobody read.
    """

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise InputError(f"{where}: must be a JSON object {{...}}, got {_shown(data)}")
        self.where = where
        self._data: dict[str, object] = data
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def names(self) -> list[str]:
        """The fields that are there, in the order of the file."""
        return list(self._data)

    def raw(self, key: str, default: object = _MISSING) -> object:
        """The field as it stands."""
        self._read.add(key)
        if key not in self._data:
            if default is _MISSING:
                raise InputError(f"{self.where}: field {key!r} is missing; there {self._present()}")
            return default
        return self._data[key]

    def _present(self) -> str:
        """The first fields that the file has, for those who spelt one otherwise."""
        shown = ", ".join(_shown(name)[1:-1] for name in list(self._data)[:_MOST_SHOWN])
        more = ", ..." if len(self._data) > _MOST_SHOWN else ""
        return f"are {shown}{more}" if shown else "is none"

    def number(self, key: str, minimum: float = -math.inf, default: D = _MISSING) -> float | D:
        """A finite number of at least `minimum`."""
        value = self.raw(key, default)
        if key not in self._data:
            return default
        if not _is_number(value) or not value >= minimum:
            raise self.fail(key, "a number" + (f" >= {minimum:g}" if math.isfinite(minimum) else ""), value)
        return self._as_float(key, value)

    def integer(self, key: str, minimum: int, maximum: int | None = None, default: D = _MISSING) -> int | D:
        """A whole number between `minimum` and `maximum`."""
        value = self.raw(key, default)
        return default if key not in self._data else self.whole(key, value, minimum, maximum)

    def boolean(self, key: str, default: D = _MISSING) -> bool | D:
        """True or false."""
        value = self.raw(key, default)
        if key not in self._data or value is default:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, "true or false", value)
        return value

    def text(self, key: str, choices: Collection[str] = (), default: D = _MISSING) -> str | D:
        """A string, one of `choices` where they are given."""
        value = self.raw(key, default)
        if key not in self._data:
            return default
        if not isinstance(value, str):
            raise self.fail(key, "a string", value)
        if choices and value not in choices:
            raise self.fail(key, f"one of {', '.join(sorted(choices))}", value, suggestion(value, choices))
        return value

    def of_format(self, name: str, version: int | None = None) -> None:
        """Refuse files of other formats than this one, and of other versions, if there is one."""
        value = self.raw("format")
        if value != name:
            raise self.fail("format", name, value, _format_hint(value, name))
        if version is not None:
            self.integer("version", version, version)

    def array(self, key: str, default: D = _MISSING) -> list[object] | D:
        """A list of anything."""
        value = self.raw(key, default)
        if key not in self._data:
            return default
        if not isinstance(value, list):
            raise self.fail(key, "a list", value)
        return value

    def integers(
        self, key: str, minimum: int, maximum: int | None = None, default: D = _MISSING
    ) -> tuple[int, ...] | D:
        """A list of whole numbers, as a tuple."""
        self.raw(key, default)
        if key not in self._data:
            return default
        return tuple(self.whole(f"{key}[{k}]", item, minimum, maximum) for k, item in enumerate(self.array(key)))

    def texts(
        self, key: str, rule: str = "a list of strings", known: Collection[str] = (), default: Sequence[str] = _MISSING
    ) -> tuple[str, ...]:
        """A list of strings, as a tuple; each is one of `known`, if there are such. `rule`: in words."""
        values = self.array(key, default)
        found = tuple(value for value in values if isinstance(value, str) and (not known or value in known))
        if len(found) != len(values):
            raise self.fail(key, rule, values)
        return found

    def lists(self, key: str, rule: str, count: int | None = None) -> list[list[object]]:
        """A list of lists, so many where `count` is given. `rule`: in words."""
        values = self.array(key)
        found = [value for value in values if isinstance(value, list)]
        if len(found) != len(values) or (count is not None and len(found) != count):
            raise self.fail(key, rule, values)
        return found

    def whole(self, title: str, value: object, minimum: int, maximum: int | None = None) -> int:
        """A value deep inside a field, which must be a whole number in the given limits; `title` is its path."""
        if not _is_integer(value) or value < minimum or (maximum is not None and value > maximum):
            raise self.fail(title, _whole_rule(minimum, maximum), value)
        return value

    def real(self, title: str, value: object, minimum: float) -> float:
        """A value deep inside a field, which must be a number of at least `minimum`; `title` is its path."""
        if not _is_number(value) or not value >= minimum:
            raise self.fail(title, f"a number >= {minimum:g}", value)
        return self._as_float(title, value)

    def _as_float(self, title: str, value: float) -> float:
        try:
            return float(value)
        except OverflowError:
            raise self.fail(title, "a number that fits into 64 bits", value) from None

    def record(self, key: str, default: D = _MISSING) -> Record | D:
        """A nested object."""
        value = self.raw(key, default)
        return default if key not in self._data else Record(value, f"{self.where}: {key}")

    def records(self, key: str, default: Sequence[object] = _MISSING) -> list[Record]:
        """A list of nested objects."""
        return [Record(item, f"{self.where}: {key}[{k}]") for k, item in enumerate(self.array(key, default))]

    def close(self) -> None:
        """Refuse the fields that were not read."""
        for key in self._data:
            if key not in self._read:
                hint = suggestion(key, self._read - set(self._data)) or f"known are {', '.join(sorted(self._read))}"
                raise InputError(f"{self.where}: field {key!r} is unknown; {hint}")

    def fail(self, key: str, rule: str, value: object, hint: str = "") -> InputError:
        """The error for a field that breaks a rule that only the caller can know."""
        tail = f"; {hint}" if hint else ""
        return InputError(f"{self.where}: {key}: must be {rule}, got {_shown(value)}{tail}")


def _whole_rule(minimum: int, maximum: int | None) -> str:
    if minimum == maximum:
        return str(minimum)
    return f"a whole number >= {minimum}" if maximum is None else f"a whole number in {minimum}..{maximum}"


def _format_hint(value: object, name: str) -> str:
    """What a file of another format is for, or how to bring one of the project's former name up to date."""
    if not isinstance(value, str):
        return ""
    if value in _TAKEN_BY:
        return f"this is {_TAKEN_BY[value]}"
    former = value.partition(".")[2] == name.partition(".")[2]
    return f"the project was renamed: write {name!r} as the file's format" if former else ""


def is_number(name: str) -> bool:
    """Whether a field's name is a whole number that fits into 64 bits, such as that of a rank or node."""
    return name.isascii() and name.isdigit() and len(name) <= _MOST_DIGITS


def check_known(title: str, value: object, known: Collection[str]) -> None:
    """Raise `InputError` unless a value is one of the known names; it lists them, and says which may be meant."""
    if value not in known:
        hint = suggestion(value, known) if isinstance(value, str) else ""
        raise InputError(f"{title}: must be one of {', '.join(known)}, got {value!r}" + (f"; {hint}" if hint else ""))


def suggestion(value: str, known: Collection[str]) -> str:
    """`did you mean 'links'?`, or nothing where no known name is close."""
    close = difflib.get_close_matches(value, sorted(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def load_record(path: str | Path, most_bytes: int | None = None) -> Record:
    """The JSON object in a file, plain or gzipped. Raises `InputError` for one that is missing, unreadable or no JSON
    object. `most_bytes`: as in `load_text`.
    """
    return parse_record(load_text(path, most_bytes), str(path), most_bytes)


def parse_record(text: str, where: str, most_bytes: int | None = None) -> Record:
    """The JSON object in a text, as `parse_json` reads it."""
    return Record(parse_json(text, where, most_bytes), where)


def _kind_of(text: str) -> str:
    """What a text is that isn't JSON, and what takes it; empty where it's none of the kinds that people try."""
    start = re.sub(r"\x1b\[[0-9;]*m|<[?!][^>]*>", "", text[:_START]).lstrip()
    for opening, kind in _OTHER_KINDS.items():
        if start.startswith(opening):
            return f"; this is {kind}"
    return ""


def parse_json(text: str, where: str, most_bytes: int | None = None) -> object:
    """The value in a text; `//` comments are allowed, NaN, Infinity and repeated fields are not."""
    if text.startswith("\ufeff"):
        raise InputError(f"{where}: must not start with a byte order mark; save it as UTF-8 without one")
    if most_bytes is None:
        Limits.of(where, len(text)).check_held("what it holds", _held_bytes(text))
    try:
        data = json.loads(
            _without_comments(text), parse_constant=lambda name: _no_constant(name, where),
            object_pairs_hook=lambda pairs: _no_repeats(pairs, where),
        )  # fmt: skip
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}{_kind_of(text)}"
        ) from None
    except RecursionError:
        raise InputError(f"{where}: not readable: nested too deeply") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: not readable: {error}") from None
    _check_values(data, where)
    if _ESCAPED_SURROGATE.search(text):
        _check_unicode(data, where)
    return data


def _held_bytes(text: str) -> int:
    """The most that the values of a text can take in memory, with the text itself."""
    lists, objects, keys, quotes = (text.count(mark) for mark in '[{:"')
    numbers = len(text) - text.count(" ") - quotes - 2 * (lists + objects)
    strings = max(0, quotes // 2 - keys)
    held = _LIST_BYTES * lists + _OBJECT_BYTES * objects + _KEY_BYTES * keys + _STRING_BYTES * strings
    return sys.getsizeof(text) + held + math.ceil(_NUMBER_BYTES * numbers)


def _check_values(data: object, where: str) -> None:
    """Refuse lists and objects that are nested deeper than any format's, and infinite numbers in lists."""
    level = [data]
    for _ in range(_MOST_DEPTH):
        inner: list[object] = []
        for value in level:
            if isinstance(value, list):
                kinds = set(map(type, value))
                if float in kinds and (math.inf in value or -math.inf in value):
                    raise InputError(f"{where}: numbers must be finite, got one too large for 64 bits")
                if not kinds & {list, dict}:
                    continue
            elif isinstance(value, dict):
                value = value.values()
            else:
                continue
            inner += [each for each in value if isinstance(each, list | dict)]
        if not inner:
            return
        level = inner
    raise InputError(f"{where}: not readable: nested too deeply")


def _check_unicode(data: object, where: str) -> None:
    """Refuse half a surrogate pair, which JSON can write with an escape and no file or terminal can hold."""
    try:
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise InputError(f"{where}: texts must be Unicode, got {half}, half a surrogate pair") from None


def _no_constant(name: str, where: str) -> NoReturn:
    raise InputError(f"{where}: numbers must be finite, got {name}")


def _no_repeats(pairs: list[tuple[str, object]], where: str) -> dict[str, object]:
    data: dict[str, object] = {}
    for key, value in pairs:
        if key in data:
            raise InputError(f"{where}: field {key!r} stands twice in one object")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{where}: {key}: numbers must be finite, got one too large for 64 bits")
        data[key] = value
    return data


def _without_comments(text: str) -> str:
    """Leave out `// ...` to the end of the line, outside strings, keeping line numbers."""
    if "//" not in text:
        return text
    kept, end = io.StringIO(), 0
    for found in _STRING_OR_COMMENT.finditer(text):
        if text[found.start()] == "/":
            kept.write(text[end : found.start()])
            end = found.end()
    kept.write(text[end:])
    return kept.getvalue()


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
