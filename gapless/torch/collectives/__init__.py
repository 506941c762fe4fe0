"""Plans of collectives between real processes: a function for a training script, and a comparison with the library."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.torch.collectives.executor import (
        AllGather,
        AllReduce,
        AllToAll,
        Broadcast,
        Gather,
        PlannedCollective,
        Reduce,
        ReduceScatter,
        Scatter,
        SendRecv,
        planned,
    )
    from gapless.torch.collectives.steps import Step, steps_of

__all__ = [
    "AllGather", "AllReduce", "AllToAll", "Broadcast", "Gather", "PlannedCollective", "Reduce", "ReduceScatter",
    "Scatter", "SendRecv", "Step", "planned", "steps_of",
]  # fmt: skip

__getattr__ = names_of(
    __name__,
    {
        "executor": tuple(name for name in __all__ if name not in ("Step", "steps_of")),
        "steps": ("Step", "steps_of"),
    },
)
