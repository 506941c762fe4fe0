"""The names of compressors, as people and files write them: `plain`, `fp16`, `topk:0.01`, `powersgd:4`, ...

    NAME or NAME:SETTING, then :OPTION=NUMBER where there are options; dashes don't matter

Other spellings are aliases: `plain` of `none`, `float16` of `fp16`, `rank 4` of `powersgd:4`, `top 1%` of `topk:0.01`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
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
    """All as they are sent, with the setting that each has unless one is given."""
    kinds = _kinds().values()
    return [kind.name if kind.setting is None else f"{kind.name}:{kind.setting.default:g}" for kind in kinds]


@cache
def named_compressor(name: str | Compressor) -> Compressor:
    """A published compressor by name, `powersgd:8` of another rank than 4, `topk:0.001` of another share than 0.01.

    One that isn't a name is itself. Raises `InputError` for an unknown name, and for a setting that saves nothing.
    """
    if isinstance(name, Compressor):
        return name
    found = _parsed(name, "compressor")
    return found.kind.priced(found.setting, found.name)


@cache
def method_of(mode: str) -> Method:
    """How a compressor is sent, by its name. Raises `InputError` for an unknown one."""
    found = _parsed(mode, "mode")
    return found.kind.method(found.setting, **dict(found.options))


def sent_bytes(mode: str, shape: Sequence[int]) -> int:
    """What a rank sends of a tensor of this shape in this mode, in single precision, by itself."""
    return method_of(mode).sent_bytes(shape)


def known_as(name: str, names: Collection[str]) -> str:
    """How a compressor is written among some names; the name itself where none of them is that compressor."""
    if name in names or _meaning(name) is None:
        return name
    return next((other for other in names if _meaning(other) == _meaning(name)), name)


@cache
def _meaning(text: str) -> tuple[str, float, frozenset[tuple[str, float]]] | None:
    """The compressor of a name, its setting and options; None where it is no compressor's."""
    try:
        found = _parsed(text, "mode")
    except InputError:
        return None
    defaults = {name: option.default for name, option in found.kind.options.items()}
    return found.kind.name, found.setting, frozenset({**defaults, **dict(found.options)}.items())


@dataclass(frozen=True)
class _Parsed:
    """A compressor, its setting (0 where it has none), whether that is given, and the options that are."""

    kind: Kind
    setting: float
    is_given: bool = False
    options: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """As it is written, with all that is given."""
        given = [f"{self.setting:g}"] if self.is_given else []
        return ":".join([self.kind.name, *given, *(f"{name}={number:.12g}" for name, number in self.options)])


def _parsed(text: str, where: str) -> _Parsed:
    for other in _kinds().values():
        for pattern, divisor in other.also:
            if match := re.fullmatch(pattern, text, re.ASCII):
                return _Parsed(other, _setting(other, match[1], divisor, text, where), True)
    whole, *parts = re.split(r":(?=[a-z]+=)", text)
    name, colon, number = whole.partition(":")
    kind = _by_spelling().get(name.replace("-", ""))
    if kind is None or (colon and kind.setting is None):
        hint = suggestion(text, compressor_names())
        rule = f"{where}: must be one of {', '.join(compressor_names())}, got {text!r}"
        raise InputError(rule + (f"; {hint}" if hint else ""))
    options = _options(kind, parts, text, where)
    if not colon:
        return _Parsed(kind, 0.0 if kind.setting is None else kind.setting.default, False, options)
    return _Parsed(kind, _setting(kind, number, 1, text, where), True, options)


def _options(kind: Kind, parts: Sequence[str], whole: str, where: str) -> tuple[tuple[str, float], ...]:
    """By name, in the order in which they are declared."""
    found = dict[str, float]()
    for part in parts:
        name, _, number = part.partition("=")
        option = kind.options.get(name)
        if option is None or name in found:
            said = f"options of {kind.name}, once each: {', '.join(kind.options) or 'none'}"
            raise InputError(f"{where}: must have {said}; got {whole!r}")
        read = option.read(number)
        if read is None:
            raise InputError(f"{where}: {option.rule}, got {whole!r}")
        found[name] = read
    return tuple((name, found[name]) for name in kind.options if name in found)


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
