"""The recipe of every solve: the problem's encoding makes a plan, the replay says whether it is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gapless.checker import Report, check
from gapless.options import SolveOptions
from gapless.schedule import Schedule
from gapless.solution import Solution, Status

__all__ = ["Plan", "Problem", "Result", "solve"]


@dataclass(frozen=True)
class Plan:
    """What an encoding claims: a schedule (None if it found none), the solver's words on it, and details by name.

    `product`: what the schedule was made from, for an encoding that has files of its own. `problem`: what the schedule
    solves, where the encoding had to choose that as well.
    """

    solution: Solution
    schedule: Schedule | None
    details: Mapping[str, Any] = field(default_factory=dict)
    product: Any = None
    problem: Problem | None = None


class Problem(Protocol):
    """A scheduling problem; `gapless.encodings.<system>.Problem` are its kinds."""

    @property
    def system(self) -> str:
        """The name on the command line: taccl, monet, bagpipe, cupcake."""

    @property
    def description(self) -> dict[str, Any]:
        """What was asked, in plain values, for the plan file."""

    @property
    def default_options(self) -> SolveOptions:
        """The options for a caller who gives none."""

    def plan(self, options: SolveOptions) -> Plan:
        """Encode, solve and decode."""


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


def solve(problem: Problem, options: SolveOptions | None = None) -> Result:
    """Solve a problem and replay its schedule.

    That nothing was found, or that there is nothing to find, is told by `result.status`. Raises `InputError` for
    options or a problem that make no sense, `SolverError` where a backend is missing or fails.
    """
    plan = problem.plan(options or problem.default_options)
    report = None if plan.schedule is None else check(plan.schedule)
    return Result(plan.problem or problem, plan.solution, plan.schedule, report, plan.details, plan.product)
