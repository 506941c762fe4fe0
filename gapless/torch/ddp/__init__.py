"""Data-parallel training: gradients measured into fusion profiles, fusion plans applied to DistributedDataParallel."""

from gapless.torch.ddp.buckets import actual_buckets, distribute, state_for
from gapless.torch.ddp.hook import HookState, reduce_bucket
from gapless.torch.ddp.measuring import measure_gradients, measure_hook
from gapless.torch.ddp.state import hook_state

__all__ = [
    "HookState", "actual_buckets", "distribute", "hook_state", "measure_gradients", "measure_hook", "reduce_bucket",
    "state_for",
]  # fmt: skip
