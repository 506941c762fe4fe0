"""A joint graph with planned layouts as a list of instructions for one rank: changes of layouts and local ops.

The forward part makes the outputs and new values of buffers; what the backward part still needs is kept in between.
Needs the extra `torch`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.profiles.layouts.layouts import MeshLayouts, NodeLayout, is_partial, replicated
from gapless.profiles.layouts.transitions import Step, local_shape, sent_by, steps_between
from gapless.torch.joint_graph import JointGraph, Role
from gapless.torch.library import Argument, Node, Tensor, torch, tree_flatten
from gapless.torch.sharding.execution.local_calls import MEAN, NLL, Place, local_call, mean_of_parts
from gapless.torch.sharding.joint import graph_digest, is_getitem, tensor_arguments, tensors_of

__all__ = ["Change", "Operation", "Program", "Slot", "compiled"]


@dataclass(frozen=True)
class Slot:
    """Where a value is kept between instructions."""

    number: int


@dataclass(frozen=True)
class Change:
    """A change of layout: `source` to `slot` by `steps`. `name`: of the node whose tensor it is."""

    name: str
    source: Slot
    slot: Slot
    steps: tuple[Step, ...]
    frees: tuple[Slot, ...] = ()


@dataclass(frozen=True)
class Operation:
    """A node of the graph on local parts. `shapes`: that its tensors must have, None for those that it leaves out."""

    name: str
    function: Callable[..., object]
    arguments: tuple[Argument | Slot, ...]
    options: Mapping[str, Argument | Slot]
    slot: Slot
    shapes: tuple[tuple[int, ...] | None, ...]
    frees: tuple[Slot, ...] = ()


Instruction = Change | Operation


@dataclass(frozen=True)
class Program:
    """What a rank runs. `inputs`: the roles of the values that it begins with, and their layouts and slots.

    `outputs`: likewise of what it ends with. `constants`: whole, with the layouts in which they are used.
    """

    forward: tuple[Instruction, ...]
    backward: tuple[Instruction, ...]
    inputs: tuple[tuple[Role, str, Slot], ...]
    constants: tuple[tuple[Tensor, str, Slot], ...]
    outputs: tuple[tuple[Role, str, Slot], ...]
    size: int

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes of layouts."""
        return tuple(each for each in (*self.forward, *self.backward) if isinstance(each, Change))

    @property
    def sent_bytes(self) -> dict[tuple[str, int], int]:
        """What each rank sends in a step, by kind of collective and axis of the mesh."""
        totals: dict[tuple[str, int], int] = {}
        for change in self.changes:
            for step in change.steps:
                if step.sent_bytes:
                    totals[step.kind, step.axis] = totals.get((step.kind, step.axis), 0) + step.sent_bytes
        return totals


def compiled(joint: JointGraph, layouts: MeshLayouts, place: Place, cost: Callable[[Step], float] = sent_by) -> Program:
    """The instructions of the rank at a place of the plan's mesh.

    `cost`: of a step of a change; changes take the steps of least cost. Within a pass a tensor is brought to a layout
    once, however many ops take it so. Raises `InputError` where the plan is for another graph, or has layouts that
    can't be run.
    """
    if layouts.graph != graph_digest(joint):
        raise InputError("plan: is for another model, other shapes or another PyTorch; plan again for this one")
    return _Compiler(joint, layouts, place, cost).program()


class _Compiler:
    def __init__(self, joint: JointGraph, layouts: MeshLayouts, place: Place, cost: Callable[[Step], float]) -> None:
        self.joint, self.planned, self.place, self.cost = joint, layouts, place, cost
        self.layouts: dict[Node, str] = {}
        self.slots: dict[Node, Slot] = {}
        self.made: dict[tuple[Node, str], Slot] = {}
        self.size = 0

    def program(self) -> Program:
        nodes = list(self.joint.module.graph.nodes)
        inputs = tuple(self._input(node, role) for node, role in self.joint.inputs.items())
        constants = tuple((value, self._layout(node).outputs[0], self._new(node, self._layout(node).outputs[0]))
                          for node, value in self.joint.constants.items())  # fmt: skip
        ops = [node for node in nodes if node.op == "call_function"]
        early = _ancestors(node for node, role in self.joint.outputs if role.kind in ("output", "buffer"))
        parts: list[list[Instruction]] = []
        outputs: list[tuple[Role, str, Slot]] = []
        for is_early in (True, False):
            self.made = {}
            instructions = [each for node in ops if (node in early) == is_early for each in self._run(node)]
            for node, role in self.joint.outputs:
                if (role.kind in ("output", "buffer")) == is_early:
                    wanted = self._wanted(role)
                    slot, change = self._brought(node, wanted)
                    instructions += change
                    outputs.append((role, wanted, slot))
            parts.append(instructions)
        kept = {slot for *_, slot in outputs}
        forward, backward = _freed(parts, kept)
        return Program(forward, backward, inputs, constants, tuple(outputs), self.size)

    def _layout(self, node: Node) -> NodeLayout:
        layout = self.planned.by_name.get(node.name)
        if layout is None:
            raise InputError(f"plan: must have a layout for {node.name}, which the model's graph has")
        return layout

    def _input(self, node: Node, role: Role) -> tuple[Role, str, Slot]:
        layout = self._layout(node).outputs[0]
        _shape(node, 0, layout, self.place)
        return role, layout, self._new(node, layout)

    def _new(self, node: Node, layout: str) -> Slot:
        self.layouts[node], self.slots[node] = layout, Slot(self.size)
        self.size += 1
        return self.slots[node]

    def _wanted(self, role: Role) -> str:
        """The layout of an output of the graph: of its parameter or buffer; else it is whole."""
        for node, of in self.joint.inputs.items():
            kind = "parameter" if role.kind == "gradient" else role.kind
            if (of.kind, of.name) == (kind, role.name) and kind in ("parameter", "buffer"):
                return self.layouts[node]
        return replicated(len(self.planned.mesh))

    def _brought(self, node: Node, wanted: str) -> tuple[Slot, list[Instruction]]:
        """Where a node's tensor is in a layout, and what has to be done for it."""
        has = self.layouts[node]
        if has == wanted:
            return self.slots[node], []
        if (node, wanted) in self.made:
            return self.made[node, wanted], []
        value = tensors_of(node)[0]
        assert value is not None
        try:
            shape, mesh = tuple(value.shape), self.planned.mesh
            steps = steps_between(has, wanted, shape, value.element_size(), mesh, self.cost)
        except InputError as error:
            raise InputError(f"plan: {node.name}: {error}") from None
        slot = self.made[node, wanted] = Slot(self.size)
        self.size += 1
        return slot, [Change(node.name, self.slots[node], slot, steps)]

    def _run(self, node: Node) -> list[Instruction]:
        if is_getitem(node):
            source, number = node.args
            outputs = self._layout(source).outputs
            slot = self._new(node, outputs[number] if len(outputs) > 1 else outputs[0])
            return [Operation(node.name, operator.getitem, (self.slots[source], number), {}, slot, ())]
        planned, taken = self._layout(node), tensor_arguments(node)
        if len(planned.inputs) != len(taken) or len(planned.outputs) != len(tensors_of(node)):
            counts = f"{len(planned.inputs)} and {len(planned.outputs)}"
            rule = f"must have {len(taken)} layouts of inputs and {len(tensors_of(node))} of outputs"
            raise InputError(f"plan: {node.name}: {rule}, got {counts}")
        instructions: list[Instruction] = []
        slots: list[Slot] = []
        for argument, wanted in zip(taken, planned.inputs, strict=True):
            slot, changes = self._brought(argument, wanted.replace("P(mask)", "R"))
            slots.append(slot)
            instructions += changes
        shapes = tuple(_shape(node, number, layout, self.place) for number, layout in enumerate(planned.outputs))
        call, given = local_call(node, planned, self.place), iter(slots)
        arguments, options = torch.fx.node.map_arg((call.arguments, dict(call.options)), lambda _: next(given))
        slot = self._new(node, planned.outputs[0])
        operation = Operation(node.name, call.function, arguments, options, slot, shapes)
        if node.target in NLL and node.args[3] == MEAN and is_partial(planned.outputs[0]):
            return [*instructions, *self._weighed(node, planned, operation)]
        return [*instructions, operation]

    def _weighed(self, node: Node, planned: NodeLayout, summed: Operation) -> list[Instruction]:
        """The mean of a loss from its sum, where ranks may have targets of other weights: the weight in all is added up
        here, once more than planned."""
        total, whole, made = (Slot(self.size + number) for number in range(3))
        self.size += 3
        self.slots[node] = made
        mesh, value = self.planned.mesh, tensors_of(node)[1]
        assert value is not None
        steps = steps_between(planned.outputs[1], replicated(len(mesh)), (), value.element_size(), mesh, self.cost)
        parts = math.prod(size for size, part in zip(mesh, planned.outputs[0].split(","), strict=True) if part != "R")
        return [
            replace(summed, shapes=()),
            Operation(node.name, operator.getitem, (summed.slot, 1), {}, total, ()),
            Change(node.name, total, whole, steps),
            Operation(node.name, mean_of_parts, (summed.slot, whole, parts), {}, made, summed.shapes),
        ]


def _shape(node: Node, number: int, layout: str, place: Place) -> tuple[int, ...] | None:
    value = tensors_of(node)[number]
    if value is None or not layout:
        return None
    try:
        return local_shape(tuple(value.shape), layout, place.mesh)
    except InputError as error:
        raise InputError(f"plan: {node.name}: {error}") from None


def _ancestors(nodes: Iterable[Node]) -> set[Node]:
    """Nodes and all that they are made of."""
    found: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return found


def _freed(parts: Sequence[Sequence[Instruction]], kept: set[Slot]) -> list[tuple[Instruction, ...]]:
    """Instructions that free each value after its last use."""
    seen: set[Slot] = set(kept)
    result: list[tuple[Instruction, ...]] = []
    for instructions in reversed(parts):
        freeing: list[Instruction] = []
        for instruction in reversed(instructions):
            last = {slot for slot in (*_reads(instruction), instruction.slot) if slot not in seen}
            seen |= last
            freeing.append(replace(instruction, frees=tuple(sorted(last, key=lambda slot: slot.number))))
        result.append(tuple(reversed(freeing)))
    return list(reversed(result))


def _reads(instruction: Instruction) -> list[Slot]:
    if isinstance(instruction, Change):
        return [instruction.source]
    leaves, _ = tree_flatten((instruction.arguments, dict(instruction.options)))
    return [leaf for leaf in leaves if isinstance(leaf, Slot)]
