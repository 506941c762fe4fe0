"""System: one published system, as the rest of gapless sees it; and the registry, which finds them.

A folder `encodings/<name>` with a `system.py` is one; nothing else names it. Other packages add theirs by an entry
point of the group `gapless.systems` that names a `System`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.schedule import Schedule
from gapless.solution import Solution

__all__ = ["ENTRY_POINTS", "Plan", "Problem", "System", "find_system", "register", "system_names"]

ENTRY_POINTS = "gapless.systems"
"""The group of entry points by which other packages add systems."""


@dataclass(frozen=True)
class Plan:
    """What an encoding claims: a schedule (None if it found none), the solver's words on it, and details by name.

    `timings`: seconds by stage, which differ from run to run and so stand apart from the details. `product`: what the
    schedule was made from, for an encoding that has files of its own. `problem`: what the schedule solves, where the
    encoding had to choose that as well.
    """

    solution: Solution
    schedule: Schedule | None
    details: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    product: Any = None
    problem: Problem | None = None


class Problem(Protocol):
    """A scheduling problem; `gapless.encodings.<system>.Problem` are its kinds."""

    @property
    def system(self) -> str:
        """The name of its system."""

    @property
    def description(self) -> dict[str, Any]:
        """What was asked, in plain values, for the plan file."""

    @property
    def default_options(self) -> SolveOptions:
        """The options for a caller who gives none."""


@dataclass(frozen=True)
class System:
    """What the commands, the sweeps and the pages ask of a system.

    `plan`: solves a problem under the options, with the system's parameters (None: its defaults).
    """

    name: str
    plan: Callable[[Any, SolveOptions, Any], Plan]


_REGISTERED: dict[str, System] = {}
"""What this process has added by itself."""


def register(system: System) -> None:
    """Add a system for this process only, as a notebook does; a package names its own by an entry point."""
    if system.name in system_names():
        raise InputError(f"system: {system.name!r} is there already")
    _REGISTERED[system.name] = system


def system_names() -> tuple[str, ...]:
    """The systems that are there, sorted."""
    return tuple(sorted({*_shipped(), *_elsewhere(), *_REGISTERED}))


def find_system(name: str) -> System:
    """The system of this name. Raises `InputError` where there is none."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _shipped():
        found = import_module(f"gapless.encodings.{name}.system").SYSTEM
    elif name in _elsewhere():
        found = _elsewhere()[name].load()
    else:
        from gapless.io.record import suggestion

        hint = suggestion(name, system_names())
        rule = f"system: must be one of {', '.join(system_names())}, got {name!r}"
        raise InputError(f"{rule}; {hint}" if hint else rule)
    assert isinstance(found, System)
    return found


@cache
def _shipped() -> tuple[str, ...]:
    """The folders below `encodings`."""
    from gapless import encodings

    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(encodings.__path__) if entry.ispkg))


@cache
def _elsewhere() -> dict[str, EntryPoint]:
    """The entry points of other packages, by name."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
