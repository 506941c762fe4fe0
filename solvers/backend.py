"""What every backend is given (`Task`) and the one place where a backend's raw claim becomes a `Solution`.

A backend is a module of this folder with one function, `solve(task) -> Solution`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gapless.model import Model
from gapless.model.arrays import Floats, ModelArrays
from gapless.options import Deadline, Progress, SolveOptions
from gapless.solution import PROVEN_GAP, Solution, Status, StopReason

__all__ = [
    "FEASIBLE",
    "Task",
    "answer",
    "as_minimisation",
    "better",
    "cost_scale",
    "from_minimisation",
    "infeasible_or_unbounded",
    "row_scale",
]

FEASIBLE = 1e-6
"""A point counts as feasible if its `ModelArrays.violation` is at most this, the tolerance of most solvers."""

_STOPS_EARLY_BY = 0.1
"""The share of a time limit within which a library that stopped without a word counts as stopped by it."""


@dataclass(frozen=True)
class Task:
    """One solve: the model as built and as arrays, and what the caller asked for.

    `start`: float, one per column, or None. `variant`: what follows the colon in a solver name such as `pulp:HiGHS`.
    `solver`, `version`: of the library, as a solution names them.
    """

    model: Model
    arrays: ModelArrays
    options: SolveOptions
    deadline: Deadline
    start: Floats | None = None
    variant: str = ""
    solver: str = ""
    version: str = ""

    @property
    def limit_s(self) -> float:
        """Seconds left of the time limit, below zero where it is past, inf without one."""
        limit_s = self.options.time_limit_s
        return math.inf if limit_s is None else limit_s - self.deadline.elapsed_s

    def report(self, incumbent: float | None, bound: float | None, phase: str = "", steps: int | None = None) -> None:
        """Hand one progress report to the caller, if they asked for any; infinite numbers count as unknown."""
        if self.options.on_progress is not None:
            wall_s = self.deadline.elapsed_s
            self.options.on_progress(Progress(wall_s, _finite(incumbent), _finite(bound), phase, steps=steps))

    def why_stopped(self) -> StopReason:
        """The reason for stopping early: somebody asked to, or the time was up, or the steps, or a backend's own limit.

        Libraries that guess how long their next step will take stop a little before the limit that they were given.
        """
        if self.options.stop.is_set():
            return StopReason.INTERRUPTED
        limit_s = self.options.time_limit_s
        if limit_s is not None and self.deadline.remaining_s <= _STOPS_EARLY_BY * limit_s:
            return StopReason.TIME_LIMIT
        return StopReason.OTHER_LIMIT if self.options.step_limit is None else StopReason.WORK_LIMIT


def answer(
    task: Task, claim: Status, stop: StopReason = StopReason.FINISHED,
    values: Floats | None = None, bound: float | None = None,
) -> Solution:  # fmt: skip
    """Turn a backend's claim into a Solution.

    The objective is computed from the values, never taken from the backend. With values the status is OPTIMAL exactly
    when the bound is within `PROVEN_GAP` of that objective, whatever the backend calls it; a claim of OPTIMAL that
    falls short is FEASIBLE, stopped by GAP_REACHED. `bound` is in the model's sense; None or infinite means unknown.
    """
    named = (task.solver, task.version, task.options.seed, task.deadline.elapsed_s)
    solution = Solution(claim, stop, *named, bound=_finite(bound))
    if claim in (Status.INFEASIBLE, Status.UNBOUNDED):
        return replace(solution, stop_reason=StopReason.FINISHED, bound=None)
    if values is None:
        return replace(solution, status=Status.NO_SOLUTION)
    arrays = task.arrays
    values = _clean(arrays, values)
    objective = arrays.objective(values)
    bound = _settled_bound(arrays, values, objective, solution.bound)
    proven = bound is not None and abs(objective - bound) <= PROVEN_GAP * max(abs(objective), abs(bound))
    if proven:
        status, stop = Status.OPTIMAL, StopReason.FINISHED
    else:
        status = Status.FEASIBLE
        stop = StopReason.GAP_REACHED if claim is Status.OPTIMAL else stop
    return replace(solution, status=status, stop_reason=stop, values=values, objective=objective, bound=bound)


def better(arrays: ModelArrays, first: float, second: float) -> bool:
    """Whether objective `first` is strictly better than `second` in the model's sense."""
    return first > second if arrays.maximize else first < second


def infeasible_or_unbounded(task: Task, solve: Callable[[Task], Solution]) -> Solution:
    """Decide between the two, which backends may leave open or mix up: unbounded if there is a feasible point at all.

    `solve` is the backend itself, asked for any feasible point. That one exists and the relaxation is unbounded makes
    a MILP unbounded too, as its data are rational.
    """
    if _is_box_bounded(task.arrays):
        return answer(task, Status.INFEASIBLE)
    arrays = replace(task.arrays, cost=np.zeros_like(task.arrays.cost), offset=0.0)
    probe = solve(replace(task, arrays=arrays, options=replace(task.deadline.stage(), on_progress=None), start=None))
    if probe.status is Status.INFEASIBLE:
        return answer(task, Status.INFEASIBLE)
    if probe.has_values:
        return answer(task, Status.UNBOUNDED)
    return answer(task, Status.NO_SOLUTION, probe.stop_reason)


def cost_scale(arrays: ModelArrays) -> float:
    """A power of two that brings the largest cost to 1 or above.

    Solvers compare objectives with absolute tolerances of 1e-6 and less: costs in seconds may be as small as that.
    """
    largest = float(np.abs(arrays.cost).max(initial=0.0))
    return float(2.0 ** np.ceil(-np.log2(largest))) if 0 < largest < 1 else 1.0


def row_scale(arrays: ModelArrays) -> Floats:
    """A power of two for each row, float, that brings its largest coefficient between 1 and 2.

    A row of whole numbers is exact as it stands: its factor is 1.
    """
    largest, is_whole = np.zeros(len(arrays.row_lower)), np.ones(len(arrays.row_lower), dtype=bool)
    np.maximum.at(largest, arrays.row_of_entry, np.abs(arrays.value))
    is_whole[arrays.row_of_entry[arrays.value != np.round(arrays.value)]] = False
    return np.asarray(2.0 ** -np.floor(np.log2(np.where(is_whole | (largest == 0), 1.0, largest))))


def as_minimisation(arrays: ModelArrays) -> ModelArrays:
    """The same feasible set with the objective to be minimised, scaled by `cost_scale`, without its offset."""
    factor = -cost_scale(arrays) if arrays.maximize else cost_scale(arrays)
    return replace(arrays, cost=arrays.cost * factor + 0.0, offset=0.0, maximize=False)


def from_minimisation(arrays: ModelArrays, objective: float) -> float:
    """An objective or bound of `as_minimisation(arrays)` in the sense and unit of `arrays`."""
    factor = -cost_scale(arrays) if arrays.maximize else cost_scale(arrays)
    return objective / factor + arrays.offset


def _is_box_bounded(arrays: ModelArrays) -> bool:
    """Whether the column bounds alone keep the objective from improving for ever."""
    cost = -arrays.cost if arrays.maximize else arrays.cost
    best = np.where(cost > 0, arrays.lower, np.where(cost < 0, arrays.upper, 0.0))
    return bool(np.isfinite(best).all())


def _clean(arrays: ModelArrays, values: Floats) -> Floats:
    """Integer columns as whole numbers where they are within 1e-5 of one, every column within its bounds."""
    values = np.array(values, dtype=np.float64)
    whole = np.round(values)
    values = np.where(arrays.is_integer & (np.abs(values - whole) <= 1e-5), whole, values)
    return np.clip(values, arrays.lower, arrays.upper) + 0.0  # + 0.0 turns -0.0 into 0.0


def _settled_bound(arrays: ModelArrays, values: Floats, objective: float, bound: float | None) -> float | None:
    """The bound, moved onto the objective where only rounding separates them; None where the values disprove it."""
    if bound is None:
        return None
    size = max(float(np.abs(arrays.cost).max(initial=0.0)), float(np.abs(arrays.cost) @ np.abs(values)))
    distance = abs(objective - bound)
    if better(arrays, objective, bound):
        return objective if distance <= 1e-5 * size else None
    return objective if distance <= 1e-9 * size else bound


def _finite(number: float | None) -> float | None:
    return float(number) if number is not None and abs(number) < 1e20 else None
