"""Entry: a system asked from Python in the words of the command line; `gapless.<system>` is one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from gapless.errors import InputError, must_be
from gapless.options import SolveOptions
from gapless.question.fields import SOLVING, read_values
from gapless.question.parameters import parameters_of
from gapless.question.stubs import signature_of
from gapless.recipe import solve
from gapless.result import Result
from gapless.system import Problem, System, find_system

__all__ = ["Entry", "entry", "options_on_top", "solve_options"]


class Entry:
    """A system's questions and their answers.

    `problem` takes the fields of `gapless solve SYSTEM` by name, the first one also by place: texts as people type
    them, numbers in seconds and bytes, or the objects that stand for them. `solve` takes the options of solving
    besides: `time_limit`, `gap`, `threads`, `seed`, `solver`, `parameters`, and `on_progress`.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        for name, solves in (("problem", False), ("solve", True)):  # what help() and notebooks show
            setattr(self, name, _signed(getattr(self, name), signature_of(system.question, solves)))

    def __repr__(self) -> str:
        return f"gapless.{self.system.name}"

    def __dir__(self) -> list[str]:
        return ["parameters", "problem", "solve", "system"]

    def problem(self, *first: object, **values: object) -> Any:
        """The question alone. Raises `InputError` naming the argument that is unknown, missing or wrong."""
        name = self.system.fields[0].name
        if len(first) > 1 or (first and name in values):
            raise InputError(f"{name}: may stand first, and everything else goes by name; got {first!r}")
        return self.system.ask({**({name: first[0]} if first else {}), **values})

    def solve(self, *first: object, **values: object) -> Result:
        """The plan, replayed. Raises `InputError` as `problem` does."""
        known = {field.name for field in SOLVING} | {"on_progress"}
        how = {name: values.pop(name) for name in sorted(known & set(values))}
        problem = self.problem(*first, **values)
        options = solve_options(problem, {name: value for name, value in how.items() if name != "parameters"})
        return solve(problem, options, self.parameters(how.get("parameters")))

    def parameters(self, given: object = None) -> Any:
        """The parameters of the system's searches: its defaults, or those in a mapping or a TOML file."""
        kind = self.system.parameters
        if kind is not None:
            return parameters_of(kind(), given)
        if given is not None:
            raise InputError(f"parameters: {self.system.name} has none")
        return None


def _signed(call: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    """A function that says what it takes."""

    @wraps(call)
    def signed(*first: object, **values: object) -> Any:
        return call(*first, **values)

    signed.__signature__ = signature  # type: ignore[attr-defined]
    return signed


def entry(name: str) -> Entry:
    """The entry of a system. Raises `InputError` where there is none of this name."""
    return Entry(find_system(name))


def solve_options(problem: Problem, how: Mapping[str, Any]) -> SolveOptions:
    """The options on top of a problem's defaults, and `on_progress`; refuses a solver that isn't known."""
    on_progress = how.get("on_progress")
    must_be("on_progress", on_progress is None or callable(on_progress), "a function or None", on_progress)
    default = replace(problem.default_options, on_progress=on_progress)
    return options_on_top(default, {name: value for name, value in how.items() if name != "on_progress"})


def options_on_top(default: SolveOptions, how: Mapping[str, object]) -> SolveOptions:
    """The options with what is said of solving, by the names of its fields."""
    from gapless.solvers.registry import find_backend

    found = read_values(SOLVING, how, "solve")
    if found.get("solver") is not None:
        find_backend(found["solver"])
    if "time_limit" in found:
        found["time_limit_s"] = found.pop("time_limit")
    return replace(default, **found)
