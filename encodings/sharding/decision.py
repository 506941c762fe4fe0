"""What a plan decides: the choice of each node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.decision import Decision
from gapless.encodings.sharding.instances.instance import Instance
from gapless.errors import InputError
from gapless.profiles.layouts.costs import MeshCosts
from gapless.profiles.layouts.layouts import MeshLayouts

__all__ = ["ShardingDecision"]


@dataclass(frozen=True)
class ShardingDecision(Decision):
    """`choices[v]`: which of its choices node v takes, from 0 on. `layouts`: what they say of a model on a mesh;
    `costs`: by which changes of layouts took the steps of least time.
    """

    choices: tuple[int, ...]
    layouts: MeshLayouts | None = None
    costs: MeshCosts | None = None

    def of_instance(self, instance: Instance) -> NDArray[np.int64]:
        """The choices, int64, shape (nodes,). Raises `InputError` where the instance has no such nodes or choices."""
        if len(self.choices) != len(instance.costs):
            count = len(instance.costs)
            raise InputError(f"choices: must be {count}, one a node of {instance.name}, got {len(self.choices)}")
        for node, (choice, cost) in enumerate(zip(self.choices, instance.costs, strict=True)):
            if choice >= len(cost):
                raise InputError(f"choices[{node}]: must be in 0..{len(cost) - 1}, got {choice}")
        return np.array(self.choices, dtype=np.int64)
