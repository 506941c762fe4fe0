"""The doctor: what is installed here, which solvers work, alone and together; the text for a bug report."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata

import numpy as np

from gapless.errors import GaplessError, InputError
from gapless.installation.extras import EXTRAS, distribution_version, install_line, library_versions
from gapless.options import SolveOptions, available_cores
from gapless.question.fields import Field
from gapless.solvers.registry import BackendInfo
from gapless.system import Problem, System, find_system, system_names
from gapless.units import format_seconds

__all__ = [
    "Examination",
    "Extra",
    "Finding",
    "declared_extras",
    "examine",
    "extras_for",
    "extras_needed",
    "self_test",
    "try_solver",
]

_MOST_S = 120.0
"""Time for the self test in its own process, imports on a cold disk included; it takes about two seconds."""
_SOLVE_S = 15.0
"""Time limit of each solve of the self test: they take far less, but a busy machine is not a broken one."""


@dataclass(frozen=True)
class Extra:
    """An optional part: the distributions that it needs with their versions here, None where one is missing."""

    name: str
    needs: dict[str, str | None]

    @property
    def is_complete(self) -> bool:
        """Whether all that it needs is installed; of which version is not looked at."""
        return None not in self.needs.values()


@dataclass(frozen=True)
class Finding:
    """The outcome of one test."""

    name: str
    is_good: bool
    text: str


@dataclass(frozen=True)
class Examination:
    """All that a bug report should say of a machine."""

    versions: dict[str, str | None]
    python: str
    system: str
    cores: int
    cores_of_machine: int
    solvers: tuple[BackendInfo, ...]
    extras: tuple[Extra, ...]
    tests: tuple[Finding, ...]
    wall_s: float

    @property
    def is_healthy(self) -> bool:
        """Whether every test passed."""
        return all(finding.is_good for finding in self.tests)

    @property
    def data(self) -> dict[str, object]:
        """In plain values, for JSON."""
        extras = {extra.name: {"complete": extra.is_complete, "needs": extra.needs} for extra in self.extras}
        return {**asdict(self), "extras": extras, "healthy": self.is_healthy}


def examine() -> Examination:
    """Look at this machine and run the self test in a process of its own, so that a crash there is a finding too."""
    from gapless.solvers.registry import backends

    begin_s = time.monotonic()
    solvers = tuple(backends(look_inside=True))
    return Examination(
        versions=library_versions(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cores=available_cores(),
        cores_of_machine=os.cpu_count() or 1,
        solvers=solvers,
        extras=declared_extras(),
        tests=tuple(_tested_elsewhere()),
        wall_s=time.monotonic() - begin_s,
    )


def declared_extras() -> tuple[Extra, ...]:
    """The extras as the installed package declares them; none for a checkout that is not installed."""
    try:
        required = metadata.requires("gapless") or []
    except metadata.PackageNotFoundError:
        return ()
    extras: dict[str, dict[str, str | None]] = {}
    for line in required:
        needed, _, condition = line.partition(";")
        name = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", condition)
        distribution = re.match(r"\s*([A-Za-z0-9._-]+)", needed)
        if name and distribution and _applies(condition):
            extras.setdefault(name.group(1), {})[distribution.group(1)] = distribution_version(distribution.group(1))
    return tuple(Extra(name, needs) for name, needs in sorted(extras.items()))


def extras_needed(command: str) -> tuple[Extra, ...]:
    """The extras that a command needs, as one types it, with what is here of them.

    Raises `InputError` for a command whose quotation marks aren't in pairs, and in a checkout that is not installed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--for: must be a command as one types it, got {command!r}: {error}") from None
    names = extras_for(words[1:] if words[:1] == ["gapless"] else words)
    declared = {extra.name: extra for extra in declared_extras()}
    if names and not declared:
        raise InputError(f"--for: gapless is not installed, which would say what is here; {install_line(names[0])}")
    return tuple(declared[name] for name in names if name in declared)


def extras_for(words: Sequence[str]) -> list[str]:
    """The extras that a command needs, by its words without `gapless`: for what it is, and for the options it has."""
    said = [part for word in words for part in word.split("=", 1)]
    for_options = {field.extra for field in _fields_of(said) if field.option in said}
    return [name for name, use in EXTRAS.items() if name in for_options or use.is_needed(said)]


def _fields_of(words: Sequence[str]) -> Iterator[Field]:
    """The options that a system's command has, by the two words that name it."""
    for system in map(find_system, system_names()):
        yield from (
            field for first, name, fields in _commands_of(system) if words[:2] == [first, name] for field in fields
        )


def _commands_of(system: System) -> Iterator[tuple[str, str, Sequence[Field]]]:
    """The commands that a system brings: two words and the options of each."""
    yield "solve", system.name, system.fields
    brought = {
        "advise": system.advice, "sweep": system.sweeps, "run": system.runs, "profile": system.profiles,
        "validate": system.validations,
    }  # fmt: skip
    yield from ((first, command.name, command.fields) for first, commands in brought.items() for command in commands)


def _applies(condition: str) -> bool:
    """Whether a requirement is for this version of Python; all other conditions count as met."""
    below = re.search(r"python_version\s*<\s*['\"](\d+)\.(\d+)['\"]", condition)
    return below is None or sys.version_info[:2] < (int(below.group(1)), int(below.group(2)))


def _tested_elsewhere() -> list[Finding]:
    """The findings of `self_test`, or that its process ended without any."""
    code = "import json; from gapless.installation.doctor import self_test; print(json.dumps(self_test()))"
    name = "solvers in one process"
    # The checkout may not be installed: the other process looks where this one does.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        process = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_MOST_S, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Finding(name, False, str(error).splitlines()[0])]
    if process.returncode:
        last = (process.stderr.strip().splitlines() or ["no message"])[-1]
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
        return [Finding(name, False, f"the process ended with {how}: {last}")]
    return [Finding(**finding) for finding in json.loads(process.stdout.splitlines()[-1])]


def self_test() -> list[dict[str, object]]:
    """Load all solvers that are found, solve something with each, and plan a collective; about two seconds."""
    from gapless.solvers.registry import backends, load_backend

    found = [backend.name for backend in backends() if backend.is_found]
    findings = []
    try:
        for name in found:
            load_backend(name)
        findings.append(Finding("solvers in one process", True, f"{', '.join(found)} load together"))
    except (GaplessError, ImportError, OSError) as error:
        findings.append(Finding("solvers in one process", False, f"{type(error).__name__}: {error}"))
    findings += [try_solver(name) for name in found]
    systems = [find_system(name) for name in system_names()]
    findings += [_planned(system.name, system.trial) for system in systems if system.trial is not None]
    return [asdict(finding) for finding in findings]


def try_solver(solver: str) -> Finding:
    """Three people and three tasks: every solver takes it, and the least cost is 1 + 2 + 2."""
    from gapless.model import Model
    from gapless.solvers.registry import solve_model

    begin_s = time.monotonic()
    model = Model("assignment")
    does = model.binaries("does", (3, 3))
    model.add("one task each", (1, does), lower=1, upper=1)
    model.add("each task is done", (-1, does.T), lower=-1, upper=-1)
    model.minimize((np.array([[4, 1, 3], [2, 0, 5], [3, 2, 2]]), does))
    try:
        solution = solve_model(model, SolveOptions(time_limit_s=_SOLVE_S, threads=1), solver)
    except (GaplessError, ImportError, OSError) as error:
        return Finding(solver, False, f"{type(error).__name__}: {error}")
    is_good = solution.objective is not None and abs(solution.objective - 5) < 1e-6
    return Finding(solver, is_good, _summary(solution.status.value, f"{solution.objective}, known: 5", begin_s))


def _planned(name: str, trial: Callable[[], tuple[Problem, SolveOptions]]) -> Finding:
    """A system's small question, solved and replayed."""
    from gapless.recipe import solve

    begin_s, title = time.monotonic(), f"a plan of {name}, replayed"
    try:
        problem, options = trial()
        result = solve(problem, replace(options, time_limit_s=_SOLVE_S, threads=1))
    except (GaplessError, ImportError, OSError) as error:
        return Finding(title, False, f"{type(error).__name__}: {error}")
    makespan = "no plan" if result.report is None else format_seconds(result.report.makespan_s)
    return Finding(title, result.valid, _summary(result.status.value, makespan, begin_s))


def _summary(status: str, what: str, begin_s: float) -> str:
    return f"{status}, {what}, {time.monotonic() - begin_s:.2f} s"
