"""A model on a mesh: what an instance's nodes and choices are, and published layouts to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.instances.instance import Instance
from gapless.encodings.sharding.question import OPTIMIZERS, Question
from gapless.errors import InputError
from gapless.profiles.devices import Device, named_device
from gapless.profiles.layouts.costs import MeshCosts, mesh_costs
from gapless.profiles.layouts.layouts import MeshLayouts, NodeLayout
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

__all__ = ["MeshedModel", "Published", "meshed_model"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Published:
    """A plan by name: `choices`, int64, shape (nodes,), and what they cost in all."""

    name: str
    choices: Ints
    cost: int


@dataclass(frozen=True, repr=False)
class MeshedModel:
    """`costs`: of the mesh. `layouts[v][k]`: what choice k of node v of the instance says of a node of the joint graph;
    empty where the node stands for none. `baselines`: choices, int64, shape (nodes,), by name. `without_rule`: how
    often ops were met for which DTensor has no rule. `tied`: nodes that share the choice of another since layers are
    equal.
    """

    costs: MeshCosts
    graph: str
    layouts: tuple[tuple[NodeLayout, ...], ...] = field(repr=False)
    baselines: Mapping[str, Ints] = field(repr=False)
    without_rule: Mapping[str, int]
    tied: int

    def laid_out(self, choices: Ints) -> MeshLayouts:
        """The layouts that a choice for each node, int64, shape (nodes,), stands for."""
        chosen = zip(self.layouts, choices.tolist(), strict=True)
        return MeshLayouts(self.costs.shape, self.graph, tuple(each[choice] for each, choice in chosen if each))


def meshed_model(asked: Question) -> tuple[Instance, MeshedModel]:
    """The instance of a question's model, in nanoseconds and in bytes on each device.

    Raises `InputError` for a field that is lacking, a mesh larger than its topology, or a model that can't be captured.
    """
    if asked.mesh is None or (asked.topology is None and asked.topology_file is None):
        lacking = "mesh" if asked.mesh is None else "topology"
        raise InputError(f"{lacking}: must be given with a model, such as mesh 2x4 on topology dgx-h100")
    device = asked.device if isinstance(asked.device, Device) else named_device(asked.device)
    topology = asked.topology
    if not isinstance(topology, Topology):
        topology = load_topology(topology, asked.nodes, asked.topology_file)
    costs = mesh_costs(topology, asked.mesh, device)
    from gapless.torch.run.workload import Workload, load_named
    from gapless.torch.sharding.baselines import baselines
    from gapless.torch.sharding.joint import joint_of
    from gapless.torch.sharding.tables import model_tables

    workload = asked.model if isinstance(asked.model, Workload) else load_named(str(asked.model))
    _, joint = joint_of(workload)
    made = model_tables(joint, costs, OPTIMIZERS[asked.optimizer], share=not asked.unequal_layers)
    tables = made.tables
    name = asked.model if isinstance(asked.model, str) else type(workload.model).__name__
    instance = Instance(
        f"{name} on {'x'.join(map(str, asked.mesh))} of {topology.name}", tables.intervals, tables.costs_ns,
        tables.usages, tables.edges, tables.tables, device.memory_bytes if asked.memory is None else asked.memory,
    )  # fmt: skip
    model = MeshedModel(
        costs, made.digest, made.node_layouts, baselines(made), made.without_rule, made.tied
    )  # fmt: skip
    return instance, model
