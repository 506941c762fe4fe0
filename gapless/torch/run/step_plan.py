"""Plans for captured steps: schedules of their training graphs, solved for or read from a file.

A plan file has a record of the capture that its plan is for, in plain values: nothing in it is code. The model itself
isn't in it. It says how to capture the step again: the arguments' structure, shapes, types and devices, the kinds of
close implementations. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from gapless.checker import check
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.io.record import Record
from gapless.ir.schedule import Schedule
from gapless.options import SolveOptions
from gapless.recipe import solve
from gapless.result import Result
from gapless.system import Problem, find_system
from gapless.torch.capture.program import CapturedStep, InputShape
from gapless.torch.joint_graph import CLOSE
from gapless.torch.library import torch, tree_unflatten

__all__ = ["CAPTURE", "StepPlan", "capture_data", "example_arguments", "load", "plan", "planned", "reason_without_plan"]


CAPTURE = "capture"
"""The name of the record among a plan's details."""
_CONTAINERS: dict[str, Callable[[Iterable[object]], object]] = {"tuple": tuple, "list": list}
_TYPES = {str(kind).removeprefix("torch."): kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}


def capture_data(step: CapturedStep) -> dict[str, object]:
    """The record of a captured step. Raises `InputError` for arguments that are not nested tuples, lists, mappings."""
    arguments, named, targets = tree_unflatten(step.inputs, step.structure)
    return {
        "name": step.graph.name,
        "close": list(step.close),
        "pytorch": str(torch.__version__),
        "is_training": step.state.is_training,
        "inputs": _data(named or arguments),
        "targets": _data(targets),
    }


def example_arguments(record: Record) -> tuple[tuple[object, ...] | dict[str, object], tuple[object, ...]]:
    """Inputs and targets in the shapes of a record, with nothing in them."""
    inputs, targets = (_example(record.record(key)) for key in ("inputs", "targets"))
    is_known = all(kind in CLOSE for kind in record.array("close"))
    if not (is_known and isinstance(targets, tuple) and isinstance(inputs, tuple | dict)):
        raise InputError(f"{record.where}: must be as `save` wrote it; write the file again")
    return inputs, targets


def _data(value: object) -> dict[str, object]:
    title = type(value).__name__
    if isinstance(value, tuple | list) and type(value) in _CONTAINERS.values():
        return {title: [_data(part) for part in value]}
    if isinstance(value, dict) and title == "dict" and all(isinstance(key, str) for key in value):
        return {"dict": {key: _data(part) for key, part in value.items()}}
    if not isinstance(value, InputShape):
        raise InputError(f"save: inputs must be nested tuples, lists and dicts of tensors, got a {title}")
    return {
        "shape": list(value.shape), "strides": list(value.strides),
        "dtype": str(value.dtype).removeprefix("torch."), "device": str(value.device),
    }  # fmt: skip


def _example(record: Record) -> object:
    for title, kind in _CONTAINERS.items():
        if title in record:
            return kind(_example(part) for part in record.records(title))
    if "dict" in record:
        parts = record.record("dict")
        return {key: _example(parts.record(key)) for key in parts.names()}
    shape, strides = (record.integers(key, 0, 2**40) for key in ("shape", "strides"))
    kind = _TYPES[record.text("dtype", _TYPES)]
    try:
        return torch.empty_strided(shape, strides, dtype=kind, device=record.text("device"))
    except (RuntimeError, AssertionError) as error:  # a GPU that isn't there, strides that don't fit
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{record.where}: a tensor of it can't be made: {reason}") from None


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
        wanted = [
            (graph.fixed_bytes, "input and parameters"),
            *((node.output_bytes, node.name) for node in graph.forward),
            *((node.output_bytes, f"gradients of {node.name}") for node in graph.backward),
        ]
        tensors = list(zip(planned.size_bytes.tolist(), planned.tensor_names, strict=True))[: len(wanted)]
        if tensors != wanted:
            pairs = zip_longest(tensors, wanted, fillvalue=(0, "nothing"))
            (size, name), (own_size, own_name) = next(pair for pair in pairs if pair[0] != pair[1])
            rule = f"plan must be for the step {graph.name!r}, is for another"
            differ = f"it has {name} of {size} bytes, the step {own_name} of {own_size}"
            raise InputError(f"{rule}: {differ}; capture the model and the shapes that it was made for")

    def save(self, path: str | Path) -> None:
        """Write the plan with its capture to a file, a plan file that `gapless.torch.load` makes a step of.

        Raises `InputError` for a plan that no solve has made, and where the arguments are not nested tuples, lists and
        mappings.
        """
        if self.result is None:
            raise InputError("plan: was not solved for, so that a file could say what was asked; make it by `plan`")
        details = {**self.result.details, CAPTURE: capture_data(self.step)}
        replace(self.result, details=details).save(path)

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
