"""Plans of collectives between real processes: a function for a training script, and a comparison with the library."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.torch.collectives.ddp import PlanState, reduce_by_plan
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
    "AllGather", "AllReduce", "AllToAll", "Broadcast", "Gather", "PlanState", "PlannedCollective", "Reduce",
    "ReduceScatter", "Scatter", "SendRecv", "Step", "planned", "reduce_by_plan", "steps_of",
]  # fmt: skip

_DDP, _STEPS = ("PlanState", "reduce_by_plan"), ("Step", "steps_of")

__getattr__ = names_of(
    __name__,
    {
        "ddp": _DDP,
        "executor": tuple(name for name in __all__ if name not in (*_DDP, *_STEPS)),
        "steps": _STEPS,
    },
)
