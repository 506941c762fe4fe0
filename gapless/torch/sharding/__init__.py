"""Sharding of PyTorch models: the joint graph of a training step, and the layouts that DTensor allows each op.

`apply` trains a model by planned layouts.
"""

import gapless.torch.library  # noqa: F401  # says in one line where PyTorch isn't installed
from gapless.torch.sharding.execution.step import ShardedStep, apply

__all__ = ["ShardedStep", "apply"]
