"""From the events of a schedule to instructions: what is read, called, kept and freed at each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import getitem

from gapless.errors import InputError
from gapless.ir.schedule import Event
from gapless.torch.capture.program import LASTS, PASSES, Call, Gradient, Operator
from gapless.torch.kernels.norms import INVERTING
from gapless.torch.library import (
    Argument,
    Made,
    Node,
    Tensor,
    compact,
    has_layout,
    laid_out,
    random_state,
    set_random_state,
    torch,
)
from gapless.torch.run.step_plan import StepPlan

__all__ = ["Compiler", "Run"]

Instruction = Callable[["Run"], None]
Reader = Callable[[dict[Node, Tensor]], Argument]

_IN_PLACE = "in place"
"""What the lowering calls a forward operator that runs in place."""


@dataclass
class Run:
    """One execution of a step.

    `there`: the tensors that are held, by the graph node that stands for each. Buffers' new values are those of the
    first run of what makes them; they are copied when the step is over, so that what runs again reads the old ones.
    `states`: random states from before the first run of each operator that runs again. `sums`: of the gradients of
    parameters that are used under several names: they go to `.grad` together, as in autograd. `is_first`: whether the
    layout of what operators return is still to be seen.
    """

    there: dict[Node, Tensor]
    states: dict[str, Tensor] = field(default_factory=dict)
    sums: dict[int, Tensor] = field(default_factory=dict)
    loss: Tensor | None = None
    is_first: bool = False


@dataclass(frozen=True)
class _Planned:
    """An event that computes: the node of the training graph that runs, how, and the tensors that go after it."""

    node: int
    operator: Operator
    call: Call
    claimed: frozenset[int]
    gone: tuple[Node, ...]
    is_first: bool


class Compiler:
    """Makes the instructions of a plan for one model."""

    def __init__(self, plan: StepPlan, parameters: dict[str, Tensor]) -> None:
        self._step, self._schedule = plan.step, plan.schedule
        graph = plan.step.graph
        self._names = [*(node.name for node in graph.forward), *(node.name for node in graph.backward)]
        self._number = {name: number for number, name in enumerate(self._names)}
        self._parameters = parameters
        self._readers: dict[Node, Reader] = {}
        self._strides: dict[Node, tuple[int, ...]] = {}
        """Of the values that operators return in another layout than was traced, the traced one: views rely on it."""
        self._left = Counter(id(parameters[gradient.parameter]) for gradient in self._gradients())

    def updates(self) -> tuple[tuple[str, Reader], ...]:
        """The buffers that change, and how to read their new values when the step is over."""
        return tuple((name, self._reader(value)) for value, name in self._step.updates)

    def close(self) -> dict[str, int]:
        """How many operators run in an implementation that is only close to eager's, by kind."""
        return dict(sorted(Counter(event.call.close for event in self._planned if event.call.close).items()))

    def inverted(self) -> tuple[tuple[str, str], ...]:
        """The names of weight and bias of the batch norms whose gradient is computed from their output."""
        calls = [event.call for event in self._planned if event.call.function in INVERTING]
        pairs = [[call.arguments[place] for place in INVERTING[call.function]] for call in calls]
        return tuple((self._step.roles[gamma].name, self._step.roles[beta].name) for gamma, beta in pairs)

    def instructions(self) -> tuple[Instruction, ...]:
        """One for each event that computes, and one for the gradients that no operator completes."""
        saved = _seeds(self._planned)
        computed = [self._compute(event, saved) for event in self._planned]
        late = [self._collect(gradient) for gradient in self._step.late_gradients]
        return (*computed, *late)

    def _gradients(self) -> list[Gradient]:
        operators = [operator for operator in self._step.operators if operator is not None]
        return [*(gradient for operator in operators for gradient in operator.gradients), *self._step.late_gradients]

    # -- events --------------------------------------------------------------------------------------------------------

    @cached_property
    def _planned(self) -> list[_Planned]:
        events = list(self._schedule.events())
        nodes = [self._node(event) for event in events]
        planned: list[_Planned] = []
        ran: set[int] = set()
        for place, (event, node) in enumerate(zip(events, nodes, strict=True)):
            operator = self._step.operators[node]
            gone = self._gone(event)
            if operator is not None and operator.calls:
                claimed = self._claimed(nodes, place)
                call = self._call(event, operator, claimed)
                planned.append(_Planned(node, operator, call, claimed, gone, node not in ran))
                ran.add(node)
            elif gone:  # an intermediate, or the loss: nothing runs, but what ends here goes
                planned[-1] = replace(planned[-1], gone=(*planned[-1].gone, *gone))
        return planned

    def _node(self, event: Event) -> int:
        name = self._schedule.graph.ops[event.op].name
        if name not in self._number:
            raise InputError(f"plan: op {name!r} is none of the captured step {self._step.graph.name!r}")
        return self._number[name]

    def _call(self, event: Event, operator: Operator, claimed: frozenset[int]) -> Call:
        """The call that an event stands for: one that makes what comes after it, or is named by its implementation, or
        the framework's own."""
        for call in operator.calls:
            if call.makes in claimed:
                return call
        label = self._schedule.graph.ops[event.op].implementations[event.implementation].name
        if label == _IN_PLACE:
            return next(call for call in operator.calls if call.in_place)
        return next((call for call in operator.calls if call.name == label), operator.calls[0])

    def _claimed(self, nodes: list[int], place: int) -> frozenset[int]:
        """The intermediates that are made with the operator of an event: they come right after it."""
        claimed = set()
        forward = self._step.graph.forward
        for node in nodes[place + 1 :]:
            if node >= len(forward) or forward[node].creator is None:
                break
            claimed.add(node)
        return frozenset(claimed)

    def _gone(self, event: Event) -> tuple[Node, ...]:
        """The values that an event frees, or that it has written over."""
        implementation = self._schedule.graph.ops[event.op].implementations[event.implementation]
        tensors = [*(tensor for tensor, _ in event.frees), *implementation.overwrites]
        operators = [self._step.operators[tensor - 1] for tensor in tensors if 1 <= tensor <= len(self._step.operators)]
        return tuple(value for operator in operators if operator is not None for value in operator.holds)

    # -- instructions --------------------------------------------------------------------------------------------------

    def _compute(self, event: _Planned, saved: set[str]) -> Instruction:
        function, read = event.call.function, self._reader((event.call.arguments, event.call.options))
        kept = {event.node, *event.claimed, PASSES, *((LASTS,) if event.is_first else ())}
        keep = tuple(
            (value, place, self._bytes(value)) for value, place, holder in event.operator.values if holder in kept
        )
        passing = tuple(value for value, _, holder in event.operator.values if holder == PASSES)
        after = self._after(event)
        gone = (*passing, *event.gone)
        random = event.call.random if event.call.random in saved else ""
        strides, device = self._strides, self._step.device
        is_draw = bool(random) and event.is_first and random == self._names[event.node]

        def instruct(run: Run) -> None:
            arguments, options = read(run.there)
            if is_draw:
                run.states[random] = random_state(device)
            if random and not is_draw:
                result = _draw_again(run.states[random], device, function, arguments, options)
            else:
                result = function(*arguments, **options)
            del arguments, options
            tensor = None
            for value, place, most_bytes in keep:
                tensor = result if place is None else result[place]
                if run.is_first:
                    self._look(value, tensor)
                if value in strides:
                    tensor = laid_out(tensor, strides[value])
                run.there[value] = compact(tensor, most_bytes)
            del result, tensor
            for act in after:
                act(run)
            for value in gone:
                run.there.pop(value, None)

        return instruct

    def _look(self, value: Node, tensor: Tensor) -> None:
        """See whether what an operator has returned is laid out as it was traced."""
        fake = self._step.storages.fake[value]
        if tensor is not None and not has_layout(tensor, fake.stride()):
            self._strides[value] = fake.stride()

    def _bytes(self, value: Node) -> int:
        """What a value was captured to take."""
        (storage,) = self._step.storages.of[value]
        return self._step.storages.size_bytes[storage]

    def _after(self, event: _Planned) -> tuple[Instruction, ...]:
        """What happens once an operator has run: gradients are given away, and the loss is noted at the first run."""
        acts = [self._collect(gradient) for gradient in event.operator.gradients]
        if event.is_first and event.node < len(self._step.graph.forward):
            storages = self._step.storages
            made = {storage for value, _, _ in event.operator.values for storage in storages.of[value]}
            if made.intersection(storages.of[self._step.loss]):
                acts.append(_note_loss(self._reader(self._step.loss)))
        return tuple(acts)

    def _collect(self, gradient: Gradient) -> Instruction:
        read, parameter = self._reader(gradient.value), self._parameters[gradient.parameter]
        self._left[id(parameter)] -= 1
        is_last = not self._left[id(parameter)]

        def act(run: Run) -> None:
            value, key = read(run.there), id(parameter)
            if key in run.sums:
                run.sums[key].add_(value)
            elif gradient.is_taken:
                run.sums[key] = value
            elif parameter.grad is None or not is_last:
                run.sums[key] = torch.empty_like(parameter).copy_(value)
            else:
                run.sums[key] = value
            if is_last:
                _give(parameter, run.sums.pop(key))

        return act

    # -- reading -------------------------------------------------------------------------------------------------------

    def _reader(self, argument: Argument) -> Reader:
        """A function that makes an argument of what is there, views included."""
        if isinstance(argument, torch.fx.Node):
            return self._node_reader(argument)
        if isinstance(argument, tuple | list):
            parts, kind = [self._reader(part) for part in argument], type(argument)
            if not any(_mentions(part) for part in argument):
                return lambda there: argument
            return lambda there: kind(part(there) for part in parts)
        if isinstance(argument, dict):
            named = {key: self._reader(part) for key, part in argument.items()}
            return lambda there: {key: part(there) for key, part in named.items()}
        return lambda there: argument

    def _node_reader(self, node: Node) -> Reader:
        if node not in self._readers:
            self._readers[node] = self._view_reader(node) if self._is_view(node) else (lambda there: there[node])
        return self._readers[node]

    def _is_view(self, node: Node) -> bool:
        """Whether a node only looks at what others have made."""
        made = self._step.storages.made
        if node.op != "call_function" or node in made:
            return False
        return not (node.target is getitem and node.args[0] in made)

    def _view_reader(self, node: Node) -> Reader:
        read, function = self._reader((node.args, node.kwargs)), node.target

        def look(there: dict[Node, Tensor]) -> Tensor:
            arguments, options = read(there)
            return function(*arguments, **options)

        return look


def _seeds(planned: list[_Planned]) -> set[str]:
    """The random operators whose state is needed again: they run twice, or another call draws what they drew."""
    again = {event.operator.name for event in planned if not event.is_first}
    drawn = {event.call.random for event in planned if event.call.random and event.call.random != event.operator.name}
    return {event.call.random for event in planned if event.call.random in again | drawn}


def _mentions(argument: Argument) -> bool:
    nodes: list[Node] = []
    torch.fx.node.map_arg(argument, nodes.append)
    return bool(nodes)


def _note_loss(read: Reader) -> Instruction:
    def act(run: Run) -> None:
        run.loss = read(run.there)

    return act


def _give(parameter: Tensor, value: Tensor) -> None:
    """Add a gradient to a parameter's."""
    if parameter.grad is None:
        parameter.grad = value
    else:
        parameter.grad.add_(value)


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
