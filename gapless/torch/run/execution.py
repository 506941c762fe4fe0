"""A plan for a user's model, made, executed, measured, and compared with what there is without it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from gapless.io.atomic import check_writable
from gapless.options import SolveOptions
from gapless.profiles.training.graph import TrainingGraph
from gapless.question.entry import Entry
from gapless.question.fields import Share
from gapless.recipe import solve
from gapless.result import Result
from gapless.system import Problem, find_system
from gapless.torch.capture.graph import capture
from gapless.torch.capture.timing import profile
from gapless.torch.joint_graph import TOLERANCE
from gapless.torch.run.comparison import Method, compare, eager_peak_bytes
from gapless.torch.run.step import Step, run
from gapless.torch.run.step_plan import planned
from gapless.torch.run.workload import Workload
from gapless.units import format_bytes, format_seconds

__all__ = ["Execution", "run_and_compare"]


@dataclass(frozen=True)
class Execution:
    """A plan that was executed.

    `train`: the step as it was planned, None where no plan was found; then `methods` is empty. `plan`: its file.
    `refusal`: that the step is further from eager's than the tolerance, empty where it isn't.
    """

    result: Result
    budget_bytes: int
    train: Step | None = None
    methods: tuple[Method, ...] = ()
    plan: str | None = None
    refusal: str = ""

    @property
    def data(self) -> dict[str, object]:
        """What was planned and measured, in plain values."""
        return {
            **self.result.data,
            "budget_bytes": self.budget_bytes,
            "predicted_peak_bytes": None if self.train is None else self.train.plan.peak_bytes,
            "close": {} if self.train is None else self.train.close,
            "methods": [vars(method) for method in self.methods],
            "plan": self.plan,
        }

    @property
    def text(self) -> str:
        """The same for people: the plan's summary, and a table of the methods."""
        lines = [self.result.summary()]
        if self.train is not None and self.train.close:
            lines.append(f"{'close':<16} {', '.join(f'{kind} {count}' for kind, count in self.train.close.items())}")
        return "\n".join([*lines, _table(self.methods, self._predicted)] if self.methods else lines)

    @property
    def _predicted(self) -> tuple[str, str, str, str]:
        assert self.result.report is not None
        assert self.train is not None
        times = format_bytes(self.train.plan.peak_bytes), format_seconds(self.result.report.makespan_s)
        return "gapless, predicted", *times, ""


def run_and_compare(
    work: Workload,
    question: Callable[[TrainingGraph, int], Problem],
    budget: int | Share,
    options: SolveOptions | None = None,
    *,
    name: str = "",
    close: Collection[str] = (),
    cache: str | Path | None = None,
    steps: int = 5,
    tolerance: float = TOLERANCE,
    parameters: object = None,
    command: str = "",
    output: str | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Execution:
    """Capture a workload's step, time its operators, solve, run the plan, and measure it beside other methods.

    `question`: makes the problem of a training graph and a budget in bytes. `budget`: bytes above parameters, buffers
    and inputs, or a share of eager's measured peak. `close`, `cache`: as for `capture` and `profile`. `steps`: to time
    for each method. `tolerance`: the most that loss, gradients and buffers may be off eager's, of their norm.
    `parameters`: of the searches. `output`: the plan's file, written before the plan runs. `report`: is called with
    what is done next.
    """
    if output is not None:
        check_writable(output)
    report("capturing ...")
    step = capture(work.model, work.inputs, work.loss, targets=work.targets, name=name, close=close)
    report(f"timing {len(step.graph.forward)} forward and {len(step.graph.backward)} backward nodes ...")
    step = profile(step, cache)
    budget_bytes = max(int(budget.ratio * eager_peak_bytes(work)), 1) if isinstance(budget, Share) else budget
    problem = question(step.graph, budget_bytes)
    tuned = Entry(find_system(problem.system)).parameters(parameters)
    result = solve(problem, options or problem.default_options, tuned, command)
    if not result.valid:
        return Execution(result, budget_bytes)
    step_plan = planned(step, result)
    if output is not None:
        step_plan.save(output)
    report("running ...")
    train = run(step_plan, work.model, tolerance=None)  # which the table compares as it does all methods
    methods = tuple(compare(work, train, steps))
    return Execution(result, budget_bytes, train, methods, output, _refusal(methods[-1], tolerance))


def _refusal(method: Method, tolerance: float) -> str:
    off = max(method.difference or 0.0, method.buffer_difference or 0.0)
    if off <= tolerance:
        return ""
    kind = "a buffer" if off == method.buffer_difference else "the loss or a gradient"
    rule = (
        f"the planned step must equal eager's: {kind} is off by {off:.1g} of its norm, the tolerance is {tolerance:g}"
    )
    return f"{rule}; train without the plan, or give a --tolerance that allows for it"


def _table(methods: tuple[Method, ...], predicted: tuple[str, str, str, str]) -> str:
    rows = [("method", "measured peak", "time a step", "gradients")]
    for method in methods:
        if method.peak_bytes is None or method.step_s is None:
            rows.append((method.name, "-", "-", method.note))
        else:
            equal = "equal to eager's" if method.is_equal else f"off by {method.difference:.1g} of their norm"
            if not method.keeps_buffers:
                equal += ", buffers differ"
            rows.append((method.name, format_bytes(method.peak_bytes), format_seconds(method.step_s), equal))
    rows.append(predicted)
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}" for a, b, c, d in rows)
    return "\n".join(line.rstrip() for line in lines)
