"""From a joint graph to a training graph: what is a node of it, what each holds, and what runs for it.

A node of the graph is an operator at ATen level; what it holds is memory, not tensors: views share it and are no nodes.
Needs the extra `torch`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from gapless.errors import InputError
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant
from gapless.torch.capture.calls import GraphCall, ModelCall
from gapless.torch.capture.model_state import ModelState, ModelStep
from gapless.torch.capture.operators import is_random, op_name, state_bytes, written_over
from gapless.torch.capture.program import LASTS, PASSES, Call, CapturedStep, Gradient, InputShape, Operator
from gapless.torch.capture.storages import Storages, allocated_bytes
from gapless.torch.islands.operators import must_last
from gapless.torch.joint_graph import JointGraph
from gapless.torch.library import Node, Tensor, torch
from gapless.torch.rewrite.matching import Rewrites

__all__ = ["GraphBuilder"]

_UNTIMED = (Implementation(0.0),)
_PREFIX = "model."


@dataclass
class _Node:
    """A computing node of the joint graph, which becomes one or more nodes of the training graph."""

    call: Node
    reads: set[int]
    made: tuple[int, ...]


@dataclass
class GraphBuilder:
    """Turns a joint graph into a captured step."""

    joint: JointGraph
    storages: Storages
    rewrites: Rewrites
    parameters: dict[str, Tensor]
    state: ModelState
    name: str
    close: tuple[str, ...]
    in_place: bool = True
    """Whether operators may be offered to run over an input."""
    forward: list[ForwardNode] = field(default_factory=list)
    backward: list[BackwardNode] = field(default_factory=list)
    operators: list[Operator | None] = field(default_factory=list)
    node_of: dict[int, int] = field(default_factory=dict)
    """The node of the training graph that holds a storage."""
    bundles: dict[int, list[int]] = field(default_factory=dict)
    """The storages that a node of the training graph holds."""
    lasting: set[int] = field(default_factory=set)
    """The storages that stay until the step is over: new values of buffers, outputs that a caller holds, gradients of
    inputs."""

    def build(self, step: ModelStep | ModelCall | GraphCall) -> CapturedStep:
        nodes = [
            _Node(node, self.storages.read_by((node.args, node.kwargs)), made)
            for node, made in self.storages.made.items()
            if node not in self.rewrites.beside
        ]
        ends = {role.index: value for value, role in self.joint.outputs if role.kind == "output"}
        self.outputs = tuple(ends[index] for index in sorted(ends))
        self.updates = [(value, _plain(role.name)) for value, role in self.joint.outputs if role.kind == "buffer"]
        self.given = [(value, role.index) for value, role in self.joint.outputs if role.kind == "input gradient"]
        ending = {storage for value in self.outputs for storage in self.storages.of[value]}
        lasting = [value for value, _ in (*self.updates, *self.given)]
        self.lasting = {storage for value in lasting for storage in self.storages.of[value]}
        self.lasting |= {storage for node in nodes if must_last(node.call) for storage in node.made}
        if step.returns_outputs:  # who called holds them, whatever the plan does
            self.lasting |= ending
        else:
            self._check_loss()
        last = max((number for number, node in enumerate(nodes) if ending.intersection(node.made)), default=None)
        if last is None or last + 1 == len(nodes):
            what = "an output" if step.returns_outputs else "a loss"
            raise InputError(f"capture: the model must compute {what} that depends on a parameter")
        runs_again = isinstance(step, ModelCall) and bool(step.beside)
        self.base_bytes = self._base_bytes(nodes[: last + 1], runs_again)
        self._add_forward(nodes[: last + 1], nodes[last + 1 :], ending)
        self._add_backward(nodes[last + 1 :])
        graph = TrainingGraph(
            self.name, step.batch, tuple(self.forward), tuple(self.backward), self.base_bytes,
            source=f"captured with PyTorch {torch.__version__}, not timed",
        )  # fmt: skip
        return CapturedStep(
            graph=graph,
            operators=tuple(self.operators),
            roles={node: replace(role, name=_plain(role.name)) for node, role in self.joint.inputs.items()},
            constants=self.joint.constants,
            updates=tuple(self.updates),
            outputs=self.outputs,
            returns_outputs=step.returns_outputs,
            input_gradients=tuple(self.given),
            late_gradients=self.late,
            inputs=tuple(InputShape.of(leaf) for leaf in step.leaves),
            structure=step.structure,
            storages=self.storages,
            state=self.state,
            objective=step.objective,
            close=self.close,
            target_count=step.target_count,
        )

    def _check_loss(self) -> None:
        """Raise `InputError` unless the only output is a scalar."""
        shapes = [tuple(self.storages.fake[value].shape) for value in self.outputs]
        if len(shapes) != 1:
            raise InputError("capture: the loss must be one scalar tensor that depends on a parameter")
        if self.storages.fake[self.outputs[0]].numel() != 1:
            raise InputError(f"capture: the loss must be one scalar tensor, got shape {shapes[0]}")

    # -- forward -------------------------------------------------------------------------------------------------------

    def _base_bytes(self, forward: list[_Node], runs_again: bool) -> int:
        """What a step holds all along: the loss, its gradient, the buffers' new values, states of random operators.

        One that may run again, for gradients that no plan is for, holds buffers and states from before it as well.
        """
        ends = {storage for value in (*self.outputs, *self._tangents()) for storage in self.storages.of[value]}
        sizes = [self.storages.size_bytes[storage] for storage in self.lasting | ends]
        devices = [self._device(node.call) for node in forward if is_random(node.call)]
        states = [*devices, *devices[:1]]  # one more to go back to
        if runs_again:
            sizes += [allocated_bytes(self.storages.fake[value]) for value, _ in self.updates]
            states += set(devices)
        return sum(sizes) + sum(state_bytes(device) for device in states)

    def _tangents(self) -> list[Node]:
        return [value for value, role in self.joint.inputs.items() if role.kind == "tangent"]

    def _device(self, node: Node) -> torch.device:
        value = self.storages.fake[node]
        return (value if isinstance(value, torch.Tensor) else value[0]).device

    def _add_forward(self, nodes: list[_Node], backward: list[_Node], ending: set[int]) -> None:
        read_forward = set().union(*(node.reads for node in nodes)) | ending
        self.kept_for_backward = set().union(*(node.reads for node in backward))
        self.last_read = {storage: number for number, node in enumerate(nodes) for storage in node.reads}
        readers: dict[int, list[int]] = {}
        for number, node in enumerate(backward):
            for storage in node.reads:
                readers.setdefault(storage, []).append(number)
        for node in nodes:
            made = [storage for storage in node.made if storage not in self.lasting]
            main = [storage for storage in made if storage in read_forward]
            groups: dict[tuple[int, ...], list[int]] = {}
            for storage in made:
                if storage in readers and storage not in main:
                    groups.setdefault(tuple(readers[storage]), []).append(storage)
            sides = list(groups.values())
            if not main and sides:
                main = sides.pop(0)
            if (extra := self._extra(node)) and main:
                sides.append(extra)
            if main or is_random(node.call) or self.lasting.intersection(node.made):
                self._add_forward_node(node, main, sides)
                self._add_beside(node.call)
        by_name = {node.name: number for number, node in enumerate(self.forward)}
        makers = sorted({by_name[node.call.name] for node in nodes if ending.intersection(node.made)})
        held_bytes = sum(self.storages.size_bytes[storage] for storage in ending - self.lasting)
        self.forward.append(ForwardNode("loss", "loss", held_bytes, tuple(makers), _UNTIMED))
        self.operators.append(None)

    def _extra(self, node: _Node) -> list[int]:
        """The storages of an operator that only alternatives read: it runs without making them where nobody does."""
        lean = self.rewrites.lean.get(node.call)
        return [] if lean is None else [storage for value in lean.extra for storage in self.storages.of[value]]

    def _add_forward_node(self, node: _Node, main: list[int], sides: list[list[int]]) -> None:
        number = len(self.forward)
        inputs = tuple(sorted({self.node_of[storage] for storage in node.reads if storage in self.node_of}))
        for place, bundle in enumerate([main, *sides]):
            name = node.call.name if not place else f"{node.call.name}.{place}"
            op = op_name(node.call) + (" on the side" if place else "")
            size = sum(self.storages.size_bytes[storage] for storage in bundle)
            creator = number if place else None
            self.forward.append(ForwardNode(name, op, size, () if place else inputs, _UNTIMED, creator=creator))
            self.node_of.update(dict.fromkeys(bundle, number + place))
            self.bundles[number + place] = bundle
        values = self._values(node)
        call = Call.of(node.call, random=node.call.name if is_random(node.call) else "")
        calls = (call, *self._forward_in_place(call, node, number, main))
        if (lean := self.rewrites.lean.get(node.call)) is not None:
            calls = (replace(call, function=lean.function), replace(call, makes=number + len(sides)))
        extra = self._extra(node)
        made_bytes = sum(self.storages.size_bytes[storage] for storage in node.made if storage not in extra)
        for place in range(1 + len(sides)):
            holds = tuple(value for value, _, holder in values if holder == number + place)
            if place:
                self.operators.append(Operator(f"{node.call.name}.{place}", (), holds=holds))
            else:
                self.operators.append(Operator(node.call.name, calls, values, holds, made_bytes=made_bytes))

    def _forward_in_place(self, call: Call, node: _Node, number: int, main: list[int]) -> tuple[Call, ...]:
        """The same written over an input, where that is possible; whether it pays is for the solver to say."""
        candidates = [
            (storage in self.kept_for_backward, -self.last_read.get(storage, 0), written)
            for written in (written_over(call) if self.in_place else ())
            for storage in self.storages.of[written.arguments[0]]
            if self._covers(storage, written, node, main) and self.storages.of[written.arguments[0]][0] in self.node_of
        ]
        if not candidates:
            return ()
        _, _, written = min(candidates, key=lambda candidate: candidate[:2])
        over = self.node_of[self.storages.of[written.arguments[0]][0]]
        self.forward[number] = replace(self.forward[number], overwrites=over, in_place=_UNTIMED)
        return (written,)

    def _covers(self, storage: int, written: Call, node: _Node, outputs: list[int]) -> bool:
        """Whether the first argument is all that its node holds, and what is written has its size and strides."""
        holder = self.node_of.get(storage, -1)
        value = self.storages.values[node.call][0][0]
        first, result = self.storages.fake[written.arguments[0]], self.storages.fake[value]
        alike = (first.shape, first.dtype, first.device) == (result.shape, result.dtype, result.device)
        whole = allocated_bytes(first) == self.storages.size_bytes[storage]
        others = self.storages.read_by((written.arguments[1:], written.options))
        return (
            alike
            and whole
            and first.stride() == result.stride()
            and storage not in others
            and self.bundles.get(holder) == [storage]
            and len(outputs) == 1
            and self.storages.of[value][0] == outputs[0]
        )

    def _add_beside(self, creator: Node) -> None:
        """The intermediates that are made from an operator's output for one alternative of its gradient only."""
        number = next(k for k in range(len(self.forward) - 1, -1, -1) if self.forward[k].creator is None)
        for node, maker in self.rewrites.beside.items():
            if maker is creator:
                (storage,) = self.storages.made[node]
                size = self.storages.size_bytes[storage]
                self.node_of[storage] = len(self.forward)
                values = ((node, None, len(self.forward)),)
                self.forward.append(ForwardNode(node.name, op_name(node), size, (), _UNTIMED, creator=number))
                self.operators.append(Operator(node.name, (Call.of(node),), values, (node,), made_bytes=size))

    def _values(self, node: _Node) -> tuple[tuple[Node, int | None, int], ...]:
        rows = []
        for value, place in self.storages.values[node.call]:
            storage = self.storages.of[value][0]
            rows.append((value, place, LASTS if storage in self.lasting else self.node_of.get(storage, PASSES)))
        return tuple(rows)

    # -- backward ------------------------------------------------------------------------------------------------------

    def _add_backward(self, nodes: list[_Node]) -> None:
        made = {storage: number for number, node in enumerate(nodes) for storage in node.made}
        read = {storage for node in nodes for storage in node.reads}
        wanted: dict[int, list[tuple[Node, str]]] = {}
        late = []
        for value, role in self.joint.outputs:
            if role.kind == "gradient":
                (storage,) = set(self.storages.of[value])
                if storage in made:
                    wanted.setdefault(storage, []).append((value, _plain(role.name)))
                else:
                    late.append(Gradient(value, _plain(role.name), False))
        self.late = tuple(late)
        self.last_read = {storage: number for number, node in enumerate(nodes) for storage in node.reads}
        grown_bytes = self.base_bytes
        seen: set[int] = set()
        for number, node in enumerate(nodes):
            gradients, taken = self._gradients(node, wanted, read)
            last = number + 1 == len(nodes)
            for gradient in (*gradients, *(self.late if last else ())):
                parameter = self.parameters[gradient.parameter]
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    grown_bytes += allocated_bytes(parameter)
            self._add_backward_node(node, read, taken, gradients, grown_bytes)

    def _gradients(
        self, node: _Node, wanted: dict[int, list[tuple[Node, str]]], read: set[int]
    ) -> tuple[tuple[Gradient, ...], set[int]]:
        """The gradients that a node completes, and the storages that become gradients as they are."""
        gradients, taken = [], set()
        for storage in node.made:
            for value, name in wanted.get(storage, ()):
                fake, parameter = self.storages.fake[value], self.parameters[name]
                alone = len(wanted[storage]) == 1 and storage not in read
                whole = self.storages.size_bytes[storage] == allocated_bytes(parameter)
                as_it_is = alone and whole and fake.stride() == parameter.stride() and fake.dtype == parameter.dtype
                gradients.append(Gradient(value, name, as_it_is))
                if as_it_is:
                    taken.add(storage)
        return tuple(gradients), taken

    def _add_backward_node(
        self, node: _Node, read: set[int], taken: set[int], gradients: tuple[Gradient, ...], fixed_bytes: int
    ) -> None:
        number, loss = len(self.backward), len(self.forward) - 1
        kept = [storage for storage in node.made if storage in read and storage not in taken]
        calls = self._backward_calls(node, number, kept or sorted(taken))
        _, earlier = self._sources(node.reads)
        self.node_of.update(dict.fromkeys(kept, loss + 1 + number))
        self.bundles[loss + 1 + number] = kept
        size = sum(self.storages.size_bytes[storage] for storage in kept)
        variants = tuple(Variant(call.needs, _UNTIMED, call.name) for call in calls)
        self.backward.append(
            BackwardNode(
                node.call.name, op_name(node.call), self._paired(node.call), size, earlier, variants, fixed_bytes
            )
        )  # fmt: skip
        values = self._values(node)
        holds = tuple(value for value, _, holder in values if holder >= 0)
        made_bytes = sum(self.storages.size_bytes[storage] for storage in node.made)
        self.operators.append(Operator(node.call.name, calls, values, holds, gradients, made_bytes))

    def _sources(self, reads: set[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The forward nodes whose outputs are read, and the gradients: the loss for its own."""
        loss = len(self.forward) - 1
        tangent = {self.storages.of[value][0] for value in self._tangents()}
        sources = {self.node_of[storage] for storage in reads if storage in self.node_of}
        earlier = {source for source in sources if source > loss} | ({loss} if tangent & reads else set())
        return tuple(sorted(source for source in sources if source < loss)), tuple(sorted(earlier))

    def _backward_calls(self, node: _Node, number: int, outputs: list[int]) -> tuple[Call, ...]:
        """The framework's call and the alternatives, each written over a gradient that nobody reads any more."""
        draw = self.rewrites.draws.get(node.call)
        random, close = "" if draw is None else draw.name, self.rewrites.close.get(node.call, "")
        own = Call.of(node.call, self._sources(node.reads)[0], random, close)
        calls = [own]
        for other in self.rewrites.alternatives.get(node.call, ()):
            needs, _ = self._sources(self.storages.read_by(other.arguments))
            random = "" if other.random is None else other.random.name
            calls.append(
                Call(other.function, other.arguments, name=other.name, needs=needs, random=random, close=other.close)
            )
        return tuple(self._ends_in_place(call, node, number, outputs) for call in calls)

    def _ends_in_place(self, call: Call, node: _Node, number: int, outputs: list[int]) -> Call:
        loss = len(self.forward) - 1
        for written in written_over(call) if self.in_place else ():
            (storage,) = set(self.storages.of[written.arguments[0]])
            is_gradient = self.node_of.get(storage, -1) > loss and self.last_read.get(storage) == number
            if is_gradient and self._covers(storage, written, node, outputs):
                return written
        return call

    def _paired(self, call: Node) -> int:
        """The forward node whose gradient this is part of, by the sequence number that autograd gave both."""
        return min(self._by_sequence.get(call.meta.get("seq_nr"), 0), len(self.forward) - 2)

    @cached_property
    def _by_sequence(self) -> dict[Node, int]:
        by_name = {node.name: number for number, node in enumerate(self.forward)}
        return {node.meta.get("seq_nr"): by_name[node.name] for node in self.storages.made if node.name in by_name}


def _plain(name: str) -> str:
    return name.removeprefix(_PREFIX)
