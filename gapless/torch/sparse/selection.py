"""Which entries of a gradient are sent: those above a threshold, found anew every so many steps."""

from __future__ import annotations

from collections.abc import Mapping

from gapless.errors import InputError
from gapless.torch.library import torch

__all__ = ["Threshold", "entry_count"]


def entry_count(density: float, length: int) -> int:
    """k: at least one entry. Raises `InputError` unless 0 < density <= 1."""
    if not 0 < density <= 1:
        raise InputError(f"density: must be a fraction above 0, at most 1, got {density}")
    return max(1, round(density * length))


class Threshold:
    """The magnitude of the k-th largest entry, found anew every `period` steps, and used until then.

    It is found sooner where it selected over `SLACK` more or fewer than k: where magnitudes change, as in the first
    steps, in which what isn't sent piles up.
    """

    SLACK = 0.25

    def __init__(self, count: int, period: int = 1) -> None:
        if period < 1:
            raise InputError(f"period: must be at least 1 step, got {period}")
        self.count, self.period = count, period
        self.value = 0.0
        self._left = 0

    def state_dict(self) -> dict[str, float]:
        """The threshold, for how many entries, and for how many steps more it is used."""
        return {"count": self.count, "period": self.period, "value": self.value, "left": self._left}

    def load_state_dict(self, data: Mapping[str, float]) -> None:
        """What `state_dict` gave. Raises `InputError` where it is for another number of entries or steps."""
        for name, own in (("count", self.count), ("period", self.period)):
            if data[name] != own:
                rule = f"state: {name} of the threshold must be {own}, got {data[name]}"
                raise InputError(f"{rule}; give the density and period of the run that saved it")
        self.value, self._left = float(data["value"]), int(data["left"])

    @property
    def is_due(self) -> bool:
        """Whether it is to be found anew before it is used."""
        return self._left == 0

    def find(self, values: torch.Tensor) -> None:
        """Take that of these values; 0, above which is every entry but those that are 0, if there are fewer."""
        few = values.numel() < self.count
        self.value = 0.0 if few else float(values.abs().topk(self.count, sorted=False).values.min())
        self._left = self.period

    def used(self, count: int) -> None:
        """A step is over, in which it selected so many."""
        few, many = self.count * (1 - self.SLACK), self.count * (1 + self.SLACK)
        self._left = 0 if count > many or (count < few and self.value > 0) else self._left - 1

    def places(self, values: torch.Tensor) -> torch.Tensor:
        """Of the entries at or above it, none of which is 0: int64, rising."""
        magnitudes = values.abs()
        return ((magnitudes >= self.value) & (magnitudes > 0)).nonzero().flatten()

    def best(self, values: torch.Tensor) -> torch.Tensor:
        """The places of one rank's step; the threshold is found if it must be."""
        if not self.is_due:
            places = self.places(values)
            self.used(len(places))
            if not self.is_due:
                return places
        self.find(values)
        places = self.places(values)
        self.used(len(places))
        return places
