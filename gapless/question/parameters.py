"""Parameters: what a person may tune of a system's searches, as frozen dataclasses, from TOML too.

A system's class of parameters has plain fields (numbers, texts, tuples of them) and other such classes; each field's
docstring says what it does and why its default is what it is.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.io.text_file import load_toml

__all__ = ["check_least", "parameter_rows", "parameters_from", "parameters_of", "read_parameters", "with_work"]

T = TypeVar("T")


def parameters_of(kind: type[T], given: object) -> T:
    """The parameters that somebody gave: None for the defaults, an object, a mapping, or the path of a TOML file.

    Raises `InputError` naming the field that is unknown or of the wrong type.
    """
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    if isinstance(given, Mapping):
        return parameters_from(kind, given, "parameters")
    if isinstance(given, str | Path):
        return read_parameters(kind, given)
    raise InputError(f"parameters: must be {kind.__module__}.{kind.__name__}, a mapping or a path, got {given!r}")


def read_parameters(kind: type[T], path: str | Path) -> T:
    """The parameters in a TOML file; what it leaves out keeps its default."""
    return parameters_from(kind, load_toml(path), str(path))


def parameters_from(kind: type[T], values: Mapping[str, object], where: str) -> T:
    """The parameters in a mapping, tables as mappings in it; `where` opens every message."""
    hints, names = get_type_hints(kind), [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    found = {}
    for name, value in values.items():
        if name not in names:
            hint = suggestion(name, names) or f"known are {', '.join(names)}"
            raise InputError(f"{where}: {name!r} is no parameter; {hint}")
        found[name] = _value(hints[name], value, f"{where}: {name}")
    try:
        return kind(**found)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: must be a table, got {value!r}")
        return parameters_from(hint, value, where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where}: must be a list, got {value!r}")
        return tuple(_value(get_args(hint)[0], entry, where) for entry in value)
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(option for option in get_args(hint) if option is not type(None))
        return None if value is None else _value(hint, value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
        raise InputError(f"{where}: must be {words.get(hint, hint)}, got {value!r}")
    return value


def check_least(parameters: object, **least: int) -> None:
    """Raise `InputError` for whole numbers below 1, or what `least` says; of several the least counts."""
    for name, value in vars(parameters).items():
        number, limit = min(value) if isinstance(value, tuple) else value, least.get(name, 1)
        if isinstance(number, int) and number < limit:
            raise InputError(f"{name}: must be >= {limit}, got {number}")


def with_work(parameters: T, counted: Iterable[str], share: float) -> T:
    """The parameters with a share of the work, at least 1 of each kind.

    `counted`: the whole numbers that count work, by name; those of a part as `part.name`.
    """
    changed: dict[str, object] = {}
    for name in counted:
        part, _, inner = name.partition(".")
        if inner:
            changed[part] = with_work(changed.get(part, getattr(parameters, part)), (inner,), share)
        else:
            changed[name] = max(1, int(share * getattr(parameters, name)))
    return dataclasses.replace(parameters, **changed)  # type: ignore[type-var]


def parameter_rows(kind: type, prefix: str = "") -> list[dict[str, str]]:
    """A row for each parameter: its name as TOML has it (`table.name`), its default, and what it does."""
    default, sentences = kind(), _sentences(kind)
    rows = []
    for field in dataclasses.fields(kind):
        value = getattr(default, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            rows += parameter_rows(type(value), f"{prefix}{field.name}.")
        else:
            rows.append({"name": f"{prefix}{field.name}", "default": str(value), "what": sentences.get(field.name, "")})
    return rows


def _sentences(kind: type) -> dict[str, str]:
    """The text below each field of a class, in one line."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in itertools.pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found
