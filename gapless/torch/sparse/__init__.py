"""Sparse gradients: recorded, added by regions between processes, and in training under DistributedDataParallel."""

from gapless.torch.sparse.hook import attach

__all__ = ["attach"]
