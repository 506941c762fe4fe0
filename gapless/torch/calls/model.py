"""A model whose calls follow plans within a budget: the loop around it stays as it is.

::

    model = gapless.torch.planned(model, budget="0.6x")
    loss = criterion(model(images), labels)
    loss.backward()

A call is planned when one like it comes first: of these shapes and types, in this mode, with these constants.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Literal, TypeAlias

from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.torch.calls.code import CallProgram
from gapless.torch.calls.functions import Flight, outputs_of
from gapless.torch.calls.kept import KeptPlans
from gapless.torch.capture.calls import ModelCall
from gapless.torch.capture.graph import capture_call
from gapless.torch.capture.model_state import ModelState, ModelWatch, check_traceable, refuse_inner_hooks
from gapless.torch.capture.program import CapturedStep, InputShape
from gapless.torch.library import Module, Tensor, named_tensors, torch, tree_flatten
from gapless.torch.run.step_plan import StepPlan
from gapless.units import format_bytes

__all__ = ["Planned", "planned", "unplanned"]

OnNew: TypeAlias = Literal["plan", "eager", "refuse"]
_ON_NEW = ("plan", "eager", "refuse")


def planned(
    model: Module,
    budget: str | int,
    *,
    on_new: OnNew = "plan",
    close: Collection[str] = (),
    cache: str | Path | None = None,
    options: SolveOptions | None = None,
    report: Callable[[str], None] | None = None,
) -> Module:
    """Let the calls of a model follow plans, each within a budget of memory. Returns the same model.

    What a call returns has gradients as ever: `backward()`, accumulation, scaling, clipping, hooks on parameters,
    optimisers and checkpoints are PyTorch's. Without gradients the model runs as before. `unplanned` takes it back.

    `budget`: of a call's activations and gradients, in bytes above parameters, buffers and arguments, or a share of
    what it takes without a plan, as "0.6x". Outputs count as held until the gradients are there; a loss that is
    computed outside of the model has memory of its own. `on_new`: what a call does that has no plan yet: "plan" makes
    one, "eager" runs without, "refuse" raises `InputError`. `close`: as for `capture`. `cache`: a folder that keeps
    plans and operators' times by all that they rest on, so that nothing is timed or solved again; or a `.json` file
    of times alone, as for `profile`. `report`: is called with a line for each new plan; by default it goes to stderr.

    Raises `InputError` for a wrong argument; a call, where the model can't be captured or nothing fits the budget.
    """
    if on_new not in _ON_NEW:
        raise InputError(f"on_new: must be one of {', '.join(_ON_NEW)}, got {on_new!r}")
    check_traceable(model)
    if isinstance(model.__dict__.get("forward"), Planned):
        raise InputError("model: follows plans already; gapless.torch.unplanned(model) takes that back")
    model.forward = Planned(model, budget, on_new, tuple(close), cache, options, report or _say)
    return model


def unplanned(model: Module) -> Module:
    """The same model as before `planned`. Raises `InputError` for one that follows no plans."""
    if not isinstance(model.__dict__.get("forward"), Planned):
        raise InputError("model: follows no plans")
    del model.forward
    return model


def _say(text: str) -> None:
    print(f"gapless: {text}", file=sys.stderr)


@dataclass(frozen=True)
class _Entry:
    """A kind of calls, planned. `differentiable`: the outputs that may get a gradient."""

    call: ModelCall
    step: CapturedStep
    program: CallProgram
    differentiable: frozenset[int]


class Planned:
    """The forward pass of a model by plans. `plans`: of the kinds of calls that have come, in their order."""

    def __init__(
        self,
        model: Module,
        budget: str | int,
        on_new: OnNew,
        close: tuple[str, ...],
        cache: str | Path | None,
        options: SolveOptions | None,
        report: Callable[[str], None],
    ) -> None:
        self._model, self._forward = model, model.forward
        self.__signature__ = signature(model.forward)  # by which trainers know what a model takes
        self._on_new, self._close, self._report = on_new, close, report
        self._kept = KeptPlans(budget, options, cache, report)
        self._entries: dict[object, _Entry | None] = {}
        self._states: list[ModelState] = []
        self._watch: tuple[ModelWatch, int] | None = None
        self.plans: list[StepPlan] = []

    def __getstate__(self) -> dict[str, object]:
        """Copies plan anew: what is planned names the tensors of this model."""
        return {**self.__dict__, "_entries": {}, "_states": [], "_watch": None, "plans": []}

    def __call__(self, *arguments: object, **named: object) -> object:
        """What the model returns."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._forward(*arguments, **named)
        parts, structure = tree_flatten((arguments, named))
        state = self._state()
        key = (structure, state, _autocast(), *map(_kind, parts))
        if key not in self._entries:
            self._entries[key] = self._new(arguments, named, state)
        entry = self._entries[key]
        if entry is None:
            return self._forward(*arguments, **named)
        return self._run(entry, [part for part in parts if isinstance(part, torch.Tensor)])

    def _new(self, arguments: tuple[object, ...], named: Mapping[str, object], state: int) -> _Entry | None:
        if self._on_new == "eager":
            return None
        call = ModelCall(self._model, self._forward, arguments, named)
        shapes = ", ".join(str(list(leaf.shape)) for leaf in call.leaves)
        if self._on_new == "refuse":
            raise InputError(
                f"planned: no plan for arguments of {shapes}; on_new='plan' makes one, 'eager' runs without"
            )
        step = capture_call(self._model, call, self._close)
        self._states[state], self._watch = step.state, None  # which knows what the forward pass itself changes
        plan, source = self._kept.plan(step, shapes)
        self.plans.append(plan)
        status = "" if plan.result is None else f", {plan.result.status.value}"
        made = f"took the plan {source} for" if source else "planned"
        self._report(f"{made} a call of {shapes}: at most {format_bytes(plan.peak_bytes)}{status}")
        program = CallProgram(plan, named_tensors(self._model)["parameter"])
        tangents = frozenset(role.index for role in step.roles.values() if role.kind == "tangent")
        return _Entry(call, step, program, tangents)

    def _run(self, entry: _Entry, leaves: list[Tensor]) -> object:
        tensors = named_tensors(self._model)
        placed: list[Tensor | None] = []
        for role in entry.step.roles.values():
            if role.kind == "input":
                placed.append(leaves[role.index])
            else:
                placed.append(None if role.kind == "tangent" else tensors[role.kind][role.name])
        running = entry.program.start([*placed, *entry.step.constants.values()])
        trained = [
            [*(tensors["parameter"][name] for name in segment.parameters), *(leaves[k] for k in segment.arguments)]
            for segment in entry.program.segments
        ]
        return entry.call.result(outputs_of(Flight(running, entry.program.segments, trained, entry.differentiable)))

    def _state(self) -> int:
        """The number of the state that the model is in: modes, settings, what is trained and tied."""
        if self._watch is not None and self._watch[0].is_unchanged():
            return self._watch[1]
        refuse_inner_hooks(self._model)
        now = ModelState.of(self._model)
        number = next((k for k, state in enumerate(self._states) if state.fits(now)), len(self._states))
        if number == len(self._states):
            self._states.append(now)
        self._watch = ModelWatch(self._model, None, self._states[number].advanced, are_hooked=True), number
        return number


def _kind(part: object) -> object:
    """What a plan rests on of an argument."""
    if not isinstance(part, torch.Tensor):
        return part
    shape = InputShape.of(part)
    return (*shape.shape, shape.dtype, shape.device, *shape.layout, part.requires_grad)


def _autocast() -> tuple[object, ...]:
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    return tuple((kind, torch.get_autocast_dtype(kind)) for kind in kinds)
