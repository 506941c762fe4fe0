"""HiGHS, the default backend: mixed-integer and linear programs, through highspy's array interface."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakMethod

import numpy as np

from gapless.errors import SolverError
from gapless.model.arrays import Floats
from gapless.solution import Solution, Status, StopReason
from gapless.solvers.backend import Task, answer, cost_scale, infeasible_or_unbounded, row_scale
from gapless.solvers.interruptible import run_interruptibly

__all__ = ["solve"]

# What HiGHS's model status claims, and why it stopped (None: ask the task whether it was stopped or out of time).
_STATUS: dict[str, tuple[Status, StopReason | None]] = {
    "kOptimal": (Status.OPTIMAL, StopReason.FINISHED),
    "kModelEmpty": (Status.OPTIMAL, StopReason.FINISHED),
    "kInfeasible": (Status.INFEASIBLE, StopReason.FINISHED),
    "kUnbounded": (Status.UNBOUNDED, StopReason.FINISHED),
    "kUnboundedOrInfeasible": (Status.UNBOUNDED, StopReason.FINISHED),
    "kTimeLimit": (Status.FEASIBLE, StopReason.TIME_LIMIT),
    "kInterrupt": (Status.FEASIBLE, None),
    "kHighsInterrupt": (Status.FEASIBLE, None),
    "kIterationLimit": (Status.FEASIBLE, StopReason.OTHER_LIMIT),
    "kSolutionLimit": (Status.FEASIBLE, StopReason.OTHER_LIMIT),
    "kMemoryLimit": (Status.FEASIBLE, StopReason.OTHER_LIMIT),
    "kUnknown": (Status.FEASIBLE, None),
}

_REPORT_EVERY_S = 0.25
"""Least time between two progress reports that bring no new incumbent."""


def solve(task: Task) -> Solution:
    """Solve a MILP or LP; a `start` with NaN for unknown values is completed by HiGHS, an LP takes none.

    Rows are scaled to a largest coefficient near 1: HiGHS compares with absolute tolerances, and its presolve was seen
    to prove what is false where coefficients are small. Steps are counted where HiGHS looks up from a MILP, once a
    linear program or so; an LP has none.

    HiGHS doesn't look at clock or callbacks in some of its work, presolve of dense rows above all. Where that takes too
    long, it is left behind in its thread, to stop when it next looks, and the answer is what it has reported so far.

    Raises `SolverError` where HiGHS rejects the model or fails.
    """
    run = _Run(task)
    try:
        run_interruptibly(run.go, run.cancel, task.options.stop, task.limit_s)
    except TimeoutError:
        return answer(task, Status.FEASIBLE, task.why_stopped(), *run.reported)
    if run.callback_error is not None:
        raise run.callback_error
    status_name = run.highs.getModelStatus().name
    if status_name not in _STATUS:
        raise SolverError(f"highs: failed on model {task.model.name!r} with status {status_name}; try --solver pulp")
    claim, stop = _STATUS[status_name]
    if claim is Status.UNBOUNDED or (claim is Status.INFEASIBLE and task.arrays.cost.any()):
        # HiGHS 1.13.1 calls some unbounded linear programs infeasible: without a cost it can't mix them up.
        return infeasible_or_unbounded(task, solve)
    values, bound = run.values(), run.bound()
    if claim is Status.OPTIMAL and values is not None and not task.arrays.is_integer.any():
        bound = task.arrays.objective(values)
    limit = task.options.step_limit
    if stop is None:
        stop = StopReason.WORK_LIMIT if limit is not None and run.steps > limit else task.why_stopped()
    found = answer(task, claim, stop, values, bound)
    return replace(found, row_prices=run.row_prices(), steps=run.steps)


class _Reported(Protocol):
    """What HiGHS says in a callback."""

    mip_solution: Floats
    mip_primal_bound: float
    mip_dual_bound: float
    objective_function_value: float


class _Answer(Protocol):
    """What a callback says to HiGHS."""

    user_interrupt: bool


class _Run:
    """One HiGHS instance at work on one task; `go` runs in a worker thread, `cancel` may be called from any."""

    def __init__(self, task: Task) -> None:
        import highspy

        self.highs = highspy.Highs()
        self.callback_error: Exception | None = None
        self._kinds = highspy.cb.HighsCallbackType
        self._task = task
        self._cost_scale = cost_scale(task.arrays)
        self._row_scale = row_scale(task.arrays)
        self.steps = 0
        self._cancelled = False
        self._reported_s = -math.inf
        self._reported_incumbent = math.inf
        self._values: Floats | None = None
        self._bound: float | None = None

    def cancel(self) -> None:
        """Ask HiGHS to stop when it next looks; nothing is reported from here on."""
        self._cancelled = True

    @property
    def reported(self) -> tuple[Floats | None, float | None]:
        """The best point and the bound that HiGHS has reported while at work, None where it has not."""
        return self._values, self._bound

    def go(self) -> None:
        """Pass the model and run. HiGHS keeps one thread pool per calling thread, of fixed size: start without one."""
        self.highs.resetGlobalScheduler(True)
        try:
            self._set_options()
            self._pass_model()
            self._pass_start()
            self._listen()
            self.highs.run()
        finally:
            self.highs.resetGlobalScheduler(True)

    def values(self) -> Floats | None:
        """The best point, None if there is none."""
        if not len(self._task.arrays.cost) or self.highs.getInfo().primal_solution_status != 2:  # 2: feasible
            return None
        return np.array(self.highs.getSolution().col_value)

    def row_prices(self) -> Floats | None:
        """The dual values of the rows of an LP that was solved, None for a MIP; of interior points as they stand.

        Where it has no solution, and presolve didn't say so, what rows are multiplied with to show that.
        """
        info = self.highs.getInfo()
        if not self._task.arrays.is_integer.any() and self.highs.getModelStatus().name == "kInfeasible":
            _, is_there, ray = self.highs.getDualRay()
            return np.array(ray) * self._row_scale if is_there else None
        is_given = info.dual_solution_status == 2 or self._task.options.interior  # 2: feasible
        if self._task.arrays.is_integer.any() or not is_given:
            return None
        return np.array(self.highs.getSolution().row_dual) * self._row_scale / self._cost_scale

    def bound(self) -> float | None:
        """The dual bound of a MIP in the model's own sense; HiGHS gives none for an LP that it did not finish."""
        if not self._task.arrays.is_integer.any():
            return None
        return float(self.highs.getInfo().mip_dual_bound) / self._cost_scale

    def _set_options(self) -> None:
        options = self._task.options
        settings: dict[str, bool | int | float | str] = {
            "output_flag": False,
            "log_to_console": False,
            "threads": options.thread_count,
            "random_seed": options.seed,
            "mip_rel_gap": options.gap,
            "mip_abs_gap": 0.0,
            "presolve": "choose" if options.presolve else "off",
        }
        if options.interior:
            settings |= {"solver": "ipm", "run_crossover": "off"}
        if options.time_limit_s is not None:
            settings["time_limit"] = max(self._task.limit_s, 1e-3)
        for name, value in settings.items():
            self.highs.setOptionValue(name, value)

    def _pass_model(self) -> None:
        import highspy

        arrays, scale = self._task.arrays, self._cost_scale
        sense = highspy.ObjSense.kMaximize if arrays.maximize else highspy.ObjSense.kMinimize
        status = self.highs.passModel(
            len(arrays.cost), len(arrays.row_lower), len(arrays.index), int(highspy.MatrixFormat.kRowwise),
            int(sense), arrays.offset * scale, arrays.cost * scale, arrays.lower, arrays.upper,
            arrays.row_lower * self._row_scale, arrays.row_upper * self._row_scale, arrays.start.astype(np.int32),
            arrays.index.astype(np.int32), arrays.value * self._row_scale[arrays.row_of_entry],
            arrays.is_integer.astype(np.int32),
        )  # fmt: skip
        if status == highspy.HighsStatus.kError:
            name = self._task.model.name
            raise SolverError(f"highs: rejects model {name!r}; coefficients must be below 1e15 in size")

    def _pass_start(self) -> None:
        start = self._task.start
        if start is not None and self._task.arrays.is_integer.any():
            known = np.flatnonzero(np.isfinite(start)).astype(np.int32)
            self.highs.setSolution(len(known), known, start[known])

    def _listen(self) -> None:
        kinds = self._kinds
        # The wrapper class has fixed its own dispatcher as the callback; ours is simpler and never raises into C++.
        # It refers back weakly: HiGHS and the run would keep each other, and the model, for ever.
        reference = WeakMethod(self._on_callback)

        def listen(*said: Any) -> None:
            listener = reference()
            if listener is not None:
                listener(*said)

        self.highs.setCallback(listen, None)
        interrupts = [kinds.kCallbackMipInterrupt, kinds.kCallbackSimplexInterrupt, kinds.kCallbackIpmInterrupt]
        for kind in (*interrupts, kinds.kCallbackMipImprovingSolution):
            self.highs.startCallback(kind)

    def _on_callback(self, kind: int, message: str, data_out: _Reported, data_in: _Answer, user_data: object) -> None:
        improves = kind == int(self._kinds.kCallbackMipImprovingSolution)
        looks_up = kind == int(self._kinds.kCallbackMipInterrupt)
        self.steps += looks_up
        limit = self._task.options.step_limit
        try:
            if improves:
                self._values = np.array(data_out.mip_solution)
                if self._task.options.on_point is not None:
                    self._task.options.on_point(data_out.objective_function_value / self._cost_scale, self._values)
            if (improves or looks_up) and not self._cancelled:
                self._bound = data_out.mip_dual_bound / self._cost_scale
                self._report(data_out)
            if looks_up and not self._cancelled and self._task.options.on_step is not None:
                self._task.options.on_step(self.steps, self._bound or 0.0)
        except Exception as error:  # an exception must not travel through C++; it is raised again after the run
            self.callback_error = error
            self._cancelled = True
        if not improves and (self._cancelled or (limit is not None and self.steps > limit)):
            data_in.user_interrupt = True

    def _report(self, data_out: _Reported) -> None:
        if self._task.options.on_progress is None or self.callback_error is not None:
            return
        incumbent, now_s = data_out.mip_primal_bound, self._task.deadline.elapsed_s
        is_news = incumbent != self._reported_incumbent and math.isfinite(incumbent)
        if is_news or now_s - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s, self._reported_incumbent = now_s, incumbent
            bound = data_out.mip_dual_bound / self._cost_scale
            self._task.report(incumbent / self._cost_scale, bound, steps=self.steps)
