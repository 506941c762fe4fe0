"""A plan of a model's call as code that stops twice: with outputs, and with gradients, a segment at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from gapless.torch.capture.program import Call, CapturedStep, Gradient
from gapless.torch.capture.storages import Storages
from gapless.torch.library import Node, Tensor, torch
from gapless.torch.run.code import Look, Mend, Writer, looking
from gapless.torch.run.events import PlannedCall, planned_calls
from gapless.torch.run.step_plan import StepPlan

__all__ = ["CallProgram", "Running", "Segment"]

Running = Generator[Any, Any, None]
"""Of a call: yields a tuple of outputs, is sent a list of their gradients, and yields a list of gradients for each
segment in turn."""

_SEGMENTS = 16
"""So many at most: each is a node of autograd, which takes some microseconds."""
_SEGMENT_BYTES = 2**20
"""And none of less than what data-parallel training sends first."""


@dataclass(frozen=True)
class Segment:
    """Gradients that are given together: of parameters, by name, and after them of arguments, by number.

    `needs[k]`: the outputs whose gradients the k-th is made of.
    """

    parameters: tuple[str, ...]
    arguments: tuple[int, ...]
    needs: tuple[frozenset[int], ...]


class CallProgram:
    """A plan for calls of a model; its first run looks at layouts, as that of a step does."""

    def __init__(self, plan: StepPlan, parameters: dict[str, Tensor]) -> None:
        self._step, self._calls, self._parameters = plan.step, planned_calls(plan), parameters
        self._mended: dict[Node, Mend] = {}
        self._function: Callable[[Sequence[Tensor]], Running] | None = None
        _, self.segments = self._written(None)

    def start(self, placed: Sequence[Tensor]) -> Running:
        """A run. `placed`: a tensor for each placeholder and constant; those of outputs' gradients are not read."""
        if self._function is not None:
            return self._function(placed)
        return self._first(placed)

    def _first(self, placed: Sequence[Tensor]) -> Running:
        function, _ = self._written(looking(self._step, self._mended))
        running = function(placed)
        given = running.send((yield next(running)))
        for _ in self.segments[1:]:
            yield given
            given = next(running)
        self._function, _ = self._written(None)  # before the last stop, where who called ends the run
        yield given

    def _written(self, look: Look | None) -> tuple[Callable[[Sequence[Tensor]], Running], tuple[Segment, ...]]:
        writer = _CallWriter(self._step, self._calls, self._parameters, self._mended, look)
        return writer.running(), tuple(writer.segments)


class _CallWriter(Writer):
    """Writes the forward pass, a stop with its outputs, and the backward pass with a stop after each segment.

    `_stop`: the line after the outputs, -1 before it is there; `_read_after`: what is read from then on, but for the
    running statistics of batch norms, which don't change what these compute again.
    """

    _stop = -1
    _moved: frozenset[Node] = frozenset()

    def running(self) -> Callable[[Sequence[Tensor]], Running]:
        """Compile what the plan says, as a generator."""
        self.segments: list[Segment] = []
        self._needs = _outputs_behind(self._step)
        self._names_given: list[tuple[str, frozenset[int]]] = []
        self._given_bytes = 0
        self._read_after: set[Node] = set()
        total_bytes = sum(self._parameters[gradient.parameter].nbytes for gradient in self._gradients())
        most_bytes = max(total_bytes // _SEGMENTS, _SEGMENT_BYTES)
        self._last_read = self._last_reads()
        self._waiting: list[tuple[int, Gradient, str]] = []
        for number, event in enumerate(self._calls):
            if event.is_after and self._stop < 0:
                self._end_forward()
            self._number = number
            self._call(event)
            self._give_waiting()
            if self._given_bytes >= most_bytes:
                self._end_segment(())
        for gradient in self._step.late_gradients:
            self._collect(gradient)
        for value, _ in self._step.input_gradients:
            self._lines.append(f"given.append({self._text(value)})")
            self._names_given.append(("", self._needs[value]))
        if self._names_given or not self.segments:
            self._end_segment(tuple(number for _, number in self._step.input_gradients))
        self._keep_what_is_read()
        return self._compiled("return")

    def _note_loss(self, event: PlannedCall) -> None:
        """A call ends with outputs instead."""

    def _call(self, event: PlannedCall) -> None:
        self._moved = _moved_by(event.call)
        super()._call(event)
        self._moved = frozenset()

    def _name(self, node: Node) -> str:
        if self._stop >= 0 and node not in self._moved:
            self._read_after.add(node)
        return super()._name(node)

    def _end_forward(self) -> None:
        outputs = "".join(f"{self._text(output)}, " for output in self._step.outputs)
        buffers = [(self._named["buffer", name], self._text(value)) for value, name in self._updates]
        self._lines += [f"buffer{place} = {self._name(node)}" for place, (node, _) in enumerate(buffers)]
        self._update_at = len(self._lines)
        self._lines += [f"buffer{place}.copy_({value})" for place, (_, value) in enumerate(buffers)]
        self._lines.append(f"tangents = yield ({outputs})")
        self._stop = len(self._lines)
        tangents = [(node, role.index) for node, role in self._step.roles.items() if role.kind == "tangent"]
        self._lines += [f"{self._name(node)} = tangents[{index}]" for node, index in tangents]
        self._lines += ["del tangents", "given = []"]
        self._at_stop = self._defined.difference(self._placed)

    def _keep_what_is_read(self) -> None:
        """Let go at the stop what nobody reads after it, since outputs are the caller's; and keep the old values of
        buffers that are read again."""
        gone = sorted(self._names[node] for node in self._at_stop - self._read_after)
        self._lines[self._stop : self._stop] = [f"del {', '.join(gone)}"] if gone else []
        again = {self._named["buffer", name] for _, name in self._updates} & self._read_after
        kept = [f"{name} = {name}.clone()" for name in sorted(self._names[node] for node in again)]
        self._lines[self._update_at : self._update_at] = kept

    def _last_reads(self) -> dict[int, int]:
        """The number of the last call that reads a parameter, by its identity."""
        storages = self._step.storages
        last: dict[int, int] = {}
        read = {storage: number for number, event in enumerate(self._calls) for storage in _read_by(event, storages)}
        for (kind, name), node in self._named.items():
            if kind == "parameter":
                numbers = [read.get(storage, -1) for storage in storages.of[node]]
                key = id(self._parameters[name])
                last[key] = max(last.get(key, -1), *numbers)
        return last

    def _give(self, gradient: Gradient, own: str, value: str, is_taken: bool) -> None:
        made = value if is_taken else f"copied({own}, {value})"
        last = self._last_read[id(self._parameters[gradient.parameter])]
        if last <= self._number:
            self._give_now(gradient, made)
        else:  # a hook may change the parameter once its gradient is given, as optimisers in the backward pass do
            name = f"waiting{self._number}_{len(self._waiting)}"
            self._lines.append(f"{name} = {made}")
            self._waiting.append((last, gradient, name))

    def _give_waiting(self) -> None:
        """Give the gradients of the parameters that nothing reads any more."""
        for last, gradient, name in [each for each in self._waiting if each[0] <= self._number]:
            self._give_now(gradient, name)
            self._lines.append(f"del {name}")
            self._waiting.remove((last, gradient, name))

    def _give_now(self, gradient: Gradient, made: str) -> None:
        self._lines.append(f"given.append({made})")
        self._names_given.append((gradient.parameter, self._needs[gradient.value]))
        self._given_bytes += self._parameters[gradient.parameter].nbytes

    def _end_segment(self, arguments: tuple[int, ...]) -> None:
        self._lines += ["yield given", "given = []"]
        names = tuple(name for name, _ in self._names_given if name)
        self.segments.append(Segment(names, arguments, tuple(needs for _, needs in self._names_given)))
        self._names_given, self._given_bytes = [], 0


def _moved_by(call: Call) -> frozenset[Node]:
    """The running statistics that a batch norm in training moves, and computes nothing else of."""
    if call.function is not torch.ops.aten._native_batch_norm_legit_functional.default or not call.arguments[5]:  # noqa: SLF001
        return frozenset()
    return frozenset(argument for argument in call.arguments[3:5] if isinstance(argument, torch.fx.Node))


def _read_by(event: PlannedCall, storages: Storages) -> set[int]:
    return storages.read_by((event.call.arguments, event.call.options))


def _outputs_behind(step: CapturedStep) -> dict[Node, frozenset[int]]:
    """For each value, the outputs whose gradients it is made of."""
    behind: dict[Node, frozenset[int]] = {}
    for node in next(iter(step.roles)).graph.nodes:
        role = step.roles.get(node)
        own = {role.index} if role is not None and role.kind == "tangent" else set()
        behind[node] = frozenset(own).union(*(behind[source] for source in node.all_input_nodes))
    return behind
