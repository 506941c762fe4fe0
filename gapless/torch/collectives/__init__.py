"""Plans of collectives between real processes: functions for a training script, and comparisons with the library."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.torch.collectives.ddp import PlanState, reduce_by_plan
    from gapless.torch.collectives.executor import (
        AllGather,
        AllGatherV,
        AllReduce,
        AllToAll,
        AllToAllV,
        Broadcast,
        Gather,
        PlannedCollective,
        Reduce,
        ReduceScatter,
        Scatter,
        SendRecv,
        planned,
    )
    from gapless.torch.collectives.installed import Installed, install
    from gapless.torch.collectives.steps import Step, steps_of

__all__ = [
    "AllGather", "AllGatherV", "AllReduce", "AllToAll", "AllToAllV", "Broadcast", "Gather", "Installed", "PlanState",
    "PlannedCollective", "Reduce", "ReduceScatter", "Scatter", "SendRecv", "Step", "install", "planned",
    "reduce_by_plan", "steps_of",
]  # fmt: skip

_DDP, _INSTALLED, _STEPS = ("PlanState", "reduce_by_plan"), ("Installed", "install"), ("Step", "steps_of")

__getattr__ = names_of(
    __name__,
    {
        "ddp": _DDP,
        "executor": tuple(name for name in __all__ if name not in (*_DDP, *_INSTALLED, *_STEPS)),
        "installed": _INSTALLED,
        "steps": _STEPS,
    },
)
