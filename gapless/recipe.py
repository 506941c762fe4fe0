"""The recipe of every solve: the problem's system makes a plan, the replay says whether it is true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gapless.checker import check
from gapless.options import Deadline, SolveOptions
from gapless.progress_log import ProgressLog
from gapless.result import Result
from gapless.solution import Status, StopReason
from gapless.system import Problem, find_system
from gapless.versions import library_versions

__all__ = ["solve"]


def solve(problem: Problem, options: SolveOptions | None = None, parameters: Any = None, command: str = "") -> Result:
    """Solve a problem and replay its schedule.

    `parameters`: what the system's searches may be tuned by; None for its defaults. `command`: what somebody typed, for
    the plan file. That nothing was found, or that there is nothing to find, is said by `result.status`. Raises
    `InputError` for options or a problem that make no sense, `SolverError` where a backend is missing or fails.
    """
    options = options or problem.default_options
    log, deadline = ProgressLog(options.on_progress), Deadline(options)
    plan = find_system(problem.system).plan(problem, replace(deadline.stage(), on_progress=log), parameters)
    report = None if plan.schedule is None else check(plan.schedule)
    solution = plan.solution
    if deadline.has_struck and solution.status is not Status.INFEASIBLE and not options.stop.is_set():
        solution = replace(solution, stop_reason=StopReason.TIME_LIMIT)
    run = {
        **({"command": command} if command else {}),
        "versions": library_versions(),
        "solve_s": round(plan.solution.wall_s, 6),
        "timings": dict(plan.timings),
        "convergence": None if log.convergence is None else log.convergence.data,
    }
    asked = plan.problem or problem
    return Result(asked, solution, plan.schedule, report, plan.details, plan.timings, plan.product, run)
