"""JSON schemas (draft 2020-12) of the files that gapless reads and writes, one a format; docs/formats.md lists them.

A schema says what a file's structure must be: fields, types, limits. What binds fields together (columns of one length,
numbers that name what exists) is the reader's to say, in words. A number such as 3.0 is a whole number to a schema and
none to a reader. The schema of sweep files is completed from the fields of the systems that are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.schemas.sweep import completed

if TYPE_CHECKING:  # not there in Python 3.10
    from importlib.resources.abc import Traversable

__all__ = ["load_schema", "schema_files", "schema_names"]


def schema_files() -> dict[str, Traversable]:
    """The file of each format's schema, by name: those of gapless, and those of the systems."""
    return {entry.name[:-5]: entry for entry in sorted(_entries(), key=lambda entry: entry.name)}


def _entries() -> Iterator[Traversable]:
    from gapless.system import find_system, system_names

    packages = filter(None, (find_system(name).package for name in system_names()))
    for folder in (files("gapless.schemas"), *(files(package) / "schemas" for package in packages)):
        if folder.is_dir():
            yield from (entry for entry in folder.iterdir() if entry.name.endswith(".json"))


def schema_names() -> list[str]:
    """The formats that have a schema, by name."""
    return sorted(schema_files())


def load_schema(name: str) -> dict[str, Any]:
    """The schema of a format, for any validator. Raises `InputError` for an unknown name."""
    if name not in schema_files():
        raise InputError(f"schema: must be one of {', '.join(schema_names())}, got {name!r}")
    schema: dict[str, Any] = json.loads(schema_files()[name].read_text(encoding="utf-8"))
    return completed(schema) if name == "sweep" else schema
