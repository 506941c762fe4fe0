"""Plans for captured steps: schedules of their training graphs, solved for or read from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gapless.checker import check
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.options import SolveOptions
from gapless.recipe import solve
from gapless.result import Result
from gapless.schedule import Schedule
from gapless.system import Problem, find_system
from gapless.torch.capture.program import CapturedStep

__all__ = ["StepPlan", "load", "plan", "planned", "reason_without_plan"]


@dataclass(frozen=True)
class StepPlan:
    """A schedule for a captured step, replayed clean. `result`: of its solve, None where there was none.

    Raises `InputError` for the schedule of another graph.
    """

    step: CapturedStep
    schedule: Schedule
    peak_bytes: int
    result: Result | None = None

    def __post_init__(self) -> None:
        graph, planned = self.step.graph, self.schedule.graph
        names = ("input and parameters", *(node.name for node in graph.forward))
        sizes = (graph.fixed_bytes, *(node.output_bytes for node in graph.forward))
        found = tuple(planned.tensor_names[: len(names)]), tuple(planned.size_bytes[: len(sizes)].tolist())
        if found != (names, sizes):
            rule = f"plan must be for the step {graph.name!r}, is for another"
            raise InputError(f"{rule}; capture with the shapes that it was made for")

    @classmethod
    def of(cls, step: CapturedStep, schedule: Schedule) -> StepPlan:
        """A plan of any origin. Raises `InputError` where it doesn't replay clean, and for another step's."""
        report = check(schedule)
        if not report.valid:
            raise InputError(f"plan must replay clean: {report.summary()}")
        return cls(step, schedule, report.peak_bytes[0])


def plan(step: CapturedStep, problem: Problem, options: SolveOptions | None = None) -> StepPlan:
    """The solution of a problem on the step's graph, such as the least time within a memory budget.

    `step` should be profiled, since an operator's workspace counts; a budget is in bytes above parameters, buffers and
    inputs. Raises `InputError` where no plan was found, with the reason.
    """
    return planned(step, solve(problem, options))


def planned(step: CapturedStep, result: Result) -> StepPlan:
    """The plan of a solved problem. Raises `InputError` where there is none."""
    if result.schedule is None or result.report is None or not result.valid:
        raise InputError(reason_without_plan(result))
    return StepPlan(step, result.schedule, result.report.peak_bytes[0], result)


def reason_without_plan(result: Result) -> str:
    """Why a solve made no plan, with what the system remarks on it, such as the least budget that has one."""
    return "; ".join([f"no plan: {result.status.value}", *find_system(result.problem.system).remarks(result.details)])


def load(path: str | Path, step: CapturedStep) -> StepPlan:
    """A plan from a file, for a step that was captured from the same model with the same shapes.

    Raises `InputError` where the file's plan is of another graph or doesn't replay clean.
    """
    schedule = read_plan(path).schedule
    try:
        return StepPlan.of(step, schedule)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
