"""A plan as straight-line Python code: a statement a call, views made once, values deleted where the plan says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import getitem
from types import CodeType

from gapless.torch.capture.program import LASTS, PASSES, CapturedStep, Gradient
from gapless.torch.devices import random_state, set_random_state
from gapless.torch.kernels.norms import INVERTING
from gapless.torch.library import (
    Argument,
    Made,
    Node,
    Tensor,
    has_layout,
    laid_out,
    torch,
)
from gapless.torch.run.bindings import Bindings
from gapless.torch.run.events import PlannedCall, PlannedCopy, drawn_again, planned_calls, planned_copies
from gapless.torch.run.host_link import HostLink, link_of
from gapless.torch.run.statistics import norm_in_place, updating_norms
from gapless.torch.run.step_plan import StepPlan

__all__ = ["Program", "Writer"]

Mend = Callable[[Tensor], Tensor]
Look = Callable[[Node, Tensor | None], Tensor | None]
_LITERALS = (bool, int, str, type(None))


class Program:
    """A plan for one model as a function of the tensors of its placeholders, which returns the loss.

    Its first run looks how operators lay out what they return: views rely on the strides that were traced, and the plan
    on sizes. From the second run on only those are laid out or copied that had to be.
    """

    def __init__(self, plan: StepPlan, parameters: dict[str, Tensor]) -> None:
        self._step, self._calls, self._parameters = plan.step, planned_calls(plan), parameters
        self._copies = planned_copies(plan)
        self._link = link_of(plan.schedule, plan.step.device) if self._copies else None
        self._mended: dict[Node, Mend] = {}
        self._function: Callable[[Sequence[Tensor]], Tensor] | None = None

    def __call__(self, placed: Sequence[Tensor]) -> Tensor:
        """Run it. `placed`: a tensor for each placeholder and constant, in the order of `roles` and `constants`."""
        function = self._function or self._written(looking(self._step, self._mended))
        try:
            loss = function(placed)
        finally:
            if self._link is not None:
                self._link.stop()
        if self._function is None:
            self._function = self._written(None)
        return loss

    def close(self) -> dict[str, int]:
        """How many operators run in an implementation that is only close to eager's, by kind."""
        return dict(sorted(Counter(event.call.close for event in self._calls if event.call.close).items()))

    def inverted(self) -> tuple[tuple[str, str], ...]:
        """The names of weight and bias of the batch norms whose gradient is computed from their output."""
        calls = [event.call for event in self._calls if event.call.function in INVERTING]
        pairs = [[call.arguments[place] for place in INVERTING[call.function]] for call in calls]
        return tuple((self._step.roles[gamma].name, self._step.roles[beta].name) for gamma, beta in pairs)

    def _written(self, look: Look | None) -> Callable[[Sequence[Tensor]], Tensor]:
        writer = Writer(self._step, self._calls, self._parameters, self._mended, look)
        if self._link is not None:
            writer.let_travel(self._copies, self._link)
        return writer.function()


def looking(step: CapturedStep, mended: dict[Node, Mend]) -> Look:
    """Looks at what operators return, notes in `mended` what isn't as it was traced, and mends it."""

    def look(value: Node, tensor: Tensor | None) -> Tensor | None:
        if not isinstance(tensor, torch.Tensor):  # nobody asked for a gradient, or it is what an island keeps
            return tensor
        strides = step.storages.fake[value].stride()
        (storage,) = step.storages.of[value]
        if not has_layout(tensor, strides):
            mended[value] = lambda made: laid_out(made, strides)
        elif tensor.untyped_storage().nbytes() > step.storages.size_bytes[storage]:
            mended[value] = torch.clone  # some losses leave a scalar in a large buffer
        return mended[value](tensor) if value in mended else tensor

    return look


class Writer:
    """Writes the code of a program, statement by statement, and keeps what is defined at each."""

    def __init__(
        self,
        step: CapturedStep,
        calls: Sequence[PlannedCall],
        parameters: dict[str, Tensor],
        mended: dict[Node, Mend],
        look: Look | None,
    ) -> None:
        self._step, self._calls, self._parameters, self._mended, self._look = step, calls, parameters, mended, look
        self._saved, self._bindings = drawn_again(calls), Bindings(step.storages.fake)
        self._norms = updating_norms(step)
        self._updated = {value: buffer for new in self._norms.values() for value, buffer in new.items()}
        self._updates = [(value, name) for value, name in step.updates if value not in self._updated]
        self._lines: list[str] = []
        self._globals: dict[str, object] = {"give": _give, "copied": _copied, "again": _draw_again}
        self._globals_of: dict[int, str] = {}
        self._states: dict[str, str] = {}
        self._names: dict[Node, str] = {}
        """Of all values that have been mentioned."""
        self._defined: set[Node] = set()
        self._views: dict[int, list[Node]] = {}
        """The views that are there, by the storage that they look at."""
        self._placed = [*step.roles, *step.constants]
        self._defined.update(self._placed)
        self._named = {(role.kind, role.name): node for node, role in step.roles.items()}
        self._left = Counter(id(parameters[gradient.parameter]) for gradient in self._gradients())
        """How many gradients of a parameter, by its identity, are still to come."""
        self._summed: set[int] = set()
        self._copies: Sequence[PlannedCopy] = ()
        self._away: dict[int, list[Node]] = {}
        """The values that each copy has taken along."""

    def let_travel(self, copies: Sequence[PlannedCopy], link: HostLink) -> None:
        """Write these copies beside the calls."""
        self._copies = copies
        self._globals |= {"leave": link.leave, "gone": link.gone, "come": link.come, "back": link.back}

    def function(self) -> Callable[[Sequence[Tensor]], Tensor]:
        """Compile what the plan says."""
        for place, event in enumerate(self._calls):
            self._travel(place)
            self._call(event)
        for gradient in self._step.late_gradients:
            self._collect(gradient)
        self._update()
        return self._compiled("return loss")

    def _update(self) -> None:
        """Let buffers have their new values, which no call of this step has read."""
        for value, name in self._updates:
            self._lines.append(f"{self._text(self._named['buffer', name])}.copy_({self._text(value)})")

    def _compiled(self, last: str) -> Callable[[Sequence[Tensor]], Tensor]:
        places = enumerate(self._placed)
        read = [f"{self._names[node]} = placed[{place}]" for place, node in places if node in self._names]
        body = "\n    ".join((*read, *self._lines, last))
        code: CodeType = compile(f"def step(placed):\n    {body}\n", f"<plan of {self._step.graph.name}>", "exec")
        exec(code, self._globals)  # written above, of names and literals alone
        made: Callable[[Sequence[Tensor]], Tensor] = self._globals["step"]  # type: ignore[assignment]
        return made

    def _gradients(self) -> list[Gradient]:
        operators = [operator for operator in self._step.operators if operator is not None]
        return [*(gradient for operator in operators for gradient in operator.gradients), *self._step.late_gradients]

    def _travel(self, place: int) -> None:
        """What begins, and what is awaited, before a call."""
        copies = list(enumerate(self._copies))
        for number, copy in copies:
            if copy.leaves == place:
                self._away[number] = [value for value in copy.values if value in self._defined]
                self._lines.append(f"leave({number}, {self._text(tuple(self._away[number]))})")
        for number, copy in copies:
            if copy.gone == place:
                self._delete(self._away[number])
                self._lines.append(f"gone({number})")
        for number, _ in sorted(copies, key=lambda each: each[1].place):
            if self._copies[number].returns == place:
                self._lines.append(f"come({number})")
        for number, copy in copies:
            if copy.back == place:
                self._lines.append(f"{self._text(tuple(self._away[number]))} = back({number})")
                self._defined.update(self._away[number])

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, event: PlannedCall) -> None:
        kept = {event.node, *event.claimed, PASSES, *((LASTS,) if event.is_first else ())}
        values = [(value, place) for value, place, holder in event.operator.values if holder in kept]
        values = [(value, place) for value, place in values if value not in self._updated]
        made = self._made(event)
        if [place for _, place in values] == [None]:
            self._define(values[0][0], made)
        elif values:
            self._lines.append(f"made = {made}")
            for value, place in values:
                self._define(value, f"made[{place}]")
            self._lines.append("del made")
        else:
            self._lines.append(made)
        for gradient in event.operator.gradients:
            self._collect(gradient)
        self._note_loss(event)
        passing = [value for value, _, holder in event.operator.values if holder == PASSES]
        self._delete((*passing, *event.gone))

    def _made(self, event: PlannedCall) -> str:
        """The expression of a call, under the random state that it takes."""
        call = event.call
        if event.operator.name in self._norms:
            changed, arguments = norm_in_place(call.arguments, event.is_first)
            return self._calling(self._object(changed), arguments, {})
        function = self._object(self._bindings.of(call.function, call.arguments, call.options))
        random = call.random if call.random in self._saved else ""
        if not random:
            return self._calling(function, call.arguments, call.options)
        state, device = self._states.setdefault(random, f"state{len(self._states)}"), self._object(self._step.device)
        if event.is_first and random == event.operator.name:
            self._lines.append(f"{state} = {self._object(random_state)}({device})")
            return self._calling(function, call.arguments, call.options)
        return f"again({state}, {device}, {function}, {self._text(tuple(call.arguments))}, {self._text(call.options)})"

    def _define(self, value: Node, made: str) -> None:
        """Let a value be what an expression makes, laid out as it was traced."""
        if self._look is not None:
            made = f"{self._object(self._look)}({self._object(value)}, {made})"
        elif value in self._mended:
            made = f"{self._object(self._mended[value])}({made})"
        self._lines.append(f"{self._name(value)} = {made}")
        if value in self._defined:  # it ran again before it went: what looks at the old one goes
            self._delete(self._views_of((value,)))
        self._defined.add(value)

    def _delete(self, values: Sequence[Node]) -> None:
        """Let values go, and what looks at them."""
        gone = [value for value in dict.fromkeys((*self._views_of(values), *values)) if value in self._defined]
        if gone:
            self._lines.append(f"del {', '.join(self._name(value) for value in gone)}")
            self._defined.difference_update(gone)

    def _views_of(self, values: Sequence[Node]) -> list[Node]:
        """The views of what values hold, which are looked at no more."""
        storages = {storage for value in values for storage in self._step.storages.of[value]}
        return [view for storage in sorted(storages) for view in self._views.pop(storage, [])]

    def _note_loss(self, event: PlannedCall) -> None:
        if not event.is_first or event.node >= len(self._step.graph.forward):
            return
        storages = self._step.storages
        made = {storage for value, _, _ in event.operator.values for storage in storages.of[value]}
        if made.intersection(storages.of[self._step.outputs[0]]):
            self._lines.append(f"loss = {self._text(self._step.outputs[0])}")

    def _collect(self, gradient: Gradient) -> None:
        """Give a gradient to its parameter; those of one parameter under several names together, as autograd does."""
        key = id(self._parameters[gradient.parameter])
        own, value = self._text(self._named["parameter", gradient.parameter]), self._text(gradient.value)
        self._left[key] -= 1
        is_last, total = not self._left[key], f"sum_{key}"
        if key in self._summed:
            self._lines.append(f"{total}.add_({value})")
        elif is_last:
            self._give(gradient, own, value, gradient.is_taken)
            return
        else:
            self._lines.append(f"{total} = {value if gradient.is_taken else f'copied({own}, {value})'}")
            self._summed.add(key)
        if is_last:
            self._give(gradient, own, total, True)
            self._lines.append(f"del {total}")

    def _give(self, gradient: Gradient, own: str, value: str, is_taken: bool) -> None:
        """Give a gradient to its parameter."""
        self._lines.append(f"give({own}, {value}, {is_taken})")

    # -- expressions ---------------------------------------------------------------------------------------------------

    def _calling(self, function: str, arguments: Sequence[Argument], options: Mapping[str, Argument]) -> str:
        parts = [self._text(argument) for argument in arguments]
        parts += [f"{name}={self._text(option)}" for name, option in options.items()]
        return f"{function}({', '.join(parts)})"

    def _text(self, argument: Argument) -> str:
        """The expression of an argument; a view that isn't there is made by a statement of its own."""
        if isinstance(argument, torch.fx.Node):
            argument = self._updated.get(argument, argument)
            if argument not in self._defined and self._step.storages.is_view(argument):
                self._view(argument)
            return self._name(argument)
        if isinstance(argument, _LITERALS):
            return repr(argument)
        if isinstance(argument, tuple):
            return f"({''.join(f'{self._text(part)}, ' for part in argument)})"
        if isinstance(argument, list):
            return f"[{', '.join(self._text(part) for part in argument)}]"
        if isinstance(argument, dict):
            return f"{{{', '.join(f'{name!r}: {self._text(part)}' for name, part in argument.items())}}}"
        if isinstance(argument, slice):
            return f"slice({', '.join(self._text(part) for part in (argument.start, argument.stop, argument.step))})"
        return self._object(argument)

    def _view(self, node: Node) -> None:
        if node.target is getitem:
            made = f"{self._text(node.args[0])}[{self._text(node.args[1])}]"
        else:
            function = self._bindings.of(node.target, node.args, node.kwargs)
            made = self._calling(self._object(function), node.args, node.kwargs)
        self._lines.append(f"{self._name(node)} = {made}")
        self._defined.add(node)
        for storage in set(self._step.storages.of[node]):
            self._views.setdefault(storage, []).append(node)

    def _name(self, node: Node) -> str:
        return self._names.setdefault(node, f"v{len(self._names)}")

    def _object(self, thing: object) -> str:
        """A global name for what has no literal."""
        if id(thing) not in self._globals_of:
            name = f"o{len(self._globals_of)}"
            self._globals_of[id(thing)], self._globals[name] = name, thing
        return self._globals_of[id(thing)]


def _give(parameter: Tensor, value: Tensor | None, is_taken: bool) -> None:
    """Add a gradient to a parameter's, as it is, or a copy where others read its memory."""
    if value is None:  # of an island where nothing depends on it
        return
    if parameter.grad is not None:
        parameter.grad.add_(value)
    else:
        parameter.grad = value if is_taken else _copied(parameter, value)


def _copied(parameter: Tensor, value: Tensor) -> Tensor:
    return torch.empty_like(parameter).copy_(value)


def _draw_again(
    state: Tensor, device: torch.device, function: Callable[..., Made], arguments: tuple[Argument, ...],
    options: dict[str, Argument],
) -> Made:  # fmt: skip
    """A call under a state from before; the generator goes on from where it was."""
    now = random_state(device)
    set_random_state(state, device)
    try:
        return function(*arguments, **options)
    finally:
        set_random_state(now, device)
