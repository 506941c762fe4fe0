"""A bridge to PuLP, and with it to what else is on the machine: CBC, Gurobi, CPLEX, XPRESS, SCIP, ...

`pulp` alone is CBC, or HiGHS through PuLP where there is no CBC; `pulp:NAME` is the solver that PuLP calls NAME.
PuLP 3 brings a CBC along. PuLP 4 finds the one of the package `cbcbox`, or `cbc` on the PATH.
"""

from __future__ import annotations

import difflib
import inspect
import math
import shutil
import time
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from gapless.errors import InputError, SolverError
from gapless.model.arrays import Floats, ModelArrays
from gapless.processes.exit import temporary_folder
from gapless.processes.workers import call_in_worker
from gapless.solution import Solution, Status, StopReason
from gapless.solvers.backend import FEASIBLE, Task, answer, as_minimisation, infeasible_or_unbounded
from gapless.solvers.cbc import solve_with_cbc
from gapless.solvers.interruptible import PATIENCE_S

if TYPE_CHECKING:
    import pulp

__all__ = ["installed", "solve"]

_BUNDLED_CBC, _OWN_CBC, _HIGHS = "PULP_CBC_CMD", "COIN_CMD", "HiGHS"

# PuLP's numbers for what a solver claims. With any other, the values that it left behind show whether there is a plan.
_STATUS = {1: Status.OPTIMAL, -1: Status.INFEASIBLE, -2: Status.UNBOUNDED}

# What each solver calls the seed; PuLP has no word for it.
_SEED_NAMES = {"HiGHS": "random_seed", "GUROBI": "Seed"}


def installed() -> list[str]:
    """The solvers that PuLP finds on this machine, by PuLP's names."""
    import pulp as library

    names: list[str] = library.listSolvers(onlyAvailable=True)
    return names


def solve(task: Task) -> Solution:
    """Solve a MILP or LP; a `start` must be complete to be used.

    CBC gives its best point and a bound when it is stopped. The others, in a process of their own, run to their end or
    time limit, and are killed when somebody says stop. A claim of OPTIMAL counts as proof only if no `gap` was asked
    for, since PuLP passes no bound on.

    Raises `InputError` for a name that PuLP does not know, `SolverError` for a solver that is not there or fails.
    """
    import pulp as library

    name = _known_name(library, task.variant)
    task = replace(task, version=f"{task.version.partition(' ')[0]} with {name}")  # again where it asks itself
    if name in (_BUNDLED_CBC, _OWN_CBC):
        executable = _cbc(library, name)
        if executable is None:
            raise _missing(name)
        return solve_with_cbc(task, executable)
    if name not in installed():
        raise _missing(name)
    options, limit_s = task.options, task.deadline.remaining_s
    with temporary_folder("gapless-pulp-") as folder:
        how = (options.gap, options.thread_count, options.seed)
        asked = _Asked(name, task.arrays, task.start, *how, time.time() + limit_s, folder)
        try:
            claim, values = call_in_worker(_solve_there, asked, limit_s=limit_s + PATIENCE_S, stop=options.stop)
        except TimeoutError:
            return answer(task, Status.NO_SOLUTION, task.why_stopped())
        except SolverError as error:
            raise SolverError(f"pulp: {name} failed on model {task.model.name!r}: {error}") from None
    return _solution(task, _STATUS.get(claim, Status.FEASIBLE), values)


def _known_name(library: ModuleType, variant: str) -> str:
    names: list[str] = library.listSolvers()
    if not variant:
        return next((name for name in (_BUNDLED_CBC, _OWN_CBC) if _cbc(library, name)), _HIGHS)
    by_lower = {name.lower(): name for name in names}
    if variant.lower() not in by_lower:
        close = difflib.get_close_matches(variant.lower(), by_lower, n=1)
        hint = f"did you mean 'pulp:{by_lower[close[0]]}'?" if close else f"PuLP knows {', '.join(sorted(names))}"
        raise InputError(f"solver 'pulp:{variant}': must be a name that PuLP knows; {hint}")
    return by_lower[variant.lower()]


def _missing(name: str) -> SolverError:
    found = f"PuLP finds none on this machine; it finds {', '.join(installed())}"
    hint = "; pip install cbcbox brings one, and a cbc on the PATH is found" if name == _OWN_CBC else ""
    return SolverError(f"solver 'pulp:{name}': {found}{hint}")


def _cbc(library: ModuleType, name: str) -> str | None:
    """Where PuLP's bundled CBC, or the machine's own, is; None if it is not there or may not be run."""
    if name == _OWN_CBC:
        return shutil.which(str(library.COIN_CMD(msg=False).path))
    bundled = getattr(library, _BUNDLED_CBC, None)
    return None if bundled is None else shutil.which(str(bundled.pulp_cbc_path))


@dataclass(frozen=True)
class _Asked:
    """A task as it is handed to another process; `end_s`: when the solver must end, in seconds of `time.time`."""

    name: str
    arrays: ModelArrays
    start: Floats | None
    gap: float
    threads: int
    seed: int
    end_s: float
    folder: str

    @property
    def whole_start(self) -> Floats | None:
        """The start, where every column has a value."""
        return self.start if self.start is not None and bool(np.isfinite(self.start).all()) else None


def _solve_there(asked: _Asked) -> tuple[int, Floats]:
    """In a worker: PuLP's number for what the solver claims, and what it has left as values."""
    import pulp as library

    problem, variables = _problem(library, asked)
    solver = _solver(library, asked)
    try:
        claim = problem.solve(solver)
    except library.PulpSolverError as error:
        raise SolverError(" ".join(str(error).split())) from None
    # PuLP 4 returns all that it knows; before that, what it returns takes a solution within a limit for an optimal one.
    known = int(getattr(problem, "sol_status", 0) or getattr(claim, "status", 0))
    return known, _values(asked.arrays, variables)


def _solver(library: ModuleType, asked: _Asked) -> pulp.LpSolver:
    """PuLP's solver object with the options that this solver's constructor knows, its temporary files in a folder."""
    wanted: dict[str, object] = {"msg": False, "gapRel": asked.gap, "threads": asked.threads}
    if math.isfinite(asked.end_s):
        wanted["timeLimit"] = max(asked.end_s - time.time(), 0.01)
    if asked.whole_start is not None:
        wanted["warmStart"] = True
    constructor = type(library.getSolver(asked.name, msg=False))
    known = inspect.signature(constructor.__init__).parameters
    arguments = {key: value for key, value in wanted.items() if key in known}
    if asked.name in _SEED_NAMES:
        arguments[_SEED_NAMES[asked.name]] = asked.seed
    solver = library.getSolver(asked.name, **arguments)
    if hasattr(solver, "tmpDir"):
        solver.tmpDir = asked.folder
    return solver


def _problem(library: ModuleType, asked: _Asked) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    """The model as PuLP objects, to be minimised; PuLP has no arrays, and a row with two bounds is two rows to it."""
    arrays, start = as_minimisation(asked.arrays), asked.whole_start
    problem = library.LpProblem("model", library.LpMinimize)
    # PuLP 3.3 deprecates building a variable by its class; before that nothing else was there.
    add_variable = getattr(problem, "add_variable", library.LpVariable)
    kinds = np.where(arrays.is_integer, library.LpInteger, library.LpContinuous).tolist()
    bounds = zip(arrays.lower.tolist(), arrays.upper.tolist(), kinds, strict=True)
    variables = [
        add_variable(f"c{j}", low if low > -np.inf else None, high if high < np.inf else None, kind)
        for j, (low, high, kind) in enumerate(bounds)
    ]
    costs = arrays.cost.tolist()
    used = np.flatnonzero(arrays.cost).tolist()
    problem += library.lpDot([costs[j] for j in used], [variables[j] for j in used])
    for row, (low, high) in enumerate(zip(arrays.row_lower.tolist(), arrays.row_upper.tolist(), strict=True)):
        entries = slice(arrays.start[row], arrays.start[row + 1])
        columns = [variables[j] for j in arrays.index[entries].tolist()]
        row_sum = library.lpDot(arrays.value[entries].tolist(), columns)
        if low == high:
            problem += row_sum == low, f"r{row}"
            continue
        if low > -np.inf:
            problem += row_sum >= low, f"r{row}_low"
        if high < np.inf:
            problem += row_sum <= high, f"r{row}_high"
    if start is not None:
        for variable, value in zip(variables, np.clip(start, arrays.lower, arrays.upper).tolist(), strict=True):
            variable.setInitialValue(value, check=False)
    return problem, variables


def _values(arrays: ModelArrays, variables: list[pulp.LpVariable]) -> Floats:
    """What PuLP found; a column in no row and no objective it never sees, and any value within its bounds will do."""
    found = np.array([np.nan if variable.varValue is None else variable.varValue for variable in variables])
    idle = np.where(np.isfinite(arrays.lower), arrays.lower, np.where(np.isfinite(arrays.upper), arrays.upper, 0.0))
    is_seen = arrays.cost != 0
    is_seen[arrays.index] = True
    return np.where(is_seen, found, np.where(arrays.is_integer, np.ceil(idle), idle))


def _solution(task: Task, claim: Status, values: Floats) -> Solution:
    if claim in (Status.INFEASIBLE, Status.UNBOUNDED):
        return infeasible_or_unbounded(task, solve)
    if task.arrays.violation(values) > 10 * FEASIBLE:
        # PuLP's solvers leave any numbers behind when a limit stops them without a feasible point.
        return answer(task, Status.NO_SOLUTION, task.why_stopped())
    if claim is Status.OPTIMAL:
        bound = task.arrays.objective(values) if task.options.gap == 0 else None
        return answer(task, claim, StopReason.FINISHED, values, bound)
    return answer(task, Status.FEASIBLE, task.why_stopped(), values)
