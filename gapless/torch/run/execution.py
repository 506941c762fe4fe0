"""A plan for a user's model, made, executed, measured, and compared with what there is without it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapless import recipe
from gapless.profiles.training.graph import TrainingGraph
from gapless.recipe import Result
from gapless.system import Problem
from gapless.text import described, words
from gapless.torch.capture.graph import capture
from gapless.torch.capture.timing import profile
from gapless.torch.run.comparison import Method, compare, eager_peak_bytes
from gapless.torch.run.step import Step, run
from gapless.torch.run.step_plan import planned
from gapless.torch.run.workload import Workload
from gapless.units import format_bytes, format_seconds

__all__ = ["Execution", "run_and_compare"]

_DETAILS = ("recompute_s", "overhead", "overhead_bound")


@dataclass(frozen=True)
class Execution:
    """A plan that was executed. `train`: None where no plan was found; then `methods` is empty."""

    result: Result
    budget_bytes: int
    train: Step | None
    methods: tuple[Method, ...]

    @property
    def data(self) -> dict[str, Any]:
        """What was planned and measured, in plain values."""
        return {
            "problem": self.result.problem.system,
            "status": self.result.status.value,
            "budget_bytes": self.budget_bytes,
            "peak_bytes": None if self.train is None else self.train.plan.peak_bytes,
            **{key: self.result.details[key] for key in _DETAILS if key in self.result.details},
            "gap": self.result.solution.gap,
            "solve_s": self.result.solution.wall_s,
            "close": {} if self.train is None else self.train.close,
            "methods": [vars(method) for method in self.methods],
        }

    @property
    def text(self) -> str:
        """The same for people: the plan's values, and a table of the methods."""
        data = self.data
        shown = ("status", "budget_bytes", "peak_bytes", "overhead", "overhead_bound")
        lines = [f"{words(name):<16} {described(name, data[name])}" for name in shown if name in data]
        if data["close"]:
            lines.append(f"{'close':<16} {', '.join(f'{kind} {count}' for kind, count in data['close'].items())}")
        return "\n".join([*lines, _table(self.methods)])


def run_and_compare(
    work: Workload,
    question: Callable[[TrainingGraph, int], Problem],
    *,
    budget_bytes: int = 0,
    eager_share: float | None = None,
    name: str = "",
    close: Collection[str] = (),
    cache: str | Path | None = None,
    steps: int = 5,
    solve: Callable[[Problem], Result] = recipe.solve,
    report: Callable[[str], None] = lambda text: None,
) -> Execution:
    """Capture a workload's step, time its operators, solve, run the plan, and measure it beside other methods.

    `question`: makes the problem of a training graph and a budget in bytes. `eager_share`: the budget as a share of
    eager's measured peak, in the place of `budget_bytes`. `close`, `cache`: as for `capture` and `profile`. `steps`: to
    time for each method. `report`: is called with what is done next.
    """
    report("capturing")
    step = capture(work.model, work.inputs, work.loss, targets=work.targets, name=name, close=close)
    report(f"timing {len(step.graph.forward)} forward and {len(step.graph.backward)} backward nodes")
    step = profile(step, cache)
    if eager_share is not None:
        budget_bytes = max(int(eager_share * eager_peak_bytes(work)), 1)
    result = solve(question(step.graph, budget_bytes))
    if not result.valid:
        return Execution(result, budget_bytes, None, ())
    report("running")
    train = run(planned(step, result), work.model)
    return Execution(result, budget_bytes, train, tuple(compare(work, train, steps)))


def _table(methods: tuple[Method, ...]) -> str:
    rows = [("method", "measured peak", "time a step", "gradients")]
    for method in methods:
        if method.peak_bytes is None or method.step_s is None:
            rows.append((method.name, "-", "-", method.note))
        else:
            equal = "equal to eager's" if method.is_equal else f"off by {method.difference:.1g} of their norm"
            if not method.keeps_buffers:
                equal += ", buffers differ"
            rows.append((method.name, format_bytes(method.peak_bytes), format_seconds(method.step_s), equal))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}" for a, b, c, d in rows)
