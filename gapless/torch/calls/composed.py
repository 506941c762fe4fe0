"""The schedule of all blocks' calls, so that the replay confirms what they hold together.

Forward passes come one after the other, then backward passes in the opposite order. What stays at the end are the
gradients of parameters, in shards where a block's parameters are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gapless.ir.graph import Implementation, Op
from gapless.ir.schedule import Event, EventKind, Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.topologies.topology import Topology
from gapless.torch.calls.shares import BlockCall
from gapless.torch.run.step_plan import StepPlan

__all__ = ["composed"]


def composed(calls: Sequence[BlockCall], numbers: Sequence[int], budget_bytes: int, name: str) -> Schedule:
    """The schedule of calls, each by one of its plans, on a device that holds so many bytes."""
    builder, now_s = ScheduleBuilder(), 0.0
    pairs = zip(calls, numbers, strict=True)
    parts = [_Part.of(builder, call, call.choices[number].plan) for call, number in pairs]
    for part in parts:
        now_s = part.forward(builder, now_s)
    for part in reversed(parts):
        now_s = part.backward(builder, now_s)
    topology = Topology("one device", (0,), memory_bytes=(float(budget_bytes),))
    return builder.schedule(topology, name, as_listed=True)


@dataclass(frozen=True)
class _Part:
    """A call in the schedule of all.

    `numbers`: of its tensors there; the first, which its own schedule has all along, are its outputs. `border`: the
    gradients of outputs and arguments. `gradients`: of parameters. `first_op`: the number of its first op there.
    `stop`: its event that ends the forward pass.
    """

    call: BlockCall
    own: Schedule
    numbers: tuple[int, ...]
    border: int
    gradients: tuple[int, ...]
    first_op: int
    stop: int

    @classmethod
    def of(cls, builder: ScheduleBuilder, call: BlockCall, plan: StepPlan) -> _Part:
        """Append its tensors and ops to a builder."""
        own, border_bytes, first_op = plan.schedule, plan.step.border_bytes, len(builder.ops)
        sizes = own.graph.size_bytes.tolist()
        sizes[0] -= border_bytes
        names = ["outputs", *own.graph.tensor_names[1:]]
        numbers = tuple(builder.tensor(f"{call.title}: {name}", size) for name, size in zip(names, sizes, strict=True))
        border = builder.tensor(f"{call.title}: gradients of outputs and arguments", border_bytes)
        builder.ops += [_mapped(op, numbers, call.title) for op in own.graph.ops]
        stop = next(row for row, op in enumerate(own.op.tolist()) if own.graph.ops[op].kind == "loss")
        gradients = tuple(numbers[tensor] for tensor in own.graph.required.tensors.tolist() if tensor)
        return cls(call, own, numbers, border, gradients, first_op, stop)

    def forward(self, builder: ScheduleBuilder, now_s: float) -> float:
        """Append the forward pass; when it is over."""
        builder.compute(f"{self.call.title} starts", "start", 0, now_s, 0.0, (), (self.numbers[0],))
        return self._events(builder, range(self.stop + 1), now_s)

    def backward(self, builder: ScheduleBuilder, now_s: float) -> float:
        """Append the backward pass; when it is over."""
        builder.compute(f"{self.call.title} goes back", "start", 0, now_s, 0.0, (self.numbers[0],), (self.border,))
        end_s = self._events(builder, range(self.stop + 1, len(self.own.kind)), now_s)
        gone, stays = [self.numbers[0], self.border], list(self.gradients)
        if self.call.are_sharded:
            gone += stays
            stays = [builder.tensor(f"{self.call.title}: shards of gradients", self.call.stays_bytes)]
        written = stays if self.call.are_sharded else ()
        frees = [(tensor, 0) for tensor in gone]
        builder.compute(f"{self.call.title} ends", "end", 0, end_s, 0.0, self.gradients, written, frees)
        builder.required += [(tensor, 0, 0) for tensor in stays]
        return end_s

    def _events(self, builder: ScheduleBuilder, rows: range, now_s: float) -> float:
        own = self.own
        for row in rows:
            end_s = now_s + float(own.end_s[row] - own.start_s[row])
            frees = tuple((self.numbers[tensor], 0) for tensor in own.freed_tensor[row].tolist())
            op, implementation = self.first_op + int(own.op[row]), int(own.implementation[row])
            builder.events.append(Event(EventKind.COMPUTE, now_s, end_s, 0, op, implementation, frees=frees))
            now_s = end_s
        return now_s


def _mapped(op: Op, numbers: Sequence[int], title: str) -> Op:
    """An op on the tensors of the schedule of all, in which the rest of the model takes no workspace."""

    def implementation(each: Implementation) -> Implementation:
        inputs = None if each.inputs is None else tuple(numbers[tensor] for tensor in each.inputs)
        overwrites = tuple(numbers[tensor] for tensor in each.overwrites)
        workspace_bytes = 0 if op.kind == "loss" else each.workspace_bytes
        return replace(each, inputs=inputs, overwrites=overwrites, workspace_bytes=workspace_bytes)

    return replace(
        op,
        name=f"{title}: {op.name}",
        inputs=tuple(numbers[tensor] for tensor in op.inputs),
        outputs=tuple(numbers[tensor] for tensor in op.outputs),
        implementations=tuple(implementation(each) for each in op.implementations),
    )
