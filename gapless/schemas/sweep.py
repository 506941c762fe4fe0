"""The schema of sweep files, completed from the fields of the systems that are there."""

from __future__ import annotations

import math
from typing import Any

from gapless.question.fields import Choice, Field, Flag, Number, Scaled, Size, SizeOrShare, Whole

__all__ = ["completed", "field_schema"]


def completed(frame: dict[str, Any]) -> dict[str, Any]:
    """The frame with what each system's instances may have."""
    from gapless.sweeps.sweep_file import sweep_fields
    from gapless.system import system_names

    items = frame["properties"]["grid"]["items"]
    items["properties"]["system"] = {"enum": list(system_names())}
    items["allOf"] = [
        {"if": {"properties": {"system": {"const": name}}}, "then": {"$ref": f"#/$defs/{name}"}}
        for name in system_names()
    ]
    for name in system_names():
        fields = sweep_fields(name)
        required = [field.name for field in fields.values() if field.is_required]
        frame["$defs"][name] = {
            "additionalProperties": False,
            "required": ["system", *required],
            "properties": {"system": {"const": name}} | {key: field_schema(field) for key, field in fields.items()},
        }
    return frame


def field_schema(field: Field) -> dict[str, object]:
    """What a field may hold in a file: a value, or a list of at least one."""
    kind = field.kind
    if isinstance(kind, Whole):
        return _or_list({"type": "integer", "minimum": kind.minimum, "maximum": kind.maximum})
    if isinstance(kind, Number):
        limit = {"exclusiveMinimum" if kind.strict else "minimum": kind.minimum}
        return _or_list({"type": "number", **(limit if math.isfinite(kind.minimum) else {})})
    if isinstance(kind, Choice):
        return _or_list({"enum": list(kind.choices)})
    if isinstance(kind, Flag):
        return _or_list({"type": "boolean"})
    return {"$ref": "#/$defs/amounts" if isinstance(kind, Scaled | Size | SizeOrShare) else "#/$defs/texts"}


def _or_list(value: dict[str, object]) -> dict[str, object]:
    return {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}]}
