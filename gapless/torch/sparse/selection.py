"""Which entries of a gradient are sent: those above a threshold, found anew every so many steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.profiles.sparsity.estimates import (
    ADJUSTED_SHARE,
    ADJUSTMENT,
    ESTIMATES,
    EXACT,
    GAUSSIAN_ADJUSTED,
    deviations_above,
)
from gapless.torch.library import torch

__all__ = ["Threshold", "entry_count", "estimated_threshold"]


def entry_count(density: float, length: int) -> int:
    """k: at least one entry. Raises `InputError` unless 0 < density <= 1."""
    if not 0 < density <= 1:
        raise InputError(f"density: must be a fraction above 0, at most 1, got {density}")
    return max(1, round(density * length))


def estimated_threshold(values: torch.Tensor, count: int, estimate: str) -> float:
    """The magnitude above which `count` of the entries lie, by one of `ESTIMATES`.

    0, above which is every entry but those that are 0, where there are fewer; or where no lower threshold has enough.
    """
    if values.numel() <= count:
        return 0.0
    magnitudes = values.abs()
    if estimate == EXACT:
        return float(magnitudes.topk(count, sorted=False).values.min())
    spread, mean = torch.std_mean(values, correction=0)
    threshold = abs(float(mean)) + deviations_above(count, values.numel()) * float(spread)
    if estimate != GAUSSIAN_ADJUSTED:
        return threshold
    enough = ADJUSTED_SHARE * count
    if int((magnitudes > 0).sum()) < enough:
        return 0.0
    while int((magnitudes >= threshold).sum()) < enough:
        threshold *= ADJUSTMENT
    return threshold


class Threshold:
    """The magnitude above which k entries lie, by an estimate, found anew every `period` steps, and used until then.

    `estimate`: exact, the magnitude of the k-th largest entry; or by a fitted normal, as `ESTIMATES` says. An exact
    one is found sooner where it selected over `slack` more or fewer than k: where magnitudes change, as in the first
    steps, in which what isn't sent piles up. `slack` None: never sooner, as in Ok-Topk's paper.
    """

    SLACK = 0.25

    def __init__(self, count: int, period: int = 1, estimate: str = EXACT, slack: float | None = SLACK) -> None:
        if period < 1:
            raise InputError(f"period: must be at least 1 step, got {period}")
        check_known("estimate", estimate, ESTIMATES)
        self.count, self.period, self.estimate = count, period, estimate
        self.value = 0.0
        self._left, self._slack = 0, slack if estimate == EXACT else None

    def state_dict(self) -> dict[str, object]:
        """The threshold, for how many entries, how it is found, and for how many steps more it is used."""
        kept = {"count": self.count, "period": self.period, "estimate": self.estimate}
        return {**kept, "value": self.value, "left": self._left}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """What `state_dict` gave. Raises `InputError` where it is for another number of entries or steps."""
        for name, own in (("count", self.count), ("period", self.period), ("estimate", self.estimate)):
            if data[name] != own:
                rule = f"state: {name} of the threshold must be {own}, got {data[name]}"
                raise InputError(f"{rule}; give the density, period and estimate of the run that saved it")
        self.value, self._left = float(data["value"]), int(data["left"])

    @property
    def is_due(self) -> bool:
        """Whether it is to be found anew before it is used."""
        return self._left == 0

    def find(self, values: torch.Tensor) -> None:
        """Take that of these values, as `estimated_threshold` says."""
        self.value = estimated_threshold(values, self.count, self.estimate)
        self._left = self.period

    def used(self, count: int) -> bool:
        """A step is over, in which it selected so many; whether they are too many or few for it to be used again."""
        self._left -= 1
        if self._slack is None:
            return False
        few, many = self.count * (1 - self._slack), self.count * (1 + self._slack)
        is_off = count > many or (count < few and self.value > 0)
        self._left = 0 if is_off else self._left
        return is_off

    def places(self, values: torch.Tensor) -> torch.Tensor:
        """Of the entries at or above it, none of which is 0: int64, rising."""
        magnitudes = values.abs()
        return ((magnitudes >= self.value) & (magnitudes > 0)).nonzero().flatten()

    def best(self, values: torch.Tensor) -> torch.Tensor:
        """The places of one rank's step; the threshold is found if it must be."""
        if not self.is_due:
            places = self.places(values)
            if not self.used(len(places)):
                return places
        self.find(values)
        places = self.places(values)
        self.used(len(places))
        return places
