"""The nodes and edges of a model's tables, one after the other in the order of the joint graph.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.layouts.changes import Changes, even_layouts
from gapless.profiles.layouts.costs import MeshCosts, to_ns
from gapless.profiles.layouts.layouts import is_partial, replicated, split_dimension
from gapless.profiles.layouts.tables import FORBIDDEN
from gapless.torch.joint_graph import JointGraph, Role
from gapless.torch.library import Node, Tensor, torch
from gapless.torch.sharding.joint import model_name, tensor_arguments, tensors_of
from gapless.torch.sharding.lifetimes import find_lifetimes, producer_of
from gapless.torch.sharding.strategies import Strategies, Strategy, signature_of
from gapless.torch.sharding.work import Work, local_bytes

__all__ = ["RESULTS", "Reading", "TablesBuilder", "Variable"]

Ints = NDArray[np.int64]
_Choices = tuple[Strategy, ...]
RESULTS = ("gradient", "output")
"""Kinds of nodes that stand for no node of the joint graph."""
_FREE = ("parameter", "buffer", "input")
"""What a step may be given in any layout."""


@dataclass(frozen=True)
class Variable:
    """What a node stands for. `kind`: "op", "gradient", "output", or the role of what a step is given.

    `title`: the model's name of a parameter or buffer.
    """

    kind: str
    node: Node = field(repr=False)
    choices: _Choices
    title: str = ""


@dataclass(frozen=True)
class Reading:
    """What an edge stands for: a value with `shape` and `item_bytes` an element that a node reads.

    `before[i]`, `after[j]`: its layouts in the choices of the edge's first node and of its second.
    """

    shape: tuple[int, ...]
    item_bytes: int
    before: tuple[str, ...]
    after: tuple[str, ...]


class TablesBuilder:
    """`variables`, `costs_ns`, `usages`, `intervals`, `edges` and `tables` are those of `ChoiceTables`;
    `readings[e]` says what edge e is.

    `number[node]`: the variable of a node of the joint graph; `gradients[parameter]`: of its gradient. `signatures`: of
    the ops.
    """

    def __init__(self, joint: JointGraph, costs: MeshCosts, state_bytes: int) -> None:
        self.joint, self.costs, self.mesh, self.state_bytes = joint, costs, costs.shape, state_bytes
        kept = {producer_of(node)[0] for node, role in joint.outputs if role.kind in ("buffer", "output")}
        self.lives = find_lifetimes(joint, kept)
        self.strategies = Strategies(self.mesh)
        self.trained = {role.name for _, role in joint.outputs if role.kind == "gradient"}
        self.variables: list[Variable] = []
        self.number: dict[Node, int] = {}
        self.gradients: dict[Node, int] = {}
        self.signatures: dict[Node, Hashable] = {}
        self.costs_ns: list[Ints] = []
        self.usages: list[Ints] = []
        self.intervals: list[tuple[int, int]] = []
        self.edges: list[tuple[int, int]] = []
        self.tables: list[Ints] = []
        self.readings: list[Reading | None] = []
        self._changes: dict[Hashable, Changes] = {}
        self._between: dict[Hashable, Ints] = {}
        self._works: dict[Hashable, Work] = {}
        self._ops: dict[Hashable, tuple[_Choices, Ints, Ints]] = {}

    def add_all(self) -> None:
        """Everything but what equal layers share."""
        for node in self.lives.position:
            if node.op == "call_function":
                self._add_op(node)
            elif tensors_of(node)[0] is not None:
                self._add_given(node)
        self._add_results()

    def add_edge(self, first: int, second: int, table: Ints, reading: Reading | None = None) -> None:
        """Unless it has no cost at all. `reading`: None where it only ties choices."""
        if table.any():
            self.edges.append((first, second))
            self.tables.append(table)
            self.readings.append(reading)

    def _add(self, variable: Variable, interval: tuple[int, int], costs_ns: Ints, usages: Ints) -> int:
        self.variables.append(variable)
        self.intervals.append(interval)
        self.costs_ns.append(costs_ns)
        self.usages.append(usages)
        return len(self.variables) - 1

    def _add_given(self, node: Node) -> None:
        """What a step is given: there all along, a parameter with the state of the optimiser."""
        role = self.joint.inputs.get(node, Role("constant"))
        tensor = _only(node)
        layouts = [replicated(len(self.mesh))]
        if role.kind in _FREE:
            layouts = even_layouts(tuple(tensor.shape), self.mesh)
        is_trained = role.kind == "parameter" and role.name in self.trained
        usages = np.array([local_bytes(layout, tensor, self.mesh) for layout in layouts], dtype=np.int64)
        if is_trained:
            usages += usages // tensor.element_size() * self.state_bytes
        choices = tuple(Strategy((), (layout,)) for layout in layouts)
        variable = Variable(role.kind, node, choices, model_name(role.name))
        self.number[node] = self._add(variable, (0, self.lives.end), np.zeros_like(usages), usages)

    def _add_op(self, node: Node) -> None:
        self.signatures[node] = signature_of(node)
        arguments = [producer_of(argument) for argument in tensor_arguments(node)]
        base = self.lives.base.get(node)
        choices, costs_ns, usages = self._op(node, arguments, base)
        interval = self.lives.position[node], self.lives.last[node] + 1
        self.number[node] = number = self._add(Variable("op", node, choices), interval, costs_ns, usages)
        for place, (producer, output) in enumerate(arguments):
            after = [choice.inputs[place] for choice in choices]
            copies = [choice.is_copy for choice in choices] if place == base else None
            tensor = tensors_of(tensor_arguments(node)[place])[0]
            self._add_change((producer, output), number, tensor, after, copies)

    def _op(self, node: Node, arguments: Sequence[tuple[Node, int]], base: int | None) -> tuple[_Choices, Ints, Ints]:
        """Choices, times and bytes of an op, once for all that are alike."""
        made = tuple(self._sums_made(*argument) for argument in arguments)
        is_alias = node.target is torch.ops.aten.alias.default
        may_copy = base is not None and (is_alias or arguments[base][0] not in self.lives.base)
        key = self.signatures[node], made, base, may_copy
        all_of = self.strategies.of(node, self.signatures[node])
        if key not in self._ops:
            choices = tuple(each for each in all_of if _has_terms(each, made))
            if may_copy and base is not None:
                choices += tuple(
                    Strategy(each.inputs, each.outputs, is_copy=True)
                    for each in choices
                    if not is_partial(each.inputs[base])  # nobody makes terms of a sum to keep them
                )
            self._ops[key] = choices, *self._priced(node, choices, base)
        return self._ops[key]

    def _priced(self, node: Node, choices: _Choices, base: int | None) -> tuple[Ints, Ints]:
        if base is None:
            work = Work(node, self.costs)
            times_ns = [to_ns(work.duration_s(choice)) for choice in choices]
            return np.array(times_ns, dtype=np.int64), np.array([self._made_bytes(node, each) for each in choices])
        tensor = tensors_of(tensor_arguments(node)[base])[0]
        sizes = [local_bytes(each.inputs[base], tensor, self.mesh) if each.is_copy else 0 for each in choices]
        return np.zeros(len(choices), dtype=np.int64), np.array(sizes, dtype=np.int64)

    def _made_bytes(self, node: Node, choice: Strategy) -> int:
        pairs = zip(choice.outputs, tensors_of(node), strict=True)
        return sum(local_bytes(layout, tensor, self.mesh) for layout, tensor in pairs if tensor is not None)

    def _sums_made(self, producer: Node, output: int) -> tuple[frozenset[str], ...]:
        """The kinds of sums that a producer may leave to be made, by axis."""
        layouts = [choice.outputs[output].split(",") for choice in self.variables[self.number[producer]].choices]
        return tuple(frozenset(filter(is_partial, parts)) for parts in zip(*layouts, strict=True))

    def _add_change(
        self, made: tuple[Node, int], reader: int, tensor: Tensor, after: Sequence[str],
        copies: Sequence[bool] | None = None,
    ) -> None:  # fmt: skip
        """The times of bringing a value to the layouts of a reader's choices.

        `copies`: the reader is a view, which is of the value as it is, or else of a copy.
        """
        producer, output = made
        before = [choice.outputs[output] for choice in self.variables[self.number[producer]].choices]
        reading = Reading(tuple(tensor.shape), tensor.element_size(), tuple(before), tuple(after))
        key = reading, tuple(copies or ())
        if key not in self._between:
            table = self._change(reading.shape, reading.item_bytes).between(before, after)
            if copies is not None:
                is_same = np.array(before)[:, None] == np.array(after)
                table = np.where(is_same == np.array(copies), FORBIDDEN, table)
            self._between[key] = table
        self.add_edge(self.number[producer], reader, self._between[key], reading)

    def _change(self, shape: tuple[int, ...], item_bytes: int) -> Changes:
        return self._changes.setdefault((shape, item_bytes), Changes(shape, item_bytes, self.costs))

    def _add_results(self) -> None:
        """Gradients come to the layouts of their parameters, buffers to their own, all else is whole at the end."""
        named = {(role.kind, role.name): node for node, role in self.joint.inputs.items()}
        nothing = np.zeros(1, dtype=np.int64)
        whole = replicated(len(self.mesh))
        for node, role in self.joint.outputs:
            made, tensor = producer_of(node), _only(node)
            if role.kind == "gradient":
                self._add_gradient(made, tensor, named["parameter", role.name])
            elif role.kind == "buffer":
                buffer = self.number[named["buffer", role.name]]
                after = [choice.outputs[0] for choice in self.variables[buffer].choices]
                self._add_change(made, buffer, tensor, after)
            else:
                variable = Variable("output", node, (Strategy((whole,), ()),))
                self._add_change(made, self._add(variable, (0, 0), nothing, nothing), tensor, [whole])

    def _add_gradient(self, made: tuple[Node, int], tensor: Tensor, parameter: Node) -> None:
        owner = self.number[parameter]
        choices = self.variables[owner].choices
        layouts = [choice.outputs[0] for choice in choices]
        usages = np.array([local_bytes(layout, tensor, self.mesh) for layout in layouts], dtype=np.int64)
        variable = Variable("gradient", parameter, choices, self.variables[owner].title)
        interval = self.lives.position[made[0]] + 1, self.lives.end
        self.gradients[parameter] = number = self._add(variable, interval, np.zeros_like(usages), usages)
        self._add_change(made, number, tensor, layouts)
        self.add_edge(owner, number, np.where(np.eye(len(choices), dtype=bool), 0, FORBIDDEN))


def _only(node: Node) -> Tensor:
    tensor = tensors_of(node)[0]
    assert tensor is not None
    return tensor


def _has_terms(strategy: Strategy, made: Sequence[Sequence[frozenset[str]]]) -> bool:
    """Whether the sums that it takes can be there: their producer leaves some to be made, or others of its inputs are
    split along the axis, as in a product whose bias is added up with the rest."""
    parts = [layout.split(",") for layout in strategy.inputs]
    for each, kinds in zip(parts, made, strict=True):
        for axis, part in enumerate(each):
            if is_partial(part) and part not in kinds[axis]:
                along = [other[axis] for other in parts]
                if part != "P" or not any(split_dimension(other) is not None for other in along):
                    return False
    return True
