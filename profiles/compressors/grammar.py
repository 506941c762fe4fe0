"""The names of compressors, as people and files write them: `plain`, `fp16`, `topk:0.01`, `powersgd:4`, ...

    NAME or NAME:SETTING; dashes don't matter

Other spellings are aliases: `plain` of `none`, `float16` of `fp16`, `rank 4` of `powersgd:4`, `top 1%` of `topk:0.01`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.profiles import compressors
from gapless.profiles.compressors.compressor import Compressor, Kind
from gapless.profiles.compressors.method import Method

__all__ = ["compressor_names", "known_as", "method_of", "named_compressor", "sent_bytes", "sent_names"]


@cache
def _kinds() -> dict[str, Kind]:
    """By name, in the order of the files: every compressor that a file of this folder has."""
    modules = [import_module(f"{compressors.__name__}.{each.name}") for each in iter_modules(compressors.__path__)]
    return {kind.name: kind for module in modules for kind in getattr(module, "KINDS", ())}


def compressor_names() -> list[str]:
    """The compressors that gapless knows, `none` first."""
    return list(_kinds())


def sent_names() -> list[str]:
    """Those that can be sent, with the setting that each has unless one is given."""
    kinds = [kind for kind in _kinds().values() if kind.method is not None]
    return [kind.name if kind.setting is None else f"{kind.name}:{kind.setting.default:g}" for kind in kinds]


@cache
def named_compressor(name: str | Compressor) -> Compressor:
    """A published compressor by name, `powersgd:8` of another rank than 4, `topk:0.001` of another share than 0.01.

    One that isn't a name is itself. Raises `InputError` for an unknown name, and for a setting that saves nothing.
    """
    if isinstance(name, Compressor):
        return name
    kind, setting, is_given = _parsed(name, "compressor")
    return kind.priced(setting, f"{kind.name}:{setting:g}" if is_given else kind.name)


@cache
def method_of(mode: str) -> Method:
    """How a compressor is sent, by its name. Raises `InputError` for an unknown one, and one that nobody sends."""
    kind, setting, _ = _parsed(mode, "mode")
    if kind.method is None:
        rule = f"mode: {kind.name} has published costs, but nothing here sends it"
        raise InputError(f"{rule}; take one of {', '.join(sent_names())}, got {mode!r}")
    return kind.method(setting)


def sent_bytes(mode: str, shape: Sequence[int]) -> int:
    """What a rank sends of a tensor of this shape in this mode, in single precision, by itself."""
    return method_of(mode).sent_bytes(shape)


def known_as(name: str, names: Collection[str]) -> str:
    """How a compressor is written among some names; the name itself where none of them is that compressor."""
    if name in names or _meaning(name) is None:
        return name
    return next((other for other in names if _meaning(other) == _meaning(name)), name)


@cache
def _meaning(text: str) -> tuple[str, float] | None:
    """The compressor of a name and its setting; None where it is no compressor's."""
    try:
        kind, setting, _ = _parsed(text, "mode")
    except InputError:
        return None
    return kind.name, setting


def _parsed(text: str, where: str) -> tuple[Kind, float, bool]:
    """The compressor of a name, its setting (0 where it has none), and whether it is given."""
    for other in _kinds().values():
        for pattern, divisor in other.also:
            if match := re.fullmatch(pattern, text, re.ASCII):
                return other, _setting(other, match[1], divisor, text, where), True
    name, colon, number = text.partition(":")
    kind = _by_spelling().get(name.replace("-", ""))
    if kind is None or (colon and kind.setting is None):
        hint = suggestion(text, compressor_names())
        rule = f"{where}: must be one of {', '.join(compressor_names())}, got {text!r}"
        raise InputError(rule + (f"; {hint}" if hint else ""))
    if not colon:
        return kind, 0.0 if kind.setting is None else kind.setting.default, False
    return kind, _setting(kind, number, 1, text, where), True


@cache
def _by_spelling() -> dict[str, Kind]:
    """By name or alias, without dashes."""
    return {name.replace("-", ""): kind for kind in _kinds().values() for name in (kind.name, *kind.aliases)}


def _setting(kind: Kind, text: str, divisor: int, whole: str, where: str) -> float:
    assert kind.setting is not None
    number = kind.setting.read(text if divisor == 1 else repr(float(text) / divisor))
    if number is None:
        raise InputError(f"{where}: {kind.setting.rule}, got {whole!r}")
    return number
