"""Every entry is sent in eight bits, and added up in single precision.

Ranks send each other their shares of the entries (all-to-all), add up what they get, and gather the sums, in eight bits
both times. On a ring that takes what an all-reduce of as many bytes takes. Of 256 entries there is a scale in single
precision, so that it is 0.254 of the bytes of an all-reduce in single precision, 0.508 of one in half. LoongForge,
torchft and ColossalAI send gradients so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.profiles.compressors.compressor import Compressor, Kind
from gapless.profiles.compressors.method import FLOAT_BYTES, Bucket, Exchange, Message, Method

if TYPE_CHECKING:
    import torch

__all__ = ["KINDS", "EightBits"]

_BLOCK = 256
"""Entries of one scale."""
_MOST = 127
"""The greatest magnitude in eight bits."""


class EightBits(Method):
    """Each entry in shares of a 127th of the greatest magnitude of 256 neighbours. What rounding takes off is sent the
    next time: off the entries by the rank that has them, off the sums by the rank that adds them up.
    """

    error = "feedback"

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """A byte for each entry of whole blocks, and their scales."""
        return -(-math.prod(shape) // _BLOCK) * (_BLOCK + FLOAT_BYTES)

    def added_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """A byte for each entry, and its part of a scale."""
        return math.prod(shape) * (1 + FLOAT_BYTES / _BLOCK)

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """Scales, then entries."""
        return _rounded(_rows(gradient.reshape(-1), 1)).reshape(-1)

    def decode(self, payload: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The entries, in the gradient's own type."""
        entries = _meant(payload.view(1, -1)).reshape(-1)[: gradient.numel()]
        return entries.to(gradient.dtype).view(gradient.shape)

    def exchange(self, bucket: Bucket) -> Exchange:
        """Shares to all, then sums to all."""
        gradient, count = bucket.gradient, bucket.gradient.numel()
        rows = _rows(gradient, bucket.ranks)
        payload = _rounded(rows)
        gradient.sub_(_meant(payload).reshape(-1)[:count].to(gradient.dtype))
        received = yield Message("all_to_all", payload.reshape(-1), is_last=False)
        total = _meant(received).sum(0, keepdim=True)
        share = _rounded(total / bucket.ranks)
        lost = (total - bucket.ranks * _meant(share)).view(-1)
        own = gradient[bucket.rank * rows.shape[1] : (bucket.rank + 1) * rows.shape[1]]
        own.add_(lost[: len(own)].to(gradient.dtype))
        shares = yield Message("all_gather", share.reshape(-1))
        return _meant(shares).reshape(-1)[:count].to(gradient.dtype)


def _rows(flat: torch.Tensor, ranks: int) -> torch.Tensor:
    """A row for each rank, of whole blocks, in single precision."""
    from gapless.torch.library import torch

    length = -(-len(flat) // (ranks * _BLOCK)) * _BLOCK
    return torch.nn.functional.pad(flat.float(), (0, ranks * length - len(flat))).view(ranks, length)


def _rounded(rows: torch.Tensor) -> torch.Tensor:
    """Of each row the bytes of its scales, then its entries. What is no number makes its block none."""
    from gapless.torch.library import torch

    blocks = rows.view(len(rows), -1, _BLOCK)
    scales = blocks.abs().amax(2) / _MOST
    shares = blocks / torch.where(scales == 0, 1.0, scales).unsqueeze(2)
    entries = shares.nan_to_num().round().clamp(-_MOST, _MOST).to(torch.int8).view(torch.uint8)
    return torch.cat([scales.view(torch.uint8), entries.view(len(rows), -1)], dim=1)


def _meant(payload: torch.Tensor) -> torch.Tensor:
    """What rows of bytes stand for."""
    from gapless.torch.library import torch

    count = payload.shape[1] // (_BLOCK + FLOAT_BYTES)
    scales = payload[:, : FLOAT_BYTES * count].contiguous().view(torch.float32)
    entries = payload[:, FLOAT_BYTES * count :].contiguous().view(torch.int8).view(len(payload), count, _BLOCK)
    return (entries * scales.unsqueeze(2)).view(len(payload), -1)


# -- what is published -------------------------------------------------------------------------------------------------

_KERNEL_S = 26e-6
_KERNELS = 3
"""To encode: greatest magnitudes, shares of them, rounding; to decode: a sum, its rounding, what all stand for."""

_INT8 = Compressor(
    "int8", "8 bits and a scale for 256 entries, summed in single precision", FLOAT_BYTES / (1 + FLOAT_BYTES / _BLOCK),
    True, _KERNELS * _KERNEL_S, _KERNELS * _KERNEL_S, 1,
    "estimated: three kernels each, at what fp16's encode takes in the Espresso repository", "feedback",
)  # fmt: skip

KINDS = (Kind.of(_INT8, EightBits),)
