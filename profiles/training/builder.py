"""Building a training graph layer by layer: forward nodes are recorded, backward nodes follow in reverse order.

The functions in `gapless.profiles.training.layers` are the vocabulary; each makes one layer on a `NetworkBuilder`::

    net = NetworkBuilder("tiny", batch=32, device=named_device("p100"))
    x = layers.relu(net, layers.conv(net, net.input(3, 32, 32), 16, kernel=3, padding=1))
    x = layers.linear(net, layers.flatten(net, layers.adaptive_avg_pool(net, x, 1)), 10)
    graph = net.build(x)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.profiles.devices import Device
from gapless.profiles.training.costs import FLOAT_BYTES, Work, implementation_of
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant

__all__ = ["BackwardStep", "Gradient", "Layer", "NetworkBuilder", "SideOutput", "Value"]


@dataclass(frozen=True)
class Value:
    """A tensor of the network: its shape, the batch first, and the forward node that makes it (None: an input)."""

    node: int | None
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Size in single precision."""
        return FLOAT_BYTES * self.elements

    @property
    def gradient_bytes(self) -> int:
        """Size of its gradient: an input of the network needs none."""
        return 0 if self.node is None else self.size_bytes

    def viewed(self, *shape: int) -> Value:
        """The same tensor under another shape of as many elements; no operator runs."""
        if math.prod(shape) != self.elements:
            raise InputError(f"view: {self.shape} has {self.elements} elements, got the shape {shape}")
        return Value(self.node, shape)


@dataclass(frozen=True)
class SideOutput:
    """An intermediate that a layer can make for its backward pass: its cost adds to the layer's own."""

    op: str
    size_bytes: int
    implementation: Implementation
    backward: Implementation


@dataclass(frozen=True)
class BackwardStep:
    """A backward operator of a layer.

    `from_input`, `from_output`, `from_nothing`: implementations where it is given the layer's inputs, the output, or
    gradients alone; empty where it can't do with that. `from_nothing` stands alone. `parameter_bytes`: parameter
    gradients.
    """

    role: str
    output_bytes: int
    from_input: tuple[Implementation, ...] = ()
    from_output: tuple[Implementation, ...] = ()
    from_nothing: tuple[Implementation, ...] = ()
    parameter_bytes: int = 0


@dataclass(frozen=True)
class Layer:
    """What a layer does: one forward operator, its backward steps, and what it can make on the side.

    `again`: those of a recomputation, where they differ. `in_place`: those over its first input; empty if it can't.
    `parameter_bytes` counts what lives throughout the training: parameters and running statistics. `gradients`: names
    and shapes of the parameter gradients that its steps make, in the order in which frameworks hand them over.
    """

    op: str
    shape: tuple[int, ...]
    implementations: tuple[Implementation, ...]
    steps: tuple[BackwardStep, ...]
    again: tuple[Implementation, ...] = ()
    in_place: tuple[Implementation, ...] = ()
    side: SideOutput | None = None
    parameter_bytes: int = 0
    gradients: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class Gradient:
    """A parameter's gradient; `backward_s`: what the backward pass takes from the gradient before it to this one."""

    name: str
    shape: tuple[int, ...]
    backward_s: float

    @property
    def size_bytes(self) -> int:
        """In single precision."""
        return FLOAT_BYTES * math.prod(self.shape)


class NetworkBuilder:
    """Records the layers of a network in the order in which they run, and builds its training graph once."""

    def __init__(self, name: str, batch: int, device: Device) -> None:
        if batch < 1:
            raise InputError(f"network {name!r}: batch must be >= 1, got {batch}")
        self.name = name
        self.batch = batch
        self.device = device
        self._fixed_bytes = 0
        self._forward: list[ForwardNode] = []
        self._layers: dict[int, tuple[Layer, tuple[Value, ...]]] = {}
        self._names: dict[int, str] = {}

    def input(self, *shape: int, element_bytes: int = FLOAT_BYTES) -> Value:
        """An input of the network, `shape` without the batch. It needs no gradient."""
        value = Value(None, (self.batch, *shape))
        self._fixed_bytes += value.elements * element_bytes
        return value

    def implementation(self, *works: Work, workspace_bytes: int = 0, name: str = "") -> tuple[Implementation, ...]:
        """The one implementation of an operator without a choice, on this builder's device."""
        return (implementation_of(self.device, *works, workspace_bytes=workspace_bytes, name=name),)

    def add(self, layer: Layer, *inputs: Value) -> Value:
        """Append a layer. Its side output, if any, follows it at once."""
        if any(size < 1 for size in layer.shape):
            raise InputError(f"network {self.name!r}: {layer.op}: sizes must be >= 1, got {layer.shape}")
        number = len(self._forward)
        output = Value(number, layer.shape)
        sources = tuple(dict.fromkeys(value.node for value in inputs if value.node is not None))
        self._layers[number] = layer, inputs
        self._fixed_bytes += layer.parameter_bytes
        self._forward.append(
            ForwardNode(
                f"{layer.op}.{number}", layer.op, output.size_bytes, sources, layer.implementations, layer.again
            )
        )
        if layer.side is not None:
            side = layer.side
            self._forward.append(
                ForwardNode(
                    f"{side.op}.{number + 1}",
                    side.op,
                    side.size_bytes,
                    (number,),
                    (side.implementation,),
                    creator=number,
                )
            )
        return output

    def named(self, name: str, value: Value) -> Value:
        """The same value, with the name that the framework gives to the parameters of the layer that made it.

        Layers of one name share their parameters, or hold parts of them.
        """
        if value.node is None:
            raise InputError(f"network {self.name!r}: {name}: an input has no parameters")
        self._names[value.node] = name
        return value

    def gradients(self, graph: TrainingGraph) -> list[Gradient]:
        """The parameter gradients in the order in which they become ready, in the graph that was built.

        The gradients of a layer are ready together, after all its steps; a shared one after the last layer of its name.
        """
        found: list[Gradient] = []
        rows: dict[str, int] = {}
        waited_s = 0.0
        order = [node.forward for node in graph.backward]
        for node, following in zip(graph.backward, [*order[1:], -1], strict=True):
            number = node.forward
            waited_s += node.variants[0].implementations[0].duration_s
            parameters = self._layers[number][0].gradients
            if not parameters or following == number:
                continue
            name = self._names.get(number, graph.forward[number].name)
            for part, shape in parameters:
                rows[f"{name}.{part}"] = rows.get(f"{name}.{part}", 0) + shape[0]
            if any(self._names.get(earlier) == name for earlier in self._layers if earlier < number):
                continue
            for part, shape in parameters:
                found.append(Gradient(f"{name}.{part}", (rows[f"{name}.{part}"], *shape[1:]), waited_s))
                waited_s = 0.0
        return found

    def build(self, *outputs: Value) -> TrainingGraph:
        """The training graph with a loss, free of cost, over the given outputs of the network."""
        loss = len(self._forward)
        sources = tuple(value.node for value in outputs if value.node is not None)
        size_bytes = sum(value.size_bytes for value in outputs)
        forward = [
            *self._forward,
            ForwardNode(f"loss.{loss}", "loss", size_bytes, sources, (Implementation(0.0, power_w=0.0),)),
        ]
        users = _users(forward)
        for number in self._layers:
            if not users[number]:
                raise InputError(f"network {self.name!r}: the output of {forward[number].name} is never used")
        return TrainingGraph(
            name=self.name,
            batch=self.batch,
            forward=tuple(_in_place_where_possible(forward, self._layers, users)),
            backward=tuple(self._backward(loss, users)),
            fixed_bytes=self._fixed_bytes,
            source=f"estimated for {self.device.name} from the public architecture",
        )

    def _backward(self, loss: int, users: list[list[int]]) -> list[BackwardNode]:
        """The steps of the layers in reverse order; the last step of a layer makes its input's gradients."""
        made, fixed_bytes = {loss: loss}, self._fixed_bytes
        nodes: list[BackwardNode] = []
        for number in reversed(self._layers):
            layer, inputs = self._layers[number]
            gradients = tuple(made[user] for user in users[number])
            extra_s = self._summing_s(Value(number, layer.shape), len(gradients))
            for step in layer.steps:
                fixed_bytes += step.parameter_bytes
                variants = _variants(layer, step, number, inputs, extra_s)
                name = f"{layer.op}_{step.role}.{loss + 1 + len(nodes)}"
                op = f"{layer.op}_{step.role}"
                nodes.append(BackwardNode(name, op, number, step.output_bytes, gradients, variants, fixed_bytes))
                extra_s = 0.0  # the first step leaves the sum of the gradients to the others
            made[number] = loss + len(nodes)
        return nodes

    def _summing_s(self, value: Value, count: int) -> float:
        """Time to add up the gradients that the users of a value made: two reads and a write for each but the first."""
        if count < 2:
            return 0.0
        return (count - 1) * self.device.seconds(value.elements, 3 * value.size_bytes)


def _users(forward: Sequence[ForwardNode]) -> list[list[int]]:
    """For each node, the later ones that read it, without intermediates."""
    users: list[list[int]] = [[] for _ in forward]
    for number, node in enumerate(forward):
        if node.creator is None:
            for source in node.inputs:
                users[source].append(number)
    return users


def _in_place_where_possible(
    forward: list[ForwardNode], layers: dict[int, tuple[Layer, tuple[Value, ...]]], users: list[list[int]]
) -> list[ForwardNode]:
    """A layer may run over its first input if it is that input's last user; its intermediate then does so too."""
    found = list(forward)
    for number, (layer, inputs) in layers.items():
        target = inputs[0].node if inputs else None
        if not layer.in_place or target is None or users[target][-1] != number:
            continue
        op = f"{layer.op}_"  # the framework's name of the operator in place
        found[number] = replace(found[number], name=f"{op}.{number}", op=op, overwrites=target, in_place=layer.in_place)
        if layer.side is not None:
            taken_bytes = forward[target].output_bytes
            impl = replace(
                layer.side.implementation, workspace_bytes=layer.side.implementation.workspace_bytes - taken_bytes
            )
            found[number + 1] = replace(found[number + 1], overwrites=target, in_place=(impl,))
    return found


def _variants(
    layer: Layer, step: BackwardStep, number: int, inputs: tuple[Value, ...], extra_s: float
) -> tuple[Variant, ...]:
    sources = tuple(dict.fromkeys(value.node for value in inputs if value.node is not None))
    offers = [
        ("needs input", sources, step.from_input),
        ("needs output", (number,), step.from_output),
        ("needs gradient", (), step.from_nothing),
    ]
    if layer.side is not None:
        offers.append((f"needs {layer.side.op}", (number + 1,), (layer.side.backward,)))
    return tuple(
        Variant(needs, tuple(replace(impl, duration_s=impl.duration_s + extra_s) for impl in impls), name)
        for name, needs, impls in offers
        if impls
    )
