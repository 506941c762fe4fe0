"""Layouts: what a plan decides for a model on a mesh, named by the nodes of the model's joint graph.

A layout of a tensor is a text with a part for each axis of the mesh, as `S0,R`: `R` on every device of the axis whole,
`S0` split along the tensor's first dimension, `P` a sum that is still to be made over the axis, `P(avg)` a mean, and
`P(mask)` the rows that an embedding found in its part of the table, still to be added up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from gapless.errors import InputError
from gapless.io.typed import Stored

__all__ = ["MeshLayouts", "NodeLayout", "is_partial", "replicated", "split_dimension"]


def replicated(axes: int) -> str:
    """The layout that is whole on every device of a mesh with so many axes."""
    return ",".join(["R"] * axes)


def split_dimension(part: str) -> int | None:
    """The dimension of the tensor that a part of a layout splits; None for none."""
    return int(part[1:]) if part.startswith("S") else None


def is_partial(layout: str) -> bool:
    """Whether a layout, or a part of one, is a sum that is still to be made."""
    return "P" in layout


@dataclass(frozen=True)
class NodeLayout:
    """A node of the joint graph. `op`: `aten.mm.default`; of a placeholder `parameter`, `buffer`, `input`, `tangent`,
    and `constant` of what the graph holds itself. `title`: the name that the model has for a parameter or buffer.

    `inputs`: layouts that its tensor arguments are brought to before it runs, in the order in which they stand among
    its arguments, lists opened. `outputs`: of the tensors that it returns, empty texts for those that it leaves out.
    Nodes that pick one of several outputs (`getitem`) have no entry. `module`: what it belongs to, as the model names
    it: the module of a parameter, or of the one that was read last before an op, or whose gradient it helps to make.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    title: str = ""
    module: str = ""
    is_backward: bool = False


@dataclass(frozen=True)
class MeshLayouts:
    """Layouts of a model's joint graph on a mesh of `mesh` devices, its axes in order.

    `graph`: digest of the joint graph that the names are of. A gradient is brought to the layout of its parameter, new
    values of buffers to that of their buffer, and the loss is whole on every device. Raises `InputError` for a layout
    with another number of parts than the mesh has axes, and for names that stand twice.
    """

    mesh: Annotated[tuple[int, ...], Stored(1, is_filled=True)]
    graph: str
    nodes: tuple[NodeLayout, ...]

    def __post_init__(self) -> None:
        if len(self.by_name) != len(self.nodes):
            raise InputError("nodes: must each have a name of its own, got one twice")
        for node in self.nodes:
            for layout in (*node.inputs, *node.outputs):
                if layout and layout.count(",") + 1 != len(self.mesh):
                    rule = f"must have a part for each of the {len(self.mesh)} axes of the mesh"
                    raise InputError(f"nodes: {node.name}: a layout {rule}, got {layout!r}")

    @property
    def device_count(self) -> int:
        """Of the mesh."""
        return math.prod(self.mesh)

    @cached_property
    def by_name(self) -> dict[str, NodeLayout]:
        """The nodes by their names."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The layout of each parameter, by the name that the model has for it."""
        return {node.title: node.outputs[0] for node in self.nodes if node.op == "parameter"}
