"""A share of the entries is sent: the largest, or some at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.profiles.compressors.compressor import SHARE, Compressor, Kind, by_figure_2, by_table
from gapless.profiles.compressors.method import (
    FLOAT_BYTES,
    PLACE_BYTES,
    Bucket,
    Exchange,
    Gathered,
    Message,
    Method,
    kept_count,
)

if TYPE_CHECKING:
    import torch

__all__ = ["KINDS", "RandomK", "TopK"]


class _Kept(Gathered):
    """A share of the entries, `kept` of all (0.01 for 1 %), at least one; with their places."""

    _place_bytes = PLACE_BYTES

    def __init__(self, kept: float) -> None:
        kept_count(kept, ())  # refuses what is no share
        self.kept = kept

    def sent_bytes(self, shape: Sequence[int], number_bytes: int = FLOAT_BYTES) -> int:
        """Values, and their places unless all ranks know them."""
        return (self._place_bytes + number_bytes) * kept_count(self.kept, shape)

    def added_bytes(self, shape: Sequence[int], number_bytes: int) -> float:
        """The share, not rounded."""
        return self.kept * (self._place_bytes + number_bytes) * math.prod(shape)

    def add_to(self, total: torch.Tensor, payload: torch.Tensor, factor: float) -> None:
        """Add `factor` times the kept entries."""
        kind = _place_type(total)
        places_bytes = kept_count(self.kept, total.shape) * kind.itemsize
        # A view as a wider type must start at a multiple of its width in memory: a clone does.
        places, values = payload[:places_bytes].clone().view(kind), payload[places_bytes:].clone().view(total.dtype)
        total.index_add_(0, places, values, alpha=factor)


class TopK(_Kept):
    """Keeps the entries of greatest magnitude. Raises `InputError` unless 0 < kept <= 1."""

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """The places, then the values, as bytes."""
        flat = gradient.reshape(-1)
        return _packed(flat, flat.abs().topk(kept_count(self.kept, flat.shape), sorted=False).indices)


class RandomK(_Kept):
    """One entry of each of so many equal stretches, at random: the same ones in all ranks, which are summed, or others
    in each (`gathered`), which are sent with their places.
    """

    def __init__(self, kept: float, gathered: bool = False) -> None:
        super().__init__(kept)
        self.gathered = gathered
        if not gathered:
            self.collective, self._place_bytes = "all_reduce", 0
            self.only_summed = "its places are drawn for sums in all ranks alike; take rand-k-gathered"

    def _places(self, gradient: torch.Tensor, step: int, number: int, rank: int) -> torch.Tensor:
        from gapless.torch.library import torch

        length = gradient.numel()
        count = kept_count(self.kept, gradient.shape)
        own = rank if self.gathered else 0
        generator = torch.Generator().manual_seed((step * 8191 + number) * 65521 + own)
        starts = torch.arange(count + 1, dtype=torch.int64) * length // count
        chance = torch.rand(count, generator=generator, dtype=torch.float64)
        places: torch.Tensor = (starts[:-1] + (chance * starts.diff()).long()).to(gradient.device)
        return places

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """The places, then the values, as bytes; others the next time. Where any overflows, none is a number."""
        step, flat = (memory or {}).get("step", 0), gradient.reshape(-1)
        assert isinstance(step, int)
        if not flat.isfinite().all():
            flat = flat * math.nan
        elif memory is not None:
            memory["step"] = step + 1
        return _packed(flat, self._places(flat, step, 0, 0))

    def exchange(self, bucket: Bucket) -> Exchange:
        gradient = bucket.gradient
        places = self._places(gradient, bucket.step, bucket.number, bucket.rank)
        if self.gathered:
            payload = _packed(gradient, places)
            gradient[places] = 0
            return self.mean_of((yield Message("all_gather", payload)), bucket)
        values = gradient[places].mul_(1 / bucket.ranks)
        gradient[places] = 0
        mean = gradient.new_zeros(gradient.shape)
        mean[places] = yield Message("all_reduce", values)
        return mean


def _place_type(gradient: torch.Tensor) -> torch.dtype:
    from gapless.torch.library import torch

    return torch.int32 if gradient.numel() < 2**31 else torch.int64


def _packed(gradient: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Places, then the entries there, as bytes."""
    from gapless.torch.library import torch

    return torch.cat([places.to(_place_type(gradient)).view(torch.uint8), gradient[places].view(torch.uint8)])


# -- what is published -------------------------------------------------------------------------------------------------

_RAND_K = by_figure_2("rand-k", "1 % at random, indices from a shared seed", 100.0, 88, 34, all_reducible=True)
_RAND_K_GATHERED = by_figure_2("rand-k-gathered", "1 % at random, each rank its own, with 32-bit indices", 50.0, 88, 34)
_DGC = by_figure_2("dgc", "the largest 1 % by a sampled threshold, with 32-bit indices", 50.0, 390, 34)
_TOP_K = by_table("topk", "the largest 1 %, with 32-bit indices", 50.0, 273, _DGC)
_MS_TOP_K = by_table("ms-topk", "about the largest 1 % by bisection, with 32-bit indices", 50.0, 103, _DGC)


def _keeping(compressor: Compressor, share: float, name: str) -> Compressor:
    """One that keeps another share than 0.01: it takes as long to find, since all entries are read."""
    if name == compressor.name:
        return compressor
    if 100 * share > compressor.ratio:
        raise InputError(f"compressor {compressor.name}: must send no more than the gradient, got a share of {share:g}")
    what = compressor.what.replace("1 %", f"{100 * share:g} %")
    return replace(compressor, name=name, what=what, ratio=compressor.ratio / (100 * share))


def _kind(compressor: Compressor, method: Callable[[float], Method], *also: tuple[str, int]) -> Kind:
    return Kind(compressor.name, partial(_keeping, compressor), method, SHARE, also=also)


KINDS = (
    _kind(_RAND_K, RandomK),
    _kind(_RAND_K_GATHERED, partial(RandomK, gathered=True)),
    _kind(_TOP_K, TopK, (r"top (\d*\.?\d+)%", 100)),
    _kind(_MS_TOP_K, TopK),
    _kind(_DGC, TopK),
)
"""The published ones differ from top-k in how they find what they send."""
