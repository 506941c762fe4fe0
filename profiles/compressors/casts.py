"""Every entry is sent: as it is, or in a shorter type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from gapless.profiles.compressors.compressor import Compressor, Kind, by_figure_2
from gapless.profiles.compressors.method import FLOAT_BYTES, Bucket, Exchange, Message, Method

if TYPE_CHECKING:
    import torch

__all__ = ["KINDS", "NONE", "Cast", "Plain"]


class Plain(Method):
    """The sum as DDP makes it: the same bits."""

    error = "exact"

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """All of it."""
        return number_bytes * math.prod(shape)

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """Each entry."""
        return gradient.reshape(-1).clone()

    def decode(self, payload: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The entries again."""
        return payload.view(gradient.shape)

    def exchange(self, bucket: Bucket) -> Exchange:
        """In place: nothing is left to be sent later."""
        return (yield Message("all_reduce", bucket.gradient.mul_(1 / bucket.ranks)))


class Cast(Method):
    """Every entry in a shorter type, summed in that type."""

    error = "rounded"

    def __init__(self, kind: Literal["float16", "bfloat16"]) -> None:
        self.kind = kind

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """Every entry, in two bytes."""
        return 2 * math.prod(shape)

    def _dtype(self) -> torch.dtype:
        from gapless.torch.library import torch

        dtype: torch.dtype = getattr(torch, self.kind)
        return dtype

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """Each entry, rounded."""
        return gradient.reshape(-1).to(self._dtype())

    def decode(self, payload: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The rounded entries in the gradient's own type."""
        return payload.to(gradient.dtype).view(gradient.shape)

    def exchange(self, bucket: Bucket) -> Exchange:
        share = bucket.gradient.mul(1 / bucket.ranks).to(self._dtype())
        bucket.gradient.sub_(share, alpha=bucket.ranks)
        total = yield Message("all_reduce", share)
        return total.to(bucket.gradient.dtype)


NONE = Compressor("none", "single precision as it is", 1.0, True, 0.0, 0.0, 1, "nothing to do", "exact")

_FP16 = by_figure_2("fp16", "half precision", 2.0, 26, 22, "rounded", all_reducible=True)
_BF16 = by_figure_2("bf16", "half the bits, all of the range", 2.0, 26, 22, "rounded", all_reducible=True)

KINDS = (
    Kind.of(NONE, Plain, ("plain",)),
    Kind.of(_FP16, lambda: Cast("float16"), ("float16",)),
    Kind.of(_BF16, lambda: Cast("bfloat16"), ("bfloat16",)),
)
