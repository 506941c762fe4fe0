"""CP-SAT of OR-tools: models in which every column is an integer within finite bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gapless.errors import InputError
from gapless.model.arrays import Floats, ModelArrays
from gapless.solution import Solution, Status, StopReason
from gapless.solvers.backend import Task, answer
from gapless.solvers.integral import cost_factor, implied_bounds, scale_to_integers, whole_bounds
from gapless.solvers.interruptible import run_interruptibly

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["solve"]

# What CP-SAT's status claims; early stops with and without a point differ by the values.
_STATUS: dict[str, Status] = {
    "OPTIMAL": Status.OPTIMAL,
    "FEASIBLE": Status.FEASIBLE,
    "INFEASIBLE": Status.INFEASIBLE,
    "UNKNOWN": Status.NO_SOLUTION,
}

_LARGEST_BOUND = 2.0**52

_STEP = 0.005
"""CP-SAT's deterministic time for a step: about what a linear program of a few thousand rows takes."""


def solve(task: Task) -> Solution:
    """Solve a pure-integer model; a `start` becomes a hint, with NaN where a column has none.

    Raises `InputError`, naming the first column or row that prevents it, for continuous columns, bounds that neither
    the model nor its rows make finite, and coefficients that no factor up to 1e6 makes whole.
    """
    from ortools.sat.python import cp_model

    lower, upper = _column_bounds(task)
    if (lower > upper).any():
        return answer(task, Status.INFEASIBLE)
    cost_scale = cost_factor(task, "cpsat")
    model, columns = _build(task, lower, upper, cost_scale)
    problem = model.validate()
    if problem:
        first_line = problem.splitlines()[0]
        raise InputError(f"model {task.model.name!r}: cpsat rejects it ({first_line}); use --solver highs")
    solver = cp_model.CpSolver()
    _configure(solver, task)
    progress = _Progress(task, cost_scale, solver.stop_search)
    callback = _callback(progress)
    if task.options.on_progress is not None and task.arrays.cost.any():
        solver.best_bound_callback = progress.report
    try:
        status = run_interruptibly(
            lambda: solver.solve(model, callback), solver.stop_search, task.options.stop, task.limit_s
        )  # fmt: skip
    except TimeoutError:
        return answer(task, Status.NO_SOLUTION, task.why_stopped())
    if progress.error is not None:
        raise progress.error
    claim = _STATUS[solver.status_name(status)]
    stop = StopReason.FINISHED if claim in (Status.OPTIMAL, Status.INFEASIBLE) else task.why_stopped()
    values = bound = None
    if claim in (Status.OPTIMAL, Status.FEASIBLE):
        values = np.array(solver.values(columns), dtype=np.float64)
    if claim is not Status.INFEASIBLE:
        bound = _unscaled(task.arrays, solver.best_objective_bound, cost_scale)
    return answer(task, claim, stop, values, bound)


def _column_bounds(task: Task) -> tuple[Floats, Floats]:
    arrays = task.arrays
    if not arrays.is_integer.all():
        first = task.model.column_names()[int(np.argmin(arrays.is_integer))]
        raise InputError(f"variable {first!r}: must be an integer for cpsat, is continuous; use --solver highs")
    lower, upper = implied_bounds(arrays)
    for bound, side in ((lower, "lower"), (upper, "upper")):
        if (np.abs(bound) > _LARGEST_BOUND).any():
            column = int(np.argmax(np.abs(bound) > _LARGEST_BOUND))
            name = task.model.column_names()[column]
            rule = "must have bounds within 2^52 for cpsat, given or implied by rows"
            raise InputError(f"variable {name!r}: {rule}, got {side} {bound[column]:g}; use --solver highs")
    return whole_bounds(lower, upper)


def _row_scale(task: Task) -> Floats:
    arrays = task.arrays
    scale = scale_to_integers(arrays.value, arrays.row_of_entry, len(arrays.row_lower))
    if np.isnan(scale).any():
        row = int(np.argmax(np.isnan(scale)))
        values = arrays.value[arrays.start[row] : arrays.start[row + 1]]
        worst = float(values[np.argmax(np.abs(values * 1e6 - np.round(values * 1e6)))])
        rule = "coefficients must be whole numbers after a common factor up to 1e6 for cpsat"
        raise InputError(f"row {task.model.row_names()[row]!r}: {rule}, got {worst!r}; use --solver highs")
    return scale


def _build(
    task: Task, lower: Floats, upper: Floats, cost_scale: float
) -> tuple[cp_model.CpModel, list[cp_model.IntVar]]:
    """The CP-SAT model and its variables. Rows are added one by one, as that is how CP-SAT stores them."""
    from ortools.sat.python import cp_model

    arrays = task.arrays
    scale = _row_scale(task)
    model = cp_model.CpModel()
    columns = [model.new_int_var(low, high, "") for low, high in zip(_ints(lower), _ints(upper), strict=True)]
    coefficients = _ints(arrays.value * scale[arrays.row_of_entry])
    row_lower, row_upper = whole_bounds(arrays.row_lower * scale, arrays.row_upper * scale)
    row_lower, row_upper = np.maximum(row_lower, cp_model.INT_MIN), np.minimum(row_upper, float(2**62))
    ends, ids, only_if = arrays.start.tolist(), arrays.index.tolist(), arrays.only_if.tolist()
    for row, (low, high) in enumerate(zip(_ints(row_lower), _ints(row_upper), strict=True)):
        entries = slice(ends[row], ends[row + 1])
        terms = cp_model.LinearExpr.weighted_sum([columns[j] for j in ids[entries]], coefficients[entries])
        constraint = model.add_linear_constraint(terms, low, high)
        if only_if[row] >= 0:
            constraint.only_enforce_if(columns[only_if[row]])
    _add_disjunctions(model, columns, arrays)
    _add_cumulatives(model, columns, arrays, lower, upper)
    if arrays.cost.any():
        total = cp_model.LinearExpr.weighted_sum(columns, _ints(arrays.cost * cost_scale))
        (model.maximize if arrays.maximize else model.minimize)(total)
    if task.start is not None:
        for column in np.flatnonzero(np.isfinite(task.start)).tolist():
            hint = np.clip(np.round(task.start[column]), lower[column], upper[column])
            model.add_hint(columns[column], int(hint))
    return model, columns


def _add_disjunctions(model: cp_model.CpModel, columns: list[cp_model.IntVar], arrays: ModelArrays) -> None:
    interval_of: dict[tuple[int, int, int], cp_model.IntervalVar] = {}
    for disjunction in arrays.disjunctions:
        _check_whole(disjunction.family, "durations", disjunction.durations)
        starts, present = disjunction.starts.tolist(), disjunction.present.tolist()
        activities = list(zip(starts, _ints(disjunction.durations), present, strict=True))
        for activity in activities:
            if activity not in interval_of:
                start, duration, choice = activity
                if choice < 0:
                    interval = model.new_fixed_size_interval_var(columns[start], duration, "")
                else:
                    interval = model.new_optional_fixed_size_interval_var(columns[start], duration, columns[choice], "")
                interval_of[activity] = interval
        model.add_no_overlap([interval_of[activity] for activity in activities])


def _add_cumulatives(
    model: cp_model.CpModel, columns: list[cp_model.IntVar], arrays: ModelArrays, lower: Floats, upper: Floats
) -> None:
    """Lengths are limited by what columns allow: CP-SAT adds up all domains, and takes no sum beyond 2^63."""
    for cumulative in arrays.cumulatives:
        _check_whole(cumulative.family, "delays and demands", np.append(cumulative.delays, cumulative.demands))
        longest = np.maximum(upper[cumulative.ends] + cumulative.delays - lower[cumulative.starts], 0.0)
        columns_held = cumulative.starts.tolist(), cumulative.ends.tolist()
        held = zip(*columns_held, _ints(cumulative.delays), _ints(longest), strict=True)
        intervals = []
        for start, end, delay, most in held:
            length = model.new_int_var(0, most, "")
            intervals.append(model.new_interval_var(columns[start], length, columns[end] + delay, ""))
        model.add_cumulative(intervals, _ints(cumulative.demands), math.floor(cumulative.capacity))


def _check_whole(family: str, what: str, values: Floats) -> None:
    if not np.array_equal(values, np.round(values)):
        raise InputError(f"family {family!r}: {what} must be whole numbers for cpsat; use --solver highs")


def _ints(values: Floats) -> list[int]:
    whole: list[int] = np.round(values).astype(np.int64).tolist()
    return whole


def _unscaled(arrays: ModelArrays, objective: float, cost_scale: float) -> float:
    """CP-SAT's objective or bound in the model's unit; with no cost at all the offset is all there is."""
    return objective / cost_scale + arrays.offset if arrays.cost.any() else arrays.offset


def _configure(solver: cp_model.CpSolver, task: Task) -> None:
    options, parameters = task.options, solver.parameters
    parameters.num_workers = options.thread_count
    parameters.cp_model_presolve = options.presolve
    parameters.interleave_search = options.thread_count > 1  # the workers exchange at fixed points: the same twice
    if options.step_limit is not None:
        parameters.max_deterministic_time = options.step_limit * _STEP
    parameters.random_seed = options.seed
    parameters.relative_gap_limit = options.gap
    parameters.log_search_progress = False
    parameters.catch_sigint_signal = False  # Ctrl-C is ours to handle
    if options.time_limit_s is not None:
        parameters.max_time_in_seconds = max(task.limit_s, 1e-3)


def _callback(progress: _Progress) -> cp_model.CpSolverSolutionCallback:
    from ortools.sat.python import cp_model

    class Callback(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            progress.report(self.best_objective_bound, self.objective_value)

    return Callback()


@dataclass
class _Progress:
    """What CP-SAT reports while it is at work; `cancel` stops it, `error` is that of whoever hears the reports."""

    task: Task
    cost_scale: float
    cancel: Callable[[], None]
    incumbent: float | None = None
    error: Exception | None = None

    def report(self, bound: float, objective: float | None = None) -> None:
        """A bound, and the objective of a solution that is new."""
        if objective is not None:
            self.incumbent = _unscaled(self.task.arrays, objective, self.cost_scale)
        try:
            if self.error is None:
                self.task.report(self.incumbent, _unscaled(self.task.arrays, bound, self.cost_scale))
        except Exception as error:  # an exception must not travel through C++; it is raised after the run
            self.error = error
            self.cancel()
