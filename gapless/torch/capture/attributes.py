"""Plain attributes of modules: the numbers, texts, flags and functions that are traced into a step as constants.

Needs the extra `torch`.
"""

from __future__ import annotations

import types
from typing import Any

from gapless.torch.library import torch

__all__ = ["ABSENT", "plain_attributes", "same", "shown"]

ABSENT: Any = object()
"""In the place of an attribute that isn't there, or isn't plain."""

_PLAIN = (
    int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size,
    types.FunctionType, types.BuiltinFunctionType, type,
)  # fmt: skip
_MOST_ENTRIES = 1000
"""Lists and mappings with more are data that a forward pass looks up, not settings."""
_MOST_SHOWN = 60
_OWN = frozenset({*vars(torch.nn.Module()), "_is_torch_compile"})
"""What every module has, and the mark that `torch.compile` leaves on a module that it is given."""


def plain_attributes(module: Any) -> dict[str, Any]:
    """A module's own attributes that are plain, or short lists, tuples and mappings of plain values, by name."""
    found = {name: _copied(value) for name, value in vars(module).items() if name not in _OWN}
    return {name: value for name, value in found.items() if value is not ABSENT}


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are: of one type and equal, or neither a number."""
    return one is other or (type(one) is type(other) and (one == other or (one != one and other != other)))


def shown(value: Any) -> str:
    """A plain value for people."""
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _copied(value: Any) -> Any:
    """A plain value; copied where it may change in place."""
    if isinstance(value, _PLAIN):
        return value
    if type(value) not in (tuple, list, dict) or len(value) > _MOST_ENTRIES:
        return ABSENT
    if isinstance(value, dict):
        pairs = {key: _copied(part) for key, part in value.items()}
        return pairs if all(isinstance(key, _PLAIN) and part is not ABSENT for key, part in pairs.items()) else ABSENT
    parts = [_copied(part) for part in value]
    return ABSENT if any(part is ABSENT for part in parts) else type(value)(parts)
