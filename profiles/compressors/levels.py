"""Every entry is sent in a bit or two, which stand for a few levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.profiles.compressors.compressor import (
    BITS,
    Compressor,
    Kind,
    by_figure_2,
    by_table,
    table_flat_s,
    table_source,
)
from gapless.profiles.compressors.method import FLOAT_BYTES, Bucket, Gathered
from gapless.profiles.compressors.unbiased import Qsgd, TernGrad

if TYPE_CHECKING:
    import torch

__all__ = ["KINDS", "Sign", "Vote"]


class Vote(Gathered):
    """A bit for each entry, its sign; the sign that most ranks have is what all take, 0 where as many have either
    (SignSGD with majority vote). Nothing is made up for.
    """

    error = "unknown"
    only_summed = "its votes say no size; take ef-signsgd"

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """A bit for each entry, and a byte that says whether all are numbers, since signs can't."""
        return 1 + -(-math.prod(shape) // 8)

    def added_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """A bit for each entry."""
        return math.prod(shape) / 8

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """The byte, then the bits."""
        from gapless.torch.library import torch

        flat = gradient.reshape(-1)
        return torch.cat([flat.isfinite().all().view(1).to(torch.uint8), _bits(flat >= 0)])

    def add_to(self, total: torch.Tensor, payload: torch.Tensor, factor: float) -> None:
        """Add `factor` times the signs, or what is no number."""
        from gapless.torch.library import torch

        total.add_(torch.where(_read_bits(payload[1:], total), 1.0, -1.0).to(total.dtype), alpha=factor)
        total.add_(torch.where(payload[:1].bool(), 0.0, math.nan).to(total.dtype))

    def mean_of(self, payloads: torch.Tensor, bucket: Bucket) -> torch.Tensor:
        """The sign of the sum of all signs."""
        mean = super().mean_of(payloads, bucket)
        return mean.sign().mul_(bucket.scale).add_(mean * 0)  # the sign of what is no number is one


class Sign(Gathered):
    """A bit for each entry, its sign, and what it stands for: one mean magnitude (EF-SignSGD), or the mean of those
    below zero and that of the others (`means=2`, 1-bit SGD).
    """

    def __init__(self, means: int = 1) -> None:
        self.means = means

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """A bit for each entry, and both levels."""
        return 2 * number_bytes + -(-math.prod(shape) // 8)

    def added_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """A bit for each entry."""
        return math.prod(shape) / 8

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """Both levels, then the bits, as bytes."""
        from gapless.torch.library import torch

        flat = gradient.reshape(-1)
        is_above = flat >= 0
        return torch.cat([self._levels(flat, is_above).to(flat.dtype).view(torch.uint8), _bits(is_above)])

    def add_to(self, total: torch.Tensor, payload: torch.Tensor, factor: float) -> None:
        """Add `factor` times the levels."""
        from gapless.torch.library import torch

        size = 2 * total.element_size()
        below, above = payload[:size].clone().view(total.dtype)
        total.add_(torch.where(_read_bits(payload[size:], total), above, below), alpha=factor)

    def _levels(self, gradient: torch.Tensor, is_above: torch.Tensor) -> torch.Tensor:
        from gapless.torch.library import torch

        if self.means == 1:
            return gradient.abs().mean() * torch.tensor([-1.0, 1.0], dtype=gradient.dtype, device=gradient.device)
        count = is_above.sum()
        above = torch.where(is_above, gradient, 0).sum()
        rest = gradient.sum() - above
        return torch.stack([rest / (len(gradient) - count).clamp(min=1), above / count.clamp(min=1)])


def _bits(is_set: torch.Tensor) -> torch.Tensor:
    """Eight in a byte, the first the lowest."""
    from gapless.torch.library import torch

    bits = torch.nn.functional.pad(is_set.to(torch.uint8), (0, -len(is_set) % 8)).view(-1, 8)
    return bits.bitwise_left_shift(_shifts(is_set)).sum(1, dtype=torch.uint8)


def _read_bits(packed: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """As many of them as another tensor has entries."""
    bits = packed.unsqueeze(1).bitwise_right_shift(_shifts(like)).bitwise_and_(1).view(-1)
    return bits[: len(like)].bool()


def _shifts(like: torch.Tensor) -> torch.Tensor:
    from gapless.torch.library import torch

    return torch.arange(8, dtype=torch.uint8, device=like.device)


# -- what is published -------------------------------------------------------------------------------------------------

_SIGNSGD_MS = 16.0

_EF_SIGNSGD = by_figure_2("ef-signsgd", "signs and a mean, with error feedback", 32.0, 270, 140)
_ONEBIT = by_figure_2("onebit", "signs and two means, with error feedback", 32.0, 620, 170)
_SIGNSGD = Compressor(
    "signsgd", "signs, and the majority's vote; nothing is made up for", 32.0, False, _EF_SIGNSGD.encode_s,
    table_flat_s(_SIGNSGD_MS) - _EF_SIGNSGD.encode_s, 64, f"{table_source(_SIGNSGD_MS)}, encode as ef-signsgd's",
    "unknown",
)  # fmt: skip
_QSGD = by_table("qsgd", "2-bit stochastic quantisation", 16.0, 39, _EF_SIGNSGD, "unbiased")
_TERNGRAD = by_table("terngrad", "three levels in 2 bits", 16.0, 94, _EF_SIGNSGD, "unbiased")


def _qsgd(bits: float, name: str) -> Compressor:
    """As many entries at any number of bits: it takes as long."""
    return replace(_QSGD, name=name, what=f"{bits:g}-bit stochastic quantisation", ratio=32 / bits)


KINDS = (
    Kind.of(_EF_SIGNSGD, Sign),
    Kind.of(_ONEBIT, lambda: Sign(2)),
    Kind.of(_SIGNSGD, Vote),
    Kind("qsgd", _qsgd, lambda bits: Qsgd(int(bits)), BITS),
    Kind.of(_TERNGRAD, TernGrad),
)
