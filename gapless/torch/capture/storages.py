"""Which values of a joint graph share memory, and how much each piece of memory takes; found on tensors without data.

Needs the extra `torch`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.torch.capture.layouts import real_layouts
from gapless.torch.devices import device_of
from gapless.torch.joint_graph import JointGraph
from gapless.torch.library import Argument, Made, Node, Tensor, torch, uncast

from torch.multiprocessing.reductions import StorageWeakRef  # isort: skip  (after the line that names the extra)

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["Storages", "allocated_bytes", "find_storages", "tensors_in"]


@dataclass
class Storages:
    """The pieces of memory that a joint graph's values live in, numbered in the order in which they appear.

    `fake[node]`: the tensor without data, or the sequence of them, that a graph node returns. `of[node]`: the storages
    of that. `size_bytes[storage]`. `made[node]`: the storages that a graph node makes, only for nodes that compute;
    the others make views, which take no memory. `values[node]`: for each tensor that a computing node returns and
    somebody reads, the graph node that stands for it and its place (None: the node's only one).
    """

    fake: dict[Node, Tensor] = field(default_factory=dict)
    of: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    size_bytes: list[int] = field(default_factory=list)
    made: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    values: dict[Node, list[tuple[Node, int | None]]] = field(default_factory=dict)

    def is_view(self, node: Node) -> bool:
        """Whether a node only looks at what others have made."""
        if node.op != "call_function" or node in self.made:
            return False
        return not (node.target is operator.getitem and node.args[0] in self.made)

    def views_under(self, arguments: Argument) -> set[Node]:
        """The views that some arguments are read through."""
        found: set[Node] = set()
        left: list[Node] = []
        torch.fx.node.map_arg(arguments, left.append)
        while left:
            node = left.pop()
            if node not in found and self.is_view(node):
                found.add(node)
                left += node.all_input_nodes
        return found

    def read_by(self, arguments: Argument) -> set[int]:
        """The storages that the tensors among some arguments live in."""
        storages: set[int] = set()

        def note(node: Node) -> Node:
            storages.update(self.of[node])
            return node

        torch.fx.node.map_arg(arguments, note)
        return storages


def allocated_bytes(tensor: Tensor) -> int:
    """What the allocator of a tensor's device takes for its elements."""
    return device_of(tensor.device).rounded_bytes(tensor.numel() * tensor.element_size())


def find_storages(joint: JointGraph) -> Storages:
    """Run a joint graph on tensors without data. Raises `InputError` where an op returns both a view and a new one."""
    storages = Storages()
    numbers: dict[int, int] = {}
    held = []  # a storage that went would leave its address to another
    mode = next(iter(joint.inputs)).meta["val"].fake_mode
    with real_layouts(), uncast(), mode:
        for node in joint.module.graph.nodes:
            if node.op == "output":
                continue
            storages.fake[node] = value = _run(node, joint, storages.fake, mode)
            of, new = [], []
            for tensor in tensors_in(value):
                if tensor.layout != torch.strided:
                    rule = f"capture: op {node.target} makes a sparse tensor, of which a plan can't count the memory"
                    raise InputError(f"{rule}; take the dense form, such as sparse=False of an embedding")
                storage = tensor.untyped_storage()
                held.append(storage)
                key = StorageWeakRef(storage).cdata
                if key not in numbers:
                    numbers[key] = len(numbers)
                    new.append(numbers[key])
                    storages.size_bytes.append(device_of(tensor.device).rounded_bytes(int(storage.nbytes())))
                of.append(numbers[key])
            storages.of[node] = tuple(of)
            if new and node.op == "call_function":
                if len(set(of)) != len(new):
                    raise InputError(f"capture: op {node.target} returns a view beside a new tensor")
                storages.made[node] = tuple(new)
                storages.values[node] = _values(node, value)
    return storages


def tensors_in(value: Made) -> list[Tensor]:
    """The tensors that an op returns."""
    values = [value] if isinstance(value, torch.Tensor) else value if isinstance(value, tuple | list) else []
    return [part for part in values if isinstance(part, torch.Tensor)]


def _run(node: Node, joint: JointGraph, fake: dict[Node, Tensor], mode: FakeTensorMode) -> Made:
    if node.op == "placeholder":
        return node.meta["val"]
    if node.op == "get_attr":
        return mode.from_tensor(getattr(joint.module, node.target))
    arguments, options = torch.fx.node.map_arg((node.args, node.kwargs), lambda read: fake[read])
    return node.target(*arguments, **options)


def _values(node: Node, value: Made) -> list[tuple[Node, int | None]]:
    if isinstance(value, torch.Tensor):
        return [(node, None)]
    return [(user, user.args[1]) for user in node.users if user.target is operator.getitem]
