"""Sharded data parallelism: plans applied by FSDP2, and run beside its own wrapping."""

from gapless.torch.fsdp.applied import apply

__all__ = ["apply"]
