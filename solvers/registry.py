"""The backends by name, and `solve_model`, which calls any of them."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike

from gapless.errors import InputError, SolverError
from gapless.model import Model
from gapless.model.arrays import Floats
from gapless.model.linearise import linearise
from gapless.options import Deadline, SolveOptions
from gapless.solution import Solution, Status, StopReason
from gapless.solvers.backend import FEASIBLE, Task, answer, better

__all__ = [
    "BACKENDS",
    "Backend",
    "BackendInfo",
    "backends",
    "checked_start",
    "find_backend",
    "load_backend",
    "solve_model",
    "solve_with",
]


@dataclass(frozen=True)
class Backend:
    """The library that a backend needs, and what it takes; the backend is the module of its name in this folder.

    `library`: of the library, the module that takes time to import. `knows_logic`: conditional rows and disjunctions
    go to it as they are; for the others they are linearised.
    """

    name: str
    library: str
    takes: tuple[str, ...]
    has_variants: bool = False
    knows_logic: bool = False

    @property
    def module(self) -> ModuleType:
        """The backend itself, which has a function `solve`."""
        return importlib.import_module(f"gapless.solvers.{self.name}")

    @property
    def distribution(self) -> str:
        """What to install for the library: each has the name of what is imported."""
        return self.library.partition(".")[0]

    @property
    def version(self) -> str | None:
        """The version of the library, None if it is not installed; nothing is imported for it."""
        if find_spec(self.distribution) is None:
            return None
        return _installed_version(self.distribution)


@cache
def _installed_version(distribution: str) -> str | None:
    """What its metadata say, which are read once: column generation solves many small models."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class BackendInfo:
    """One line of the list of solvers: `version` is None where the library is not installed."""

    name: str
    version: str | None
    takes: tuple[str, ...]

    @property
    def is_found(self) -> bool:
        """Whether the library is installed here."""
        return self.version is not None


_ANY = ("lp", "milp", "pure integer", "network")

BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("highs", "highspy", _ANY),
        Backend("cpsat", "ortools.sat.python.cp_model", ("pure integer",), knows_logic=True),
        Backend("pulp", "pulp", _ANY, has_variants=True),
        Backend("min_cost_flow", "ortools.graph.python.min_cost_flow", ("network",)),
    )
}


def backends(look_inside: bool = False) -> list[BackendInfo]:
    """The backends with their versions, found without importing any solver library.

    With `look_inside`, PuLP is imported and each solver that it finds on this machine is listed too, as `pulp:NAME`.
    """
    listed = [BackendInfo(name, backend.version, backend.takes) for name, backend in BACKENDS.items()]
    pulp = BACKENDS["pulp"]
    if look_inside and pulp.version is not None:
        found = pulp.module.installed()
        listed += [BackendInfo(f"pulp:{name}", pulp.version, pulp.takes) for name in found]
    return listed


def solve_model(
    model: Model, options: SolveOptions | None = None, solver: str = "highs", start: ArrayLike | None = None
) -> Solution:
    """Solve a model with the named backend.

    Parameters
    ----------
    model
        What to solve. That it is infeasible or unbounded is an answer, not an error.
    options
        Limits and callbacks; all defaults if None.
    solver
        A name from `backends()`, or `pulp:NAME` for a solver that PuLP knows.
    start
        A point to start from, one value per column; NaN where unknown (only highs completes such a start). The answer
        is never worse than a start that is feasible.

    Raises
    ------
    InputError
        For an unknown solver, a start of another length, and a model that the backend does not take; the message names
        the first variable or row that prevents it, and a solver that takes it.
    SolverError
        If the backend's library is missing or fails.
    """
    backend, variant = find_backend(solver)
    return solve_with(backend, variant, model, options or SolveOptions(), solver, checked_start(model, start))


def solve_with(
    backend: Backend, variant: str, model: Model, options: SolveOptions, solver: str, start: Floats | None
) -> Solution:
    """`solve_model` on a backend that has been looked up and a start that has been checked."""
    deadline = Deadline(options)
    version = _found(backend, solver)
    asked = Task(model, model.arrays(), options, deadline, start, variant, solver, version)
    solution = _settled_at_once(asked)
    if solution is None:
        solution = backend.module.solve(_as_taken(asked, backend))
    if solution.values is not None:
        solution = replace(solution, values=solution.values[: model.column_count])  # without what linearising added
    solution = _no_worse_than_start(asked, solution)
    if solution.stop_reason is StopReason.TIME_LIMIT:
        deadline.strike()
    return replace(solution, wall_s=deadline.elapsed_s)


def load_backend(solver: str) -> str:
    """Import the solver's library now, outside of any time limit, and return its version.

    Raises `InputError` for an unknown solver, `SolverError` for one that is not installed.
    """
    backend, _ = find_backend(solver)
    version = _found(backend, solver)
    importlib.import_module(backend.library)
    return version


def find_backend(solver: str) -> tuple[Backend, str]:
    """The backend of a solver name and what follows its colon; raises `InputError` for a name that is not known."""
    name, colon, variant = solver.partition(":")
    backend = BACKENDS.get(name)
    if backend is None:
        known = ", ".join(BACKENDS)
        close = difflib.get_close_matches(name.lower(), BACKENDS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "one of your own is a variant of pulp, as in pulp:GUROBI"
        raise InputError(f"solver must be one of {known}, got {solver!r}; {hint}")
    if colon and not backend.has_variants:
        raise InputError(f"solver {name!r} has no variants, got {solver!r}; use --solver {name}")
    return backend, variant


def checked_start(model: Model, start: ArrayLike | None) -> Floats | None:
    """The start as float array; raises `InputError` unless it has one value per column."""
    if start is None:
        return None
    values = np.asarray(start, dtype=np.float64)
    if values.shape != (model.column_count,):
        raise InputError(f"start must hold {model.column_count} values, one per column, got shape {values.shape}")
    return values


def _found(backend: Backend, solver: str) -> str:
    version = backend.version
    if version is None:
        raise SolverError(f"solver {solver!r}: needs {backend.distribution}; pip install {backend.distribution}")
    return version


def _as_taken(task: Task, backend: Backend) -> Task:
    """The task in plain rows, unless the backend takes logic; a start is unknown in the columns that this adds."""
    if backend.knows_logic or task.arrays.is_linear:
        return task
    if "milp" not in backend.takes:
        rule = "must have no conditional rows and no disjunctions"
        raise InputError(f"model {task.model.name!r}: {rule} for {task.solver}; use --solver cpsat or highs")
    arrays = linearise(task.arrays)
    added = np.full(len(arrays.cost) - len(task.arrays.cost), np.nan)
    start = None if task.start is None else np.concatenate([task.start, added])
    return replace(task, arrays=arrays, start=start)


def _settled_at_once(task: Task) -> Solution | None:
    """The answers that need no solver: bounds that leave nothing, no columns, a solve that was stopped beforehand."""
    arrays = task.arrays
    is_crossed = (arrays.row_lower > arrays.row_upper) & (arrays.only_if < 0)
    is_unmet = (np.diff(arrays.start) == 0) & (arrays.only_if < 0) & ((arrays.row_lower > 0) | (arrays.row_upper < 0))
    is_gap = (np.ceil(arrays.lower) > np.floor(arrays.upper)) & arrays.is_integer
    if is_crossed.any() or is_unmet.any() or is_gap.any():
        return answer(task, Status.INFEASIBLE)
    if not len(arrays.cost):
        return answer(task, Status.OPTIMAL, values=np.empty(0), bound=arrays.offset)
    if task.options.stop.is_set():
        return answer(task, Status.NO_SOLUTION, StopReason.INTERRUPTED)
    return None


def _no_worse_than_start(task: Task, solution: Solution) -> Solution:
    """The solution, or the start where that is feasible and better: some backends forget it when time is short."""
    start = task.start
    if start is None or solution.status in (Status.INFEASIBLE, Status.UNBOUNDED, Status.OPTIMAL):
        return solution
    if task.arrays.violation(start) > FEASIBLE:
        return solution
    objective = task.arrays.objective(start)
    if solution.objective is not None and not better(task.arrays, objective, solution.objective):
        return solution
    task = replace(task, version=solution.version)
    return answer(task, Status.FEASIBLE, solution.stop_reason, start, solution.bound)
