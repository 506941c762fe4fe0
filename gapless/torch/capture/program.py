"""Captured steps: what each node of a training graph runs, for the profiler to time and for a step to execute.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gapless.profiles.training.graph import TrainingGraph
from gapless.torch.capture.model_state import ModelState
from gapless.torch.capture.storages import Storages
from gapless.torch.joint_graph import Role
from gapless.torch.library import Argument, Loss, Made, Node, Tensor, TreeSpec, torch

__all__ = ["LASTS", "PASSES", "Call", "CapturedStep", "Gradient", "InputShape", "Operator"]

LASTS, PASSES = -2, -1


@dataclass(frozen=True)
class Call:
    """A choice of how to run an operator: a function of values of the joint graph.

    `name`: of the variant, empty for the framework's own. `needs`: the forward nodes of the training graph that it
    reads. `random`: the name of the operator under whose random state it runs, empty for none; that operator itself
    saves the state at its first run. `in_place`: it writes over its first argument. `makes`: the node of the training
    graph for an intermediate that the framework's own call doesn't make. `close`: the kind of an implementation that is
    not equal to eager's bit by bit.
    """

    function: Callable[..., Made]
    arguments: tuple[Argument, ...]
    options: dict[str, Argument] = field(default_factory=dict)
    name: str = ""
    needs: tuple[int, ...] = ()
    random: str = ""
    in_place: bool = False
    makes: int | None = None
    close: str = ""

    @classmethod
    def of(cls, node: Node, needs: tuple[int, ...] = (), random: str = "", close: str = "") -> Call:
        """The framework's own, as a graph node has it."""
        return cls(node.target, node.args, dict(node.kwargs), needs=needs, random=random, close=close)


@dataclass(frozen=True)
class Gradient:
    """A gradient that an operator of the backward pass completes.

    `value`: the graph node that stands for it. `parameter`: its name. `is_taken`: whether it becomes `.grad` as it is;
    else it is copied, since others read its memory or its strides are not the parameter's.
    """

    value: Node
    parameter: str
    is_taken: bool


@dataclass(frozen=True)
class Operator:
    """What a node of the training graph runs: `calls` to choose from, the framework's own first.

    `values`: for each tensor that a call returns and that is wanted, the graph node that stands for it, its place in
    what is returned (None: it is all), and the node of the training graph that holds it, or `LASTS` for a buffer's new
    value, which stays until the step is over, or `PASSES` for what is used up at once, as gradients of parameters are.
    `holds`: the values that this node of the training graph holds. An intermediate that its creator returns has no
    call. `made_bytes`: of all that a call returns.
    """

    name: str
    calls: tuple[Call, ...]
    values: tuple[tuple[Node, int | None, int], ...] = ()
    holds: tuple[Node, ...] = ()
    gradients: tuple[Gradient, ...] = ()
    made_bytes: int = 0


@dataclass(frozen=True)
class InputShape:
    """What an argument of a step must be. `strides`: of the example; those of dimensions of size 1 don't matter."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    strides: tuple[int, ...]

    @property
    def layout(self) -> list[int | None]:
        """The strides that matter: None for those of dimensions of size 1, and of all where nothing is held."""
        return [
            stride if size > 1 and 0 not in self.shape else None
            for size, stride in zip(self.shape, self.strides, strict=True)
        ]

    @classmethod
    def of(cls, tensor: Tensor) -> InputShape:
        """That of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device, tuple(tensor.stride()))


@dataclass(frozen=True)
class CapturedStep:
    """A training step: its training graph, and what every node of it runs.

    `graph` counts bytes above parameters, buffers and inputs; its times are zero until `profile` has measured them.
    `operators`: one for each node of the graph, forward nodes first; None for the loss, which only stands for the end
    of the forward pass. `roles`: of the joint graph's placeholders. `constants`: of its attributes. `updates`: graph
    nodes of the buffers' new values. `outputs`: what the forward pass returns, the loss alone where it ends with one.
    `late_gradients`: those that no operator completes. `inputs`: what the arguments must be, in the order in which
    `structure` flattens them. `state`: what else of the model must be as it was. `objective`: the loss that `capture`
    was given, None where the model returns it. `close`: the kinds that were asked for. `returns_outputs`: it is a call
    of the model, whose loss is computed elsewhere; `input_gradients` are for arguments, by their numbers.
    """

    graph: TrainingGraph
    operators: tuple[Operator | None, ...]
    roles: dict[Node, Role]
    constants: dict[Node, Tensor]
    updates: tuple[tuple[Node, str], ...]
    outputs: tuple[Node, ...]
    late_gradients: tuple[Gradient, ...]
    inputs: tuple[InputShape, ...]
    structure: TreeSpec
    storages: Storages = field(repr=False)
    state: ModelState
    objective: Loss | None = None
    close: tuple[str, ...] = ()
    target_count: int = 0
    returns_outputs: bool = False
    input_gradients: tuple[tuple[Node, int], ...] = ()

    @property
    def device(self) -> torch.device:
        """Where its arguments are."""
        return self.inputs[0].device if self.inputs else torch.device("cpu")

    @property
    def border_bytes(self) -> int:
        """Of what the graph counts all along, what is there in the backward pass alone: gradients of outputs and of
        arguments."""
        tangents = [node for node, role in self.roles.items() if role.kind == "tangent"]
        both = {storage for value in (*self.outputs, *dict(self.updates)) for storage in self.storages.of[value]}
        late = [*tangents, *dict(self.input_gradients)]
        held = {storage for value in late for storage in self.storages.of[value]} - both
        return sum(self.storages.size_bytes[storage] for storage in held)
