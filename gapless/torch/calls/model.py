"""A model whose calls follow plans within a budget: the loop around it stays as it is.

::

    model = gapless.torch.planned(model, budget="0.6x")
    loss = criterion(model(images), labels)
    loss.backward()

A call is planned when one like it comes first: of these shapes and types, in this mode, with these constants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.torch.calls.beside import CAME, Beside, draws
from gapless.torch.calls.code import CallProgram
from gapless.torch.calls.functions import Flight, outputs_of
from gapless.torch.calls.kept import KeptPlans
from gapless.torch.calls.padding import Padder, Padding
from gapless.torch.capture.calls import ModelCall
from gapless.torch.capture.graph import capture_call
from gapless.torch.capture.model_state import (
    ModelState,
    ModelWatch,
    check_parameters,
    check_traceable,
    refuse_inner_hooks,
)
from gapless.torch.capture.program import CapturedStep, InputShape
from gapless.torch.capture.storages import allocated_bytes
from gapless.torch.islands.island import IslandChanged
from gapless.torch.islands.sites import Islands
from gapless.torch.library import Module, Tensor, named_tensors, say, torch, tree_flatten
from gapless.torch.run.step_plan import StepPlan
from gapless.units import format_bytes

__all__ = [
    "Entry", "Follows", "Planned", "autocast_now", "following", "kind_of", "planned", "plans_of", "say", "unplanned",
]  # fmt: skip

OnNew: TypeAlias = Literal["plan", "eager", "refuse"]
Gradients: TypeAlias = Literal["loss", "all"]
_Key: TypeAlias = tuple[Any, ...]
"""Of a kind of calls: the number of the model's state, the structure of arguments, autocast, and a part an argument."""
_ON_NEW = ("plan", "eager", "refuse")
_GRADIENTS = ("loss", "all")
_FEW_KINDS = 8
"""Kinds keep coming where there are more, which a line says whenever they have doubled."""
_COMPILED = (
    "torch.compile: a planned model is compiled, and its calls follow no plan; compile the model that gapless.torch."
    "unplanned(model) gives back, by torch.compile(model, backend='gapless', options={'budget': ...})"
)


def planned(
    model: Module,
    budget: str | int,
    *,
    on_new: OnNew = "plan",
    most_kinds: int = 32,
    pad_to: int | Sequence[int] | Padding | None = None,
    close: Collection[str] = (),
    cache: str | Path | None = None,
    options: SolveOptions | None = None,
    report: Callable[[str], None] | None = None,
    islands: Collection[str] = (),
    gradients: Gradients = "loss",
) -> Module:
    """Let the calls of a model follow plans, each within a budget of memory. Returns the same model.

    What a call returns has gradients as ever: `backward()`, accumulation, scaling, clipping, hooks on parameters,
    optimisers and checkpoints are PyTorch's. Without gradients the model runs as before. `unplanned` takes it back.

    `budget`: of a call's activations and gradients, in bytes above parameters, buffers and arguments, or a share of
    what it takes without a plan, as "0.6x". Outputs count as held until the gradients are there; a loss that is
    computed outside of the model has memory of its own. `on_new`: what a call does that has no plan yet: "plan" makes
    one, "eager" runs without, "refuse" raises `InputError`. `most_kinds`: kinds of calls that are held at most; the
    one that was called longest ago goes. `pad_to`: pads sequences to the next multiple of a number or the next of some
    lengths, as `Padding` says, and cuts outputs. `close`: as for `capture`. `cache`: a folder that keeps plans and
    operators' times by all that they rest on, so that nothing is timed or solved again; or a `.json` file of times
    alone, as for `profile`. `report`: is called with a line for each new plan; by default it goes to stderr.
    `islands`: names of modules that run by autograd itself, as one operator of the plan; those that can't be captured
    are found. `gradients`: of which outputs a plan is made for, where a model returns a scalar `loss` beside others, as
    an attribute or by name: "loss" is for scalars alone. Where a gradient comes for another output, that backward pass
    runs without a plan, and later calls are planned as by "all".

    Raises `InputError` for a wrong argument; a call, where the model can't be captured or nothing fits the budget.
    """
    if on_new not in _ON_NEW:
        raise InputError(f"on_new: must be one of {', '.join(_ON_NEW)}, got {on_new!r}")
    if gradients not in _GRADIENTS:
        raise InputError(f"gradients: must be one of {', '.join(_GRADIENTS)}, got {gradients!r}")
    if most_kinds < 1:
        raise InputError(f"most_kinds must be >= 1, got {most_kinds}")
    check_traceable(model, is_called=True)
    if following(model):
        raise InputError("model: follows plans already; gapless.torch.unplanned(model) takes that back")
    report = report or say
    padding = Padding(pad_to) if isinstance(pad_to, int | Sequence) else pad_to
    kept, parts = KeptPlans(budget, options, cache, report), Islands(model, islands, report)
    model.forward = Planned(model, on_new, most_kinds, tuple(close), kept, report, padding, parts, gradients)
    return model


def unplanned(model: Module) -> Module:
    """The same model as before `planned` or `planned_blocks`. Raises `InputError` for one that follows no plans."""
    found = following(model)
    if not found:
        raise InputError("model: follows no plans")
    for each in found:
        each.leave()
    return model


def following(model: Module) -> list[Follows]:
    """What lets the calls of a model, or of modules in it, follow plans."""
    return [found for module in model.modules() if (found := plans_of(module)) is not None]


def plans_of(model: Module) -> Follows | None:
    """What lets a model's calls follow plans; a trainer may have put its own forward around it since."""
    forward: object = model.__dict__.get("forward")
    while forward is not None and not isinstance(forward, Follows):
        forward = getattr(forward, "__wrapped__", None) or getattr(forward, "__func__", None)
    return forward if forward is not None and not forward.is_over else None


@dataclass
class Entry:
    """A kind of calls, planned. `differentiable`: the outputs that may get a gradient. `is_random`: the call draws
    random numbers. `called_at`: its last call."""

    call: ModelCall
    plan: StepPlan
    program: CallProgram
    differentiable: frozenset[int]
    is_random: bool
    called_at: int = 0


class Follows:
    """In the place of a module's `forward`. `is_over`: whether calls run without plans again."""

    def __init__(self, model: Module, report: Callable[[str], None]) -> None:
        self._model, self._forward, self._own = model, model.forward, model.__dict__.get("forward")
        self._report = report
        self.is_over = self._is_said = False
        torch.compiler.assume_constant_result(Follows._say_compiled)  # imports the compiler, which no import should
        self.__signature__ = signature(model.forward)  # by which trainers know what a model takes

    def runs_without_plans(self) -> bool:
        """Whether the call that begins follows none: plans are over, nothing needs a gradient, or it is compiled."""
        if self.is_over or not torch.is_grad_enabled():
            return True
        if torch.compiler.is_compiling():
            self._say_compiled()
            return True
        return False

    def _say_compiled(self) -> bool:
        """Say once that compiled calls follow no plan. The compiler calls this itself instead of compiling it."""
        if not self._is_said and not torch.compiler.is_exporting():
            self._report(_COMPILED)
            self._is_said = True
        return self._is_said

    def leave(self) -> None:
        """Let the model be as before, or run as before where a trainer has wrapped this."""
        self.is_over = True
        if self._model.__dict__.get("forward") is self:
            del self._model.forward
            if self._own is not None:
                self._model.forward = self._own


class PlanSource(Protocol):
    """Where plans are from."""

    def plan(self, step: CapturedStep, shapes: str) -> tuple[StepPlan, str]:
        """The plan of a captured call, and where it was found. `shapes`: of its arguments, for people."""


class Planned(Follows):
    """The forward pass of a model by plans."""

    def __init__(
        self,
        model: Module,
        on_new: OnNew,
        most_kinds: int,
        close: tuple[str, ...],
        kept: PlanSource,
        report: Callable[[str], None],
        padding: Padding | None = None,
        islands: Islands | None = None,
        gradients: Gradients = "all",
    ) -> None:
        super().__init__(model, report)
        self._on_new, self._most_kinds, self._close = on_new, most_kinds, close
        self._kept, self._gradients = kept, gradients
        self._islands = islands or Islands(model, (), report)
        self._padder = None if padding is None else Padder(model, model.forward, padding)
        self._entries: dict[_Key, Entry] = {}
        self._states: dict[int, ModelState] = {}
        self._watch: tuple[ModelWatch, int] | None = None
        self._found: tuple[ModelWatch, dict[str, dict[str, Tensor]]] | None = None
        self._calls = self._kinds = 0

    def __getstate__(self) -> dict[str, object]:
        """Copies plan anew: what is planned names the tensors of this model."""
        return {
            **self.__dict__,
            "_entries": {},
            "_states": {},
            "_watch": None,
            "_found": None,
            "_calls": 0,
            "_kinds": 0,
        }

    @property
    def plans(self) -> list[StepPlan]:
        """Of the kinds of calls that are held, in the order in which they came."""
        return [entry.plan for entry in self._entries.values()]

    def __call__(self, *arguments: object, **named: object) -> object:
        """What the model returns."""
        if arguments and arguments[0] is self._model:  # Accelerate's `unwrap_model` makes a method of it
            arguments = arguments[1:]
        if self.runs_without_plans():
            return self._forward(*arguments, **named)
        if self._padder is not None:
            return self._padder.call(self._follow, arguments, named)
        return self._follow(*arguments, **named)

    def _follow(self, *arguments: object, **named: object) -> object:
        parts, structure = tree_flatten((arguments, named))
        state = self._state()
        key: _Key = (state, structure, autocast_now(), *map(kind_of, parts))
        entry = self._entries.get(key)
        if entry is None:
            if self._on_new == "eager":
                return self._forward(*arguments, **named)
            entry = self._new(ModelCall(self._model, self._forward, arguments, named, self._gradients == "loss"), key)
        self._calls += 1
        entry.called_at = self._calls
        leaves = [part for part in parts if isinstance(part, torch.Tensor)]
        before = self._islands.state([leaf.device for leaf in leaves])
        try:
            found = self.run(entry, leaves)
        except IslandChanged as changed:
            assert before is not None
            before.put_back()
            self._islands.grow_or_refuse(changed)
            self._entries.clear()
            return self._follow(*arguments, **named)
        if self._islands.has_outgrown:
            self._entries.clear()
            self._islands.has_outgrown = False
        return found

    def _new(self, call: ModelCall, key: _Key) -> Entry:
        shapes = ", ".join(str(list(leaf.shape)) for leaf in call.leaves)
        if self._on_new == "refuse":
            raise InputError(
                f"planned: no plan for arguments of {shapes}; on_new='plan' makes one, 'eager' runs without"
            )
        check_parameters(self._model, "plan what fully_shard gathers, and nothing whose parts lie on several devices")
        step = capture_call(self._model, call, self._close, self._islands)
        self._states[key[0]], self._watch = step.state, None  # which knows what the forward pass itself changes
        plan, source = self._kept.plan(step, shapes)
        status = "" if plan.result is None else f", {plan.result.status.value}"
        made = f"took the plan {source} for" if source else "planned"
        self._report(f"{made} a call of {shapes}: at most {format_bytes(plan.peak_bytes)}{status}{_unseen(step)}")
        self._say_how_many(key)
        program = CallProgram(plan, named_tensors(self._model)["parameter"])
        tangents = frozenset(role.index for role in step.roles.values() if role.kind == "tangent")
        while len(self._entries) >= self._most_kinds:
            del self._entries[min(self._entries, key=lambda each: self._entries[each].called_at)]
        entry = self._entries[key] = Entry(call, plan, program, tangents | call.beside, draws(step))
        return entry

    def _say_how_many(self, key: _Key) -> None:
        """Say that kinds keep coming, and what is other than in the last one, whenever they have doubled."""
        self._kinds += 1
        if self._kinds < _FEW_KINDS or self._kinds & (self._kinds - 1) or not self._entries:
            return
        before = list(self._entries)[-1]
        if before[0] != key[0]:
            differ = ", ".join(self._states[before[0]].differences(self._states[key[0]]))
            advice = "what changes at every step is read from a buffer without a new kind"
        elif [part for part in before if not isinstance(part, tuple)] != [p for p in key if not isinstance(p, tuple)]:
            differ, advice = "arguments that are no tensors", "pass what changes at every step as a tensor"
        else:
            differ, advice = "shapes or types of tensors", "pad to a few lengths, or let on_new='eager' run new ones"
        self._report(f"{self._kinds} kinds of calls have come; the last two differ in {differ}; {advice}")

    def run(self, entry: Entry, leaves: list[Tensor]) -> object:
        tensors = self._tensors()
        placed: list[Tensor | None] = []
        for role in entry.plan.step.roles.values():
            if role.kind == "input":
                placed.append(leaves[role.index])
            else:
                placed.append(None if role.kind == "tangent" else tensors[role.kind][role.name])
        trained = [
            [*(tensors["parameter"][name] for name in segment.parameters), *(leaves[k] for k in segment.arguments)]
            for segment in entry.program.segments
        ]
        beside = self._beside(entry, leaves, trained) if entry.call.beside else None
        running = entry.program.start([*placed, *entry.plan.step.constants.values()])
        flight = Flight(running, entry.program.segments, trained, entry.differentiable, beside)
        return entry.call.result(outputs_of(flight))

    def _beside(self, entry: Entry, leaves: list[Tensor], trained: list[list[Tensor]]) -> Beside:
        def came() -> None:
            if self._gradients == "loss":
                self._gradients = "all"
                self._entries.clear()
                self._report(CAME)

        step, call, model, tensors = entry.plan.step, entry.call, self._model, self._tensors()
        runs_again = not self._islands.titles
        return Beside.of(step, call, model, tensors, leaves, trained, entry.is_random, runs_again, came)

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        """Parameters and buffers by their names, looked for again once the model has changed."""
        if self._watch is None:
            return named_tensors(self._model)
        if self._found is None or self._found[0] is not self._watch[0]:
            self._found = self._watch[0], named_tensors(self._model)
        return self._found[1]

    def _state(self) -> int:
        """The number of the state that the model is in: modes, settings, what is trained and tied."""
        if self._watch is not None and self._watch[0].is_unchanged():
            return self._watch[1]
        refuse_inner_hooks(self._model, self._islands.titles)
        now = ModelState.of(self._model)
        number = next((k for k, state in self._states.items() if state.fits(now)), None)
        if number is None:
            held = {key[0] for key in self._entries}
            self._states = {number: state for number, state in self._states.items() if number in held}
            number = max(held, default=-1) + 1
            self._states[number] = now
        self._watch = ModelWatch(self._model, None, self._states[number].advanced, are_hooked=True), number
        return number


def _unseen(step: CapturedStep) -> str:
    """That a loss is computed elsewhere, where what a call returns isn't the loss."""
    fakes = [step.storages.fake[output] for output in step.outputs]
    held_bytes = sum(allocated_bytes(fake) for fake in fakes if fake.numel() > 1)
    rule = f"{format_bytes(held_bytes)} of outputs included, and what a loss outside of the model makes of them not"
    return f"; {rule}" if fakes[0].numel() > 1 else ""


def kind_of(part: object) -> object:
    """What a plan rests on of an argument."""
    if not isinstance(part, torch.Tensor):
        return part
    shape = InputShape.of(part)
    return (*shape.shape, shape.dtype, shape.device, *shape.layout, part.requires_grad)


def autocast_now() -> tuple[object, ...]:
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    return tuple((kind, torch.get_autocast_dtype(kind)) for kind in kinds)
