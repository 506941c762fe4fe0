"""JSON schemas (draft 2020-12) of the files that gapless reads and writes, one a format; docs/formats.md lists them.

A schema says what a file's structure must be: fields, types, limits. What binds fields together (columns of one length,
numbers that name what exists) is the reader's to say, in words. A number such as 3.0 is a whole number to a schema and
none to a reader.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from gapless.errors import InputError

__all__ = ["load_schema", "schema_names"]


def schema_names() -> list[str]:
    """The formats that have a schema, by name."""
    return sorted(entry.name[:-5] for entry in files("gapless.schemas").iterdir() if entry.name.endswith(".json"))


def load_schema(name: str) -> dict[str, Any]:
    """The schema of a format, for any validator. Raises `InputError` for an unknown name."""
    if name not in schema_names():
        raise InputError(f"schema: must be one of {', '.join(schema_names())}, got {name!r}")
    schema: dict[str, Any] = json.loads((files("gapless.schemas") / f"{name}.json").read_text(encoding="utf-8"))
    return schema
