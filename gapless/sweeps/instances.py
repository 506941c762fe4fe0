"""Instances: what is solved in one go, and the hash that names its result."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from gapless import __version__
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.question.entry import Entry, solve_options
from gapless.question.fields import SOLVING, Field, Flag, read_fields
from gapless.question.recorded import file_digest
from gapless.report.short_repr import Brief
from gapless.sweeps.sweep_file import Grid, Value, read_sweep_file, sweep_fields
from gapless.system import Problem, find_system

__all__ = ["Instance", "read_instances"]

_MOST_INSTANCES = 100_000
_HASH_DIGITS = 16


@dataclass(frozen=True, repr=False)
class Instance(Brief):
    """A problem with its options, as `gapless solve SYSTEM` takes them.

    `values`: the fields that the file gives. `swept`: those of them that vary. `files`: the SHA-256 of each file that a
    field names. `hash`: of all fields, those files, and gapless's version. `where` opens messages.
    """

    system: str
    values: Mapping[str, Value]
    swept: tuple[str, ...]
    files: Mapping[str, str]
    hash: str
    where: str

    @property
    def title(self) -> str:
        """What people call it: the fields that vary."""
        return " ".join([self.system, *(f"{name}={self.values[name]}" for name in self.swept)])

    @property
    def problem(self) -> Problem:
        """The question."""
        problem: Problem = find_system(self.system).ask(self._of_question())
        return problem

    @property
    def options(self) -> SolveOptions:
        """How it is to be solved."""
        return solve_options(self.problem, {name: self.values[name] for name in self._of_solving()})

    @property
    def parameters(self) -> Any:
        """The parameters of the searches."""
        return Entry(find_system(self.system)).parameters(self.values.get("parameters"))

    @property
    def command(self) -> str:
        """The command that asks the same."""
        known = sweep_fields(self.system)
        words = [_word(known[name], value) for name, value in self.values.items()]
        return shlex.join(["gapless", "solve", self.system, *(part for word in words for part in word)])

    def _of_question(self) -> dict[str, Value]:
        names = {field.name for field in find_system(self.system).fields}
        return {name: value for name, value in self.values.items() if name in names}

    def _of_solving(self) -> list[str]:
        return [field.name for field in SOLVING if field.name in self.values and field.name != "parameters"]

    def check(self) -> float | None:
        """Raise `InputError` for what can be known to be wrong before it is solved; returns the time limit."""
        try:
            options, _ = self.options, self.parameters  # both refuse what makes no sense
            return options.time_limit_s
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from None

    def check_files(self) -> None:
        """Raise `InputError` if a file has changed since the sweep began: the result would bear the wrong name."""
        if _digests(self.system, self.values) != self.files:
            raise InputError(f"{self.where}: a file that it names has changed since the sweep began; start it again")


def read_instances(path: str | Path) -> list[Instance]:
    """The instances of a sweep file, in its order; of two that are the same in content, the first.

    Raises `InputError` naming file, field, rule and value.
    """
    grids = read_sweep_file(path)
    count = sum(grid.count for grid in grids)
    if count > _MOST_INSTANCES:
        raise InputError(f"{path}: must be at most {_MOST_INSTANCES} instances, got {count}; split the file")
    known: dict[str, str] = {}
    found: dict[str, Instance] = {}
    for grid in grids:
        for instance in _expanded(grid, known):
            found.setdefault(instance.hash, instance)
    return list(found.values())


def _expanded(grid: Grid, known: dict[str, str]) -> Iterator[Instance]:
    """Every combination. `known`: the digests of files that were read before."""
    for combination in product(*grid.values.values()):
        values = dict(zip(grid.values, combination, strict=True))
        swept = ", ".join(f"{name}={values[name]}" for name in grid.swept if name in values)
        where = f"{grid.where} ({swept})" if swept else grid.where
        try:
            asked = read_fields(tuple(sweep_fields(grid.system).values()), values, grid.system)
        except InputError as error:
            raise InputError(f"{grid.where}: {error}") from None
        files = _digests(grid.system, values, known)
        content = {
            "version": __version__,
            "system": grid.system,
            "files": files,
            "fields": asked,
        }
        text = json.dumps(content, sort_keys=True, default=vars)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
        yield Instance(grid.system, values, grid.swept, files, digest, where)


def _word(field: Field, value: Value) -> list[str]:
    """A value as words of the command line."""
    if isinstance(field.kind, Flag):
        return [] if value is bool(field.default) else [field.option]
    return [f"{field.option}={value}"] if str(value).startswith("-") else [field.option, str(value)]


def _digests(system: str, values: Mapping[str, Value], known: dict[str, str] | None = None) -> dict[str, str]:
    """The digests of the files that fields name, by field; all other names are of what is shipped."""
    known = {} if known is None else known
    found = {}
    for name, value in values.items():
        path = str(value)
        if sweep_fields(system)[name].may_be_file and os.path.isfile(path):
            if path not in known:
                known[path] = file_digest(path)
            found[name] = known[path]
    return found
