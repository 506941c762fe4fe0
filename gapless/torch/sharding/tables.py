"""A model on a mesh as tables: a node for each tensor that a step is given and for each op, a choice a strategy.

An edge from a producer to a reader has the times of changing the layout between them. A gradient is a node of its own
that has the layout of its parameter. Equal layers share choices by edges that forbid all others. Needs the extra
`torch`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.layouts.costs import MeshCosts
from gapless.profiles.layouts.layouts import MeshLayouts, NodeLayout
from gapless.profiles.layouts.tables import ChoiceTables
from gapless.torch.joint_graph import JointGraph
from gapless.torch.sharding.builder import RESULTS, Reading, TablesBuilder, Variable
from gapless.torch.sharding.joint import graph_digest, modules_of
from gapless.torch.sharding.sharing import tie_equal_layers

__all__ = ["ModelTables", "model_tables"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ModelTables:
    """Choices with their costs, and what their nodes and edges are.

    `without_rule`: ops that run whole on every device since DTensor has no rule for them, and how often. `tied`: nodes
    that share the choice of another one.
    """

    tables: ChoiceTables
    variables: tuple[Variable, ...]
    readings: tuple[Reading | None, ...] = field(repr=False)
    costs: MeshCosts
    joint: JointGraph = field(repr=False)
    without_rule: dict[str, int]
    tied: int

    @property
    def digest(self) -> str:
        """Of the joint graph."""
        return graph_digest(self.joint)

    @cached_property
    def node_layouts(self) -> tuple[tuple[NodeLayout, ...], ...]:
        """What each choice of each node says; nothing for nodes that stand for none of the joint graph."""
        places = modules_of(self.joint)
        return tuple(() if each.kind in RESULTS else _layouts_of(each, places[each.node]) for each in self.variables)

    def layouts(self, choices: Ints) -> MeshLayouts:
        """The layouts that a choice for each node, int64, shape (nodes,), stands for."""
        chosen = zip(self.node_layouts, choices.tolist(), strict=True)
        return MeshLayouts(self.costs.shape, self.digest, tuple(each[choice] for each, choice in chosen if each))


def _layouts_of(variable: Variable, place: tuple[str, bool]) -> tuple[NodeLayout, ...]:
    op = str(variable.node.target) if variable.kind == "op" else variable.kind
    name, title = variable.node.name, variable.title
    return tuple(NodeLayout(name, op, choice.inputs, choice.outputs, title, *place) for choice in variable.choices)


def model_tables(joint: JointGraph, costs: MeshCosts, state_bytes: int = 8, *, share: bool = True) -> ModelTables:
    """The choices of a joint graph on a mesh.

    `state_bytes`: of the optimiser for each number that is trained; Adam has 8. `share`: equal layers are laid out
    alike.
    """
    builder = TablesBuilder(joint, costs, state_bytes)
    builder.add_all()
    tied = tie_equal_layers(builder) if share else 0
    edges = np.array(builder.edges, dtype=np.int64).reshape(-1, 2)
    intervals = np.array(builder.intervals, dtype=np.int64)
    tables = ChoiceTables(intervals, tuple(builder.costs_ns), tuple(builder.usages), edges, tuple(builder.tables))
    without = dict(builder.strategies.without_rule)
    return ModelTables(tables, tuple(builder.variables), tuple(builder.readings), costs, joint, without, tied)
