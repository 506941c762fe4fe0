"""Plans for captured steps: the MONeT solver on the captured graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gapless.checker import check
from gapless.encodings.monet import Problem
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.retention import just_in_time
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.options import SolveOptions
from gapless.recipe import Result, solve
from gapless.schedule import Schedule
from gapless.torch.capture.program import CapturedStep

__all__ = ["TorchPlan", "keep_all", "keep_all_peak_bytes", "load", "plan"]


@dataclass(frozen=True)
class TorchPlan:
    """A schedule for a captured step, replayed clean. `result`: of its solve, None where there was none."""

    step: CapturedStep
    schedule: Schedule
    peak_bytes: int
    result: Result | None = None


def plan(step: CapturedStep, budget_bytes: int, options: SolveOptions | None = None) -> TorchPlan:
    """The fastest step found that never holds more than the budget, in bytes above parameters, buffers and inputs.

    `step` should be profiled, since an operator's workspace counts. Raises `InputError` where no plan was found; the
    least budget that any plan needs is named where it was proven.
    """
    result = solve(Problem(step.graph, budget_bytes), options)
    if result.schedule is None or result.report is None or not result.valid:
        least = result.details.get("least_budget_bound_bytes")
        found = result.details.get("least_budget_found_bytes")
        way_out = f"; every plan needs at least {least} bytes, one was found for {found}" if least is not None else ""
        raise InputError(f"budget {budget_bytes} bytes: {result.status.value}{way_out}")
    return TorchPlan(step, result.schedule, result.report.peak_bytes[0], result)


def load(path: str | Path, step: CapturedStep) -> TorchPlan:
    """A plan from a file, for a step that was captured from the same model with the same shapes.

    Raises `InputError` where the file's plan is of another graph or doesn't replay clean.
    """
    schedule = read_plan(path).schedule
    report = check(schedule)
    if not report.valid:
        raise InputError(f"{path}: {report.summary()}")
    graph = step.graph
    names = ("input and parameters", *(node.name for node in graph.forward))
    sizes = (graph.fixed_bytes, *(node.output_bytes for node in graph.forward))
    found = tuple(schedule.graph.tensor_names[: len(names)]), tuple(schedule.graph.size_bytes[: len(sizes)].tolist())
    if found != (names, sizes):
        raise InputError(
            f"{path}: is a plan for another step than {graph.name!r}; capture with the shapes it was made for"
        )
    return TorchPlan(step, schedule, report.peak_bytes[0])


def keep_all(step: CapturedStep) -> TorchPlan:
    """The plan that recomputes nothing, as an eager framework does it, all implementations by default."""
    graph = step.graph
    kept = np.ones(len(graph.forward), dtype=np.bool_)
    decisions = just_in_time(graph, kept, np.zeros(len(graph.backward), dtype=np.int64))
    schedule = to_schedule(graph, decisions)
    return TorchPlan(step, schedule, check(schedule).peak_bytes[0])


def keep_all_peak_bytes(step: CapturedStep) -> int:
    """The peak of a step that recomputes nothing, above parameters, buffers and inputs."""
    return keep_all(step).peak_bytes
