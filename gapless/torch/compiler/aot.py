"""Joint graphs as `torch.compile` hands them to a partitioner, and the two modules that it wants back.

The one module that talks to PyTorch's private partitioners; proven with PyTorch 2.13. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gapless.errors import InputError
from gapless.torch.joint_graph import JointGraph, Role
from gapless.torch.library import Argument, Module, Node, Tensor, torch, tree_flatten

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = [
    "AotGraph",
    "Compiled",
    "Partition",
    "aot_graph",
    "halves",
    "in_eager",
    "in_inductor",
    "is_symbolic",
    "outside",
    "unplanned",
    "with_graph",
]

GraphModule: TypeAlias = torch.fx.GraphModule
Partition: TypeAlias = Callable[..., tuple[GraphModule, GraphModule]]
Compiled: TypeAlias = Callable[..., object]
_OVERWRITTEN = "InputMutationAOTOutput"


@dataclass(frozen=True)
class AotGraph:
    """A joint graph twice: as PyTorch has it, and a copy in which all sizes are numbers.

    `nodes`: PyTorch's, by the name that the copy's have as well. `parameters`: tensors without data that get a
    gradient, by the names of their placeholders. `overwritten`: placeholders of the copy that the forward pass gives
    new values. `output_count`: of the forward pass.
    """

    module: GraphModule
    nodes: dict[str, Node]
    joint: JointGraph
    parameters: dict[str, Tensor]
    overwritten: frozenset[Node]
    output_count: int


@contextmanager
def outside() -> Iterator[None]:
    """Run on real tensors, or on tensors without data of one's own, in the middle of PyTorch's tracing."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield


def aot_graph(module: GraphModule, output_count: int) -> AotGraph | None:
    """What a partitioner was given; None where nothing depends on a gradient.

    Raises `InputError` for graphs inside of the graph.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    module.graph.eliminate_dead_code()
    nodes = {node.name: node for node in module.graph.nodes}
    if not any(_is_tangent(node) and node.users for node in nodes.values()):
        return None
    for node in nodes.values():
        if node.op == "get_attr" and isinstance(getattr(module, str(node.target), None), torch.nn.Module):
            raise InputError(
                f"compile: op {next(iter(node.users)).target} runs a graph of its own, which a plan can't look into; "
                "compile the model without it, or with the backend 'inductor'"
            )
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    results = graph.graph_copy(module.graph, copies)
    graph.output(results)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    for node in graph.nodes:
        if node.op == "placeholder":
            node.meta = {**node.meta, "val": _with_numbers(node.meta["val"], mode)}
    roles = _input_roles(graph)
    _part(graph, output_count)
    (output,) = module.graph.find_nodes(op="output")
    values = [copies.get(value) if isinstance(value, torch.fx.Node) else None for value in _flat(output.args[0])]
    descriptors = output.meta.get("desc") or [None] * len(values)
    places = {node.meta.get("desc"): node for node in roles}
    outputs = [
        (value, role)
        for number, (value, descriptor) in enumerate(zip(values, descriptors, strict=True))
        if value is not None and (role := _output_role(number, output_count, descriptor, places)) is not None
    ]
    overwritten = [descriptor.mutated_input for descriptor in descriptors if type(descriptor).__name__ == _OVERWRITTEN]
    return AotGraph(
        module,
        nodes,
        JointGraph(GraphModule(module, graph), roles, tuple(outputs)),
        {role.name: node.meta["val"] for node, role in roles.items() if role.kind == "parameter"},
        frozenset(places[descriptor] for descriptor in overwritten if descriptor in places),
        output_count,
    )


def _flat(values: Argument) -> list[Argument]:
    flat: list[Argument] = tree_flatten(values)[0]
    return flat


def _is_tangent(node: Node) -> bool:
    return node.op == "placeholder" and "tangents" in str(node.target)


def is_symbolic(node: Node) -> bool:
    """Whether a node is a number that isn't known before the call, such as a size."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)


def _with_numbers(value: object, mode: FakeTensorMode) -> object:
    """A tensor without data with the sizes of this call, where PyTorch keeps them open for others."""
    from torch.fx.experimental.symbolic_shapes import optimization_hint

    def number(size: int | torch.SymInt) -> int:
        return size if isinstance(size, int) else int(optimization_hint(size, fallback=4096))

    if isinstance(value, torch.SymInt):
        return number(value)
    if not isinstance(value, torch.Tensor):
        return value
    with mode:
        return torch.empty_strided(
            [number(size) for size in value.shape],
            [number(stride) for stride in value.stride()],
            dtype=value.dtype,
            device=value.device,
        )


def _input_roles(graph: torch.fx.Graph) -> dict[Node, Role]:
    roles: dict[Node, Role] = {}
    for number, node in enumerate(graph.find_nodes(op="placeholder")):
        is_tensor = isinstance(node.meta["val"], torch.Tensor)
        kind = "tangent" if _is_tangent(node) else "parameter" if is_tensor else "input"
        roles[node] = Role(kind, node.name, number)
    return roles


def _part(graph: torch.fx.Graph, output_count: int) -> None:
    """Put what depends on a gradient behind the forward pass, where an optimisation has mixed the two."""
    (output,) = graph.find_nodes(op="output")
    ends = {value for value in _flat(output.args[0])[:output_count] if isinstance(value, torch.fx.Node)}
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    last = max((number for number, node in enumerate(nodes) if node in ends), default=-1)
    behind = {node for node in graph.nodes if _is_tangent(node)}
    early = []
    for node in nodes[: last + 1]:
        if behind.intersection(node.all_input_nodes):
            behind.add(node)
            early.append(node)
    for node in reversed(early):
        nodes[last].append(node)


def _output_role(number: int, count: int, descriptor: object, places: dict[object, Node]) -> Role | None:
    if number < count:
        return Role("output", index=number)
    of = places.get(getattr(descriptor, "grad_of", None))
    return Role("input gradient", index=number) if of is None else Role("gradient", of.name)


def unplanned(module: GraphModule, inputs: Sequence[object], **options: object) -> tuple[GraphModule, GraphModule]:
    """The two modules of PyTorch's default partitioner."""
    from torch._functorch.partitioners import default_partition

    forward, backward = default_partition(module, inputs, **options)
    return forward, backward


def halves(graph: AotGraph, saved: Sequence[Node], numbers: Sequence[Node]) -> tuple[GraphModule, GraphModule, int]:
    """The forward module that returns `saved` tensors and `numbers` beside its outputs; a backward module that takes
    them, and computes nothing yet; and how many numbers there are in the end."""
    from torch._functorch.compile_utils import raise_getitems
    from torch._functorch.partitioners import _extract_fwd_bwd_modules

    copied = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    results = _flat(copied.graph_copy(graph.module.graph, copies))
    tensors, open_numbers = [copies[node] for node in saved], [copies[node] for node in numbers]
    tangents = [node for node in copied.find_nodes(op="placeholder") if _is_tangent(node)]
    ends = copied.call_function(_reads, (*open_numbers, *tensors, *tangents))
    gradients = [None if value is None else ends for value in results[graph.output_count :]]
    (output,) = graph.module.graph.find_nodes(op="output")
    copied.output((*results[: graph.output_count], *gradients)).meta.update(output.meta)
    forward, backward = _extract_fwd_bwd_modules(
        GraphModule(graph.module, copied),
        tensors,
        saved_sym_nodes=open_numbers,
        saved_opaque_nodes=[],
        num_fwd_outputs=graph.output_count,
    )
    return raise_getitems(forward), backward, len(open_numbers)


def _reads(*values: object) -> None:
    """Stands for a backward pass that reads all of these."""


def with_graph(module: GraphModule, graph: torch.fx.Graph) -> GraphModule:
    """A module with another graph."""
    graph.lint()
    changed: GraphModule = GraphModule(module, graph)
    return changed


def in_eager(module: Module, inputs: Sequence[object], partition: Partition) -> Compiled:
    """Compile with eager's kernels."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop

    compiled: Compiled = aot_autograd(
        fw_compiler=boxed_nop, partition_fn=partition, keep_inference_input_mutations=True
    )(module, inputs)
    return compiled


def in_inductor(module: Module, inputs: Sequence[object], partition: Partition, key: str) -> tuple[Compiled, bool]:
    """Compile with Inductor's kernels, and whether PyTorch's cache had it all, with its backward pass.

    `key`: what the partition depends on beside the graph, for that cache.
    """
    from torch._dynamo.utils import counters
    from torch._inductor.compile_fx import compile_fx

    from gapless.torch.compiler.inductor import Partitioner

    patches = {"custom_partitioner_fn": Partitioner(partition, key)}
    found = counters["aot_autograd"]
    before = found["autograd_cache_hit"]
    compiled: Compiled = compile_fx(module, inputs, config_patches=patches)
    is_trained = torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in inputs)
    return compiled, is_trained and found["autograd_cache_hit"] > before
