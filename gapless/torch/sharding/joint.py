"""The joint graph whose layouts are planned: that of a model's training step, with the same names each time.

Needs the extra `torch`.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence

from gapless.torch.capture.joint import trace_joint
from gapless.torch.capture.model_state import ModelStep
from gapless.torch.capture.settings import nothing_drawn
from gapless.torch.joint_graph import JointGraph, Role
from gapless.torch.library import Node, Tensor, torch
from gapless.torch.run.workload import Workload

__all__ = [
    "graph_digest",
    "is_backward",
    "is_getitem",
    "joint_of",
    "model_name",
    "modules_of",
    "tensor_arguments",
    "tensors_of",
]

_OWNER = "model."
"""How the traced module calls the model within it."""


def joint_of(workload: Workload) -> tuple[ModelStep, JointGraph]:
    """The training step of a workload, and its joint graph of forward, loss and backward; nothing of it is run.

    The graph is ATen ops without side effects. Its names follow from model, shapes and PyTorch's version alone. A
    parameter under several names is there under the first, with the sum of their gradients. Raises `InputError` where
    the model can't be captured as one graph.
    """
    step = ModelStep(workload.model, workload.loss, workload.inputs, tuple(workload.targets))
    with nothing_drawn(workload.model):
        joint = trace_joint(step.module, tuple(step.leaves))
    joint = _untied(joint, dict(step.module.named_parameters(remove_duplicate=False)))
    _drop_empty(joint)
    joint.module.graph.eliminate_dead_code()
    _share_readings(joint)
    joint.module.recompile()
    return step, joint


def _untied(joint: JointGraph, parameters: Mapping[str, Tensor]) -> JointGraph:
    """The same step with one input for a parameter under several names, and the sum of its gradients as its gradient.

    `parameters`: by all of their names.
    """
    graph = joint.module.graph
    first: dict[int, Node] = {}
    owner = {
        role.name: first.setdefault(id(parameters[role.name]), node)
        for node, role in joint.inputs.items() if role.kind == "parameter"
    }  # fmt: skip
    if len(first) == len(owner):
        return joint
    position = {node: number for number, node in enumerate(graph.nodes)}
    made: dict[Node, list[Node]] = {}
    for node, role in joint.outputs:
        if role.kind == "gradient":
            made.setdefault(owner[role.name], []).append(node)
    gradients = {node: _added(graph, sorted(terms, key=position.__getitem__)) for node, terms in made.items()}
    outputs = []
    for node, role in joint.outputs:
        if role.kind != "gradient":
            outputs.append((node, role))
        elif joint.inputs[owner[role.name]] == Role("parameter", role.name):
            outputs.append((gradients[owner[role.name]], role))
    inputs = dict(joint.inputs)
    for node, role in joint.inputs.items():
        if role.kind == "parameter" and owner[role.name] is not node:
            node.replace_all_uses_with(owner[role.name])
            graph.erase_node(node)
            del inputs[node]
    graph.output_node().args = (tuple(node for node, _ in outputs),)
    return JointGraph(joint.module, inputs, tuple(outputs))


def _added(graph: torch.fx.Graph, terms: Sequence[Node]) -> Node:
    """The sum of tensors, each added as soon as it is there; `terms`: in the order of the graph."""
    total = terms[0]
    for term in terms[1:]:
        with graph.inserting_after(term):
            added = graph.call_function(torch.ops.aten.add.Tensor, (total, term))
        added.meta = {**term.meta, "val": total.meta["val"] + term.meta["val"]}
        total = added
    return total


def _drop_empty(joint: JointGraph) -> None:
    """Take what is joined to nothing as it is, which no rule of DTensor knows: caches of keys begin empty."""
    for node in joint.module.graph.nodes:
        if node.target is torch.ops.aten.cat.default:
            full = [part for part in node.args[0] if part.meta["val"].numel()]
            if len(full) == 1 and full[0].meta["val"].shape == node.meta["val"].shape:
                node.replace_all_uses_with(full[0])


def _share_readings(joint: JointGraph) -> None:
    """Let what several ops read be read through a view of it: there its layout can be changed once for all of them."""
    graph = joint.module.graph
    alias = torch.ops.aten.alias.default
    for node in list(graph.nodes):
        readers = [user for user in node.users if user.op == "call_function" and not is_getitem(user)]
        if node.op != "call_function" or node.target is alias or len(readers) < 2 or not node.meta["val"].dim():
            continue
        with graph.inserting_after(node):
            shared = graph.call_function(alias, (node,))
        shared.meta = dict(node.meta)
        for reader in readers:
            reader.replace_input_with(node, shared)


def graph_digest(joint: JointGraph) -> str:
    """A short text that differs where names, ops, their arguments or shapes differ."""
    lines = [
        f"{node.name} {node.target} {node.args} {node.kwargs} {_shapes(node)}" for node in joint.module.graph.nodes
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _shapes(node: Node) -> list[tuple[object, ...]]:
    return [() if value is None else (*value.shape, value.dtype) for value in tensors_of(node)]


def model_name(title: str) -> str:
    """The model's own name of a parameter or buffer, from that of the traced module."""
    return title.removeprefix(_OWNER)


def is_backward(node: Node) -> bool:
    """Whether a node is of the backward pass, by what the tracer notes."""
    return bool(node.meta.get("partitioner_tag") == "is_backward")


def modules_of(joint: JointGraph) -> dict[Node, tuple[str, bool]]:
    """The module of each node, as the model names it, and whether the node is of the backward pass.

    An op is of the module whose parameter was read last before it; one of the backward pass is of the module of the op
    whose gradient it helps to make. The tracer numbers ops, and the backward pass goes through the numbers downwards.
    Sums of gradients have the number of the loss, and belong to what stands before them. What stands before all
    parameters has no module.
    """
    found: dict[Node, tuple[str, bool]] = {}
    owner: dict[Node, str] = {}
    by_number: dict[int, str] = {}
    last, least = "", math.inf
    for node in joint.module.graph.nodes:
        role, number = joint.inputs.get(node), int(node.meta.get("seq_nr") or 0)
        if role is not None:
            name = model_name(role.name).rpartition(".")[0]
            found[node] = name, False
            if role.kind == "parameter":
                owner[node] = name
        elif is_backward(node):
            if number in by_number and number < least:
                last, least = by_number[number], number
            found[node] = last, True
        else:
            read = node.all_input_nodes
            last = next((owner[each] for each in read if each in owner), last)
            if len(read) == 1 and read[0] in owner:  # a view of a parameter
                owner[node] = last
            found[node] = last, False
            by_number.setdefault(number, last)
    return found


def is_getitem(node: Node) -> bool:
    """Whether a node only picks one of the outputs of another."""
    target: Callable[..., object] | str = node.target
    return target is operator.getitem


def tensors_of(node: Node) -> list[Tensor | None]:
    """The tensors without data that stand for what a node returns, in order; None for those that it leaves out."""
    made = node.meta.get("val")
    values = made if isinstance(made, tuple | list) else (made,)
    return [value if isinstance(value, torch.Tensor) else None for value in values]


def tensor_arguments(node: Node) -> list[Node]:
    """The nodes whose tensors a node takes, in the order in which they stand among its arguments, lists opened."""
    found: list[Node] = []
    torch.fx.node.map_arg((node.args, node.kwargs), found.append)
    return found
