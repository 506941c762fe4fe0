"""A partitioner as Inductor takes it. Importing this imports Inductor. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch._inductor.custom_graph_pass import CustomPartitionerFn

from gapless.torch.library import torch

__all__ = ["Partitioner"]

GraphModule: TypeAlias = torch.fx.GraphModule


class Partitioner(CustomPartitionerFn):  # type: ignore[misc,unused-ignore]
    """`key` is all that Inductor's cache knows of it."""

    def __init__(self, partition: Callable[..., tuple[GraphModule, GraphModule]], key: str) -> None:
        self._partition, self._key = partition, key

    def __getstate__(self) -> dict[str, str]:
        return {"_key": self._key}

    def __call__(
        self, gm: GraphModule, joint_inputs: Sequence[object], **options: object
    ) -> tuple[GraphModule, GraphModule]:
        """The forward and the backward module."""
        return self._partition(gm, joint_inputs, **options)

    def uuid(self) -> str:
        """What two partitions of one graph differ by."""
        return self._key
