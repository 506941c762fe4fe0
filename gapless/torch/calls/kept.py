"""Plans of calls that are kept, in memory and in a folder, by all that they rest on.

What a call's plan rests on is the structure of its captured graph, the budget, the options of the solve, and the
machine. A call is captured whenever a process meets it first, so that a changed model asks for another plan; what is
found for its key is neither timed nor solved again. Numbers that aren't whole (a temperature, the share of a dropout)
are no part of the structure: no memory depends on them, so that a schedule of such numbers needs one plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from gapless.errors import InputError
from gapless.io.atomic import make_folder
from gapless.io.record import Record
from gapless.options import SolveOptions
from gapless.question.entry import Entry
from gapless.recipe import solve
from gapless.result import Result
from gapless.result import load as load_result
from gapless.system import find_system, system_names
from gapless.torch.capture.program import CapturedStep, Operator
from gapless.torch.capture.storages import tensors_in
from gapless.torch.capture.timing import profile
from gapless.torch.devices import device_of
from gapless.torch.library import Argument, Node, torch
from gapless.torch.run.step_plan import StepPlan, planned

__all__ = ["KeptPlans", "plan_key"]

CALL = "call"
"""The name of the record among a plan's details."""
_TIMES = "operators.json"
_MOST_KEPT = 64
"""Plans in memory; those that were used last stay."""
_SOLVE = ("time_limit_s", "gap", "seed", "solver", "step_limit")
"""Of the options of a solve, those that its plan depends on."""


class KeptPlans:
    """Plans that were found for the calls of a model. `cache`: a folder, or a `.json` file of times alone."""

    def __init__(
        self,
        budget: str | int,
        options: SolveOptions | None,
        cache: str | Path | None,
        report: Callable[[str], None],
    ) -> None:
        self._budget, self._options, self._report = budget, options, report
        path = None if cache is None else Path(cache)
        is_file = path is not None and (path.is_file() or (path.suffix == ".json" and not path.is_dir()))
        self._folder = None if is_file else path
        if self._folder is not None:
            make_folder(self._folder)
        self._times = path if self._folder is None else self._folder / _TIMES
        self._found: dict[str, Result] = {}

    def __getstate__(self) -> dict[str, object]:
        """Copies have the files, and what is in memory is of another process."""
        return {**self.__dict__, "_found": {}}

    def plan(self, step: CapturedStep, shapes: str) -> tuple[StepPlan, str]:
        """The plan of a captured call, and where it is from. `shapes`: of its arguments, for people.

        Raises `InputError` where nothing fits the budget, and for a damaged file of operators' times.
        """
        key = plan_key(step, self._budget, self._options)
        if key in self._found:
            result, source = self._found.pop(key), "of a call before with this graph"
        elif (read := self._read(key, step)) is not None:
            result, source = read, f"from {self._path(key)}"
        else:
            result, source = self._solved(step), ""
            planned(step, result)  # raises where there is none
            self._keep(key, result, shapes)
        self._found[key] = result
        if len(self._found) > _MOST_KEPT:
            del self._found[next(iter(self._found))]
        return planned(step, result), source

    def _solved(self, step: CapturedStep) -> Result:
        system = next(find_system(name) for name in system_names() if find_system(name).plans_steps)
        problem = Entry(system).problem(profile(step, self._times).graph, budget=self._budget)
        return solve(problem, self._options or problem.default_options)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / f"call-{key[:32]}.json"

    def _read(self, key: str, step: CapturedStep) -> Result | None:
        """The plan in the file of a key; None where there is none, or it is damaged or of something else."""
        if self._folder is None or not self._path(key).exists():
            return None
        try:
            result = load_result(self._path(key))
            record = Record(result.details.get(CALL), f"{self._path(key)}: details: {CALL}")
            if record.text("key") != key:
                raise InputError(f"{record.where}: key: must be {key}, got {record.text('key')}")
            planned(step, result)  # raises where it is of another graph
        except InputError as error:
            text = str(error)
            place = "" if text.startswith(str(self._folder)) else f"{self._path(key)}: "
            self._report(f"{place}{text}; planned anew, and the file is replaced")
            return None
        return result

    def _keep(self, key: str, result: Result, shapes: str) -> None:
        if self._folder is None:
            return
        data = {"key": key, "arguments": shapes, "pytorch": str(torch.__version__), "budget": str(self._budget)}
        try:
            replace(result, details={**result.details, CALL: data}).save(self._path(key))
        except InputError as error:
            self._report(f"{error}; the plan is not kept")


def plan_key(step: CapturedStep, budget: str | int, options: SolveOptions | None) -> str:
    """What a plan rests on, as a hexadecimal number: equal keys, and one's plan is the other's."""
    wanted = None if options is None else [getattr(options, name) for name in _SOLVE]
    where = f"{device_of(step.device).name}, PyTorch {torch.__version__}"
    graph = step.graph
    nodes = [repr(node) for node in (*graph.forward, *graph.backward)]
    operators = ["" if operator is None else _operator_text(operator, step) for operator in step.operators]
    tangents = sorted(role.index for role in step.roles.values() if role.kind == "tangent")
    limits = [repr(budget), repr(wanted), str(graph.fixed_bytes), repr(step.close), repr(tangents)]
    parts = [where, *limits, *nodes, *operators]
    return sha256("\n".join(parts).encode()).hexdigest()


def _operator_text(operator: Operator, step: CapturedStep) -> str:
    """The calls of an operator with the layouts of what they read and return."""

    def text(argument: Argument) -> str:
        if isinstance(argument, torch.fx.Node):
            return _layouts(argument, step)
        if isinstance(argument, float):
            return "number"
        if isinstance(argument, tuple | list):
            return f"[{', '.join(map(text, argument))}]"
        return str(argument)

    calls = [
        f"{getattr(call.function, '__qualname__', call.function)}({', '.join(map(text, call.arguments))}; "
        f"{', '.join(f'{name}={text(value)}' for name, value in call.options.items())}) {call.name} {call.needs}"
        for call in operator.calls
    ]
    made = [f"{place} {holder} {_layouts(value, step)}" for value, place, holder in operator.values]
    gradients = [f"{gradient.parameter} {gradient.is_taken}" for gradient in operator.gradients]
    return " | ".join((operator.name, *calls, *made, *gradients))


def _layouts(node: Node, step: CapturedStep) -> str:
    tensors = tensors_in(step.storages.fake[node])
    return " ".join(f"{tensor.dtype}{list(tensor.shape)}/{list(tensor.stride())}" for tensor in tensors)
