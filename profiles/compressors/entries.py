"""A share of the entries is sent: the largest, or some at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.profiles.compressors.compressor import SHARE, Compressor, Kind, by_figure_2, by_table
from gapless.profiles.compressors.dgc import OPTIONS, Dgc
from gapless.profiles.compressors.kept import Kept, packed
from gapless.profiles.compressors.method import Bucket, Exchange, Message, Method, kept_count

if TYPE_CHECKING:
    import torch

__all__ = ["KINDS", "MsTopK", "RandomK", "TopK"]


class TopK(Kept):
    """Keeps the entries of greatest magnitude. Raises `InputError` unless 0 < kept <= 1."""

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """The places, then the values, as bytes."""
        flat = gradient.reshape(-1)
        places = flat.abs().topk(kept_count(self.kept, flat.shape), sorted=False).indices
        return packed(flat[places], places, flat)


_HALVINGS = 20
"""Of the thresholds between which MSTop-K looks for its own."""


class MsTopK(Kept):
    """Keeps about the entries of greatest magnitude, exactly so many: all above a threshold that lets too few through,
    and a run of those between it and one that lets too many through (MSTopK of CommLib).

    Both thresholds come from bisection between the mean and the greatest magnitude, which only counts.
    """

    def encode(self, gradient: torch.Tensor, memory: dict[str, object] | None = None) -> torch.Tensor:
        """The places, then the values, as bytes."""
        from gapless.torch.library import torch

        flat = gradient.reshape(-1)
        sizes, count = flat.abs(), kept_count(self.kept, flat.shape)
        few, many = self._thresholds(sizes, count)
        above = (sizes >= few).nonzero().flatten()[:count]
        between = ((sizes < few) & (sizes >= many)).nonzero().flatten()
        places = torch.cat([above, between[: count - len(above)]])
        if len(places) < count:  # no number has an order
            places = sizes.topk(count, sorted=False).indices
        return packed(flat[places], places, flat)

    def _thresholds(self, sizes: torch.Tensor, count: int) -> tuple[float, float]:
        """The least found that at most `count` entries reach, and the greatest that more do."""
        mean, most = float(sizes.mean()), float(sizes.max())
        few, many, low, high = math.inf, 0.0, 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            threshold = mean + middle * (most - mean)
            if int((sizes >= threshold).sum()) <= count:
                few, high = threshold, middle
            else:
                many, low = threshold, middle
        return few, many


class RandomK(Kept):
    """One entry of each of so many equal stretches, at random: the same ones in all ranks, which are summed, or others
    in each (`gathered`), which are sent with their places.
    """

    def __init__(self, kept: float, gathered: bool = False) -> None:
        super().__init__(kept)
        self.gathered = gathered
        if not gathered:
            self.collective, self.place_bytes = "all_reduce", 0
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
        places = self._places(flat, step, 0, 0)
        return packed(flat[places], places, flat)

    def exchange(self, bucket: Bucket) -> Exchange:
        gradient = bucket.gradient
        places = self._places(gradient, bucket.step, bucket.number, bucket.rank)
        if self.gathered:
            payload = packed(gradient[places], places, gradient)
            gradient[places] = 0
            return self.mean_of((yield Message("all_gather", payload)), bucket)
        values = gradient[places].mul_(1 / bucket.ranks)
        gradient[places] = 0
        mean = gradient.new_zeros(gradient.shape)
        mean[places] = yield Message("all_reduce", values)
        return mean


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


def _kind(compressor: Compressor, method: Callable[..., Method], *also: tuple[str, int]) -> Kind:
    return Kind(compressor.name, partial(_keeping, compressor), method, SHARE, also=also)


KINDS = (
    _kind(_RAND_K, RandomK),
    _kind(_RAND_K_GATHERED, partial(RandomK, gathered=True)),
    _kind(_TOP_K, TopK, (r"top (\d*\.?\d+)%", 100)),
    _kind(_MS_TOP_K, MsTopK),
    replace(_kind(_DGC, Dgc), options=OPTIONS),
)
