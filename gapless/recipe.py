"""The recipe of every solve: the problem's system makes a plan, the replay says whether it is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gapless.checker import Report, check
from gapless.options import SolveOptions
from gapless.schedule import Schedule
from gapless.solution import Solution, Status
from gapless.system import Problem, find_system

__all__ = ["Result", "solve"]


@dataclass(frozen=True)
class Result:
    """A solved problem: what the solver claims (`solution`) and what the replay found (`report`).

    `run`: how it was solved, as the command line keeps it in the plan file; empty where nobody noted it.
    """

    problem: Problem
    solution: Solution
    schedule: Schedule | None
    report: Report | None
    details: Mapping[str, Any]
    timings: Mapping[str, float] = field(default_factory=dict)
    product: Any = None
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The status of the solution."""
        return self.solution.status

    @property
    def valid(self) -> bool:
        """Whether there is a schedule that replays clean."""
        return self.report is not None and self.report.valid


def solve(problem: Problem, options: SolveOptions | None = None, parameters: Any = None) -> Result:
    """Solve a problem and replay its schedule.

    `parameters`: what the system's searches may be tuned by; None for its defaults. That nothing was found, or that
    there is nothing to find, is said by `result.status`. Raises `InputError` for options or a problem that make no
    sense, `SolverError` where a backend is missing or fails.
    """
    plan = find_system(problem.system).plan(problem, options or problem.default_options, parameters)
    report = None if plan.schedule is None else check(plan.schedule)
    asked = plan.problem or problem
    return Result(asked, plan.solution, plan.schedule, report, plan.details, plan.timings, plan.product)
