"""A plan of sparse gradients in a training script, by one call."""

from __future__ import annotations

from pathlib import Path

from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.hook_memory import Scaler
from gapless.torch.library import rank_count, torch
from gapless.torch.sparse.hook import SparseState, attach_exchange
from gapless.torch.sparse.plan import SparsePlan
from gapless.torch.sparse.planned import PlannedExchange
from gapless.torch.sparse.saved import read_sparse_plan

__all__ = ["attach"]


def attach(
    ddp: torch.nn.parallel.DistributedDataParallel, plan: SparsePlan | str | Path, density: float | None = None,
    period: int = 32, renewal: int | None = 64, scaler: Scaler | None = None,
) -> SparseState:  # fmt: skip
    """Let a model in DDP send its gradients by a plan, with what isn't sent added to the next gradient.

    To be called by all ranks of DDP's process group, once. `density`: the share of entries that each rank sends, by
    default the plan's. `period`: steps between two thresholds; `renewal`: between two sets of regions, None to keep the
    plan's. `scaler`: the `GradScaler` that scales the loss, if one does. The state that is returned can be saved and
    loaded; it has the places that were sent, and words received (`exchange.received_words`).
    Raises `InputError` for a file that is no valid plan of sparse gradients, or of another model or number of ranks.
    """
    if not isinstance(plan, SparsePlan):
        plan = read_sparse_plan(plan)
    plan.check(sum(each.numel() for each in trainable(ddp.module).values()), rank_count(ddp.process_group))
    exchange = PlannedExchange(plan, density, period, renewal, ddp.process_group)
    return attach_exchange(ddp, plan.density if density is None else density, exchange, period, scaler)
