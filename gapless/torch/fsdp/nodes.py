"""Parts of collectives: of all ranks at once, or between nodes and inside them. Needs `torch`.

A part is a collective that runs when it is called. With nodes a gather is between the ranks that have one place in
their nodes, of each rank's share, and then inside nodes; a scatter the other way round. So sums are added up in nodes
first, as hybrid sharding has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gapless.torch.library import Tensor, torch

__all__ = ["AllRanks", "Nodes", "Run"]

Run = Callable[[], object]


class AllRanks:
    """Each collective has one part."""

    def gather(self, output: Tensor, shard: Tensor, group: torch.distributed.ProcessGroup) -> list[Run]:
        """The parts of a gather, in their order."""
        return [lambda: torch.distributed.all_gather_into_tensor(output, shard, group=group)]

    def scatter(self, output: Tensor, whole: Tensor, op: Any, group: torch.distributed.ProcessGroup) -> list[Run]:
        """The parts of a scatter, in their order."""
        return [lambda: torch.distributed.reduce_scatter_tensor(output, whole, op=op, group=group)]


class Nodes(AllRanks):
    """All ranks are whole nodes of so many, node by node. What is over fewer ranks is inside a node."""

    def __init__(self, ranks_per_node: int) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        self._nodes, self._places = torch.distributed.get_world_size() // ranks_per_node, ranks_per_node
        self.mesh = init_device_mesh("cpu", (self._nodes, ranks_per_node), mesh_dim_names=("replicate", "shard"))
        self._between, self._inside = self.mesh.get_group(0), self.mesh.get_group(1)

    def gather(self, output: Tensor, shard: Tensor, group: torch.distributed.ProcessGroup) -> list[Run]:
        """In a node it is one part, that inside."""
        if group.size() == self._places:
            return super().gather(output, shard, group)
        shares = shard.new_empty(self._nodes * shard.numel())
        whole = torch.empty_like(output)

        def inside() -> None:
            torch.distributed.all_gather_into_tensor(whole, shares, group=self._inside)
            output.view(self._nodes, self._places, -1).copy_(whole.view(self._places, self._nodes, -1).transpose(0, 1))

        return [lambda: torch.distributed.all_gather_into_tensor(shares, shard, group=self._between), inside]

    def scatter(self, output: Tensor, whole: Tensor, op: Any, group: torch.distributed.ProcessGroup) -> list[Run]:
        """In a node it is the part inside: FSDP2 sums up replicas by itself."""
        if group.size() == self._places:
            return super().scatter(output, whole, op, group)
        by_place = torch.empty_like(whole)
        shares = output.new_empty(self._nodes * output.numel())

        def inside() -> None:
            by_place.view(self._places, self._nodes, -1).copy_(
                whole.view(self._nodes, self._places, -1).transpose(0, 1)
            )
            torch.distributed.reduce_scatter_tensor(shares, by_place, op=op, group=self._inside)

        return [inside, lambda: torch.distributed.reduce_scatter_tensor(output, shares, op=op, group=self._between)]
