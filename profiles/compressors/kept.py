"""What all have in common that send a share of the entries with their places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.profiles.compressors.method import FLOAT_BYTES, PLACE_BYTES, Gathered, kept_count

if TYPE_CHECKING:
    import torch

__all__ = ["Kept", "packed"]


class Kept(Gathered):
    """A share of the entries, `kept` of all (0.01 for 1 %), at least one; with their places."""

    place_bytes = PLACE_BYTES

    def __init__(self, kept: float) -> None:
        kept_count(kept, ())  # refuses what is no share
        self.kept = kept

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """Values, and their places unless all ranks know them."""
        return (self.place_bytes + number_bytes) * kept_count(self.kept, shape)

    def added_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """The share, not rounded."""
        return self.kept * (self.place_bytes + number_bytes) * math.prod(shape)

    def add_to(self, total: torch.Tensor, payload: torch.Tensor, factor: float) -> None:
        """Add `factor` times the kept entries, however many there are."""
        kind = _place_type(total)
        places_bytes = len(payload) // (kind.itemsize + total.element_size()) * kind.itemsize
        # A view as a wider type must start at a multiple of its width in memory: a clone does.
        places, values = payload[:places_bytes].clone().view(kind), payload[places_bytes:].clone().view(total.dtype)
        total.index_add_(0, places, values, alpha=factor)


def _place_type(gradient: torch.Tensor) -> torch.dtype:
    from gapless.torch.library import torch

    return torch.int32 if gradient.numel() < 2**31 else torch.int64


def packed(values: torch.Tensor, places: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Places in a gradient, then the values there, as bytes."""
    from gapless.torch.library import torch

    return torch.cat([places.to(_place_type(gradient)).view(torch.uint8), values.view(torch.uint8)])
