"""The exchange of sparse gradients by a plan: its regions, its paths, a global threshold, regions that are renewed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.torch.library import torch
from gapless.torch.sparse.allreduce import Entries, SparseAllreduce, Words
from gapless.torch.sparse.plan import Regions, SparsePlan
from gapless.torch.sparse.relay import EmulatedLink
from gapless.torch.sparse.selection import Threshold, entry_count

__all__ = ["PlannedExchange"]

_SAMPLE = 4096
"""Places at most that a rank sends for new regions, evenly spaced among its own: a region's load is then known to
within a 4096th of what the rank sends, at either end.
"""


class PlannedExchange:
    """An exchange for `SparseState`; made and called by all ranks of a group, by default of the default one.

    The plan's `count` of sums are kept by a threshold, as `Threshold` says, or as many as another `density` gives.
    Regions are made anew after every `renewal` steps; None: they stay. `agreement_words`: what this rank
    received to find thresholds and regions. `balance_above`, `link`: as for `SparseAllreduce`. Raises `InputError`
    where the process group has another number of ranks.
    """

    def __init__(
        self, plan: SparsePlan, density: float | None = None, period: int = 32, renewal: int | None = 64,
        group: torch.distributed.ProcessGroup | None = None, balance_above: float | None = None,
        link: EmulatedLink | None = None,
    ) -> None:  # fmt: skip
        if renewal is not None and renewal < 1:
            raise InputError(f"renewal: must be at least 1 step, got {renewal}")
        self.group, self.allreduce = group, SparseAllreduce(plan, group, balance_above, link)
        self.agreement_words = 0
        count = plan.count
        if count is not None and density is not None:
            count = entry_count(density, plan.regions.length)
        self._threshold = None if count is None else Threshold(count, period)
        self._plan, self._renewal = plan, renewal

    @property
    def received_words(self) -> int:
        """By this rank, in all steps and phases."""
        return self.allreduce.words.total + self.agreement_words

    def __call__(self, given: Entries, length: int, step: int) -> Entries:
        """The sums that are kept, the same in all ranks. Raises `InputError` for a gradient of another length."""
        if length != self.allreduce.regions.length:
            rule = f"plan: is for a gradient of {self.allreduce.regions.length} entries"
            raise InputError(f"{rule}, got one of {length}; record this model and plan for it")
        sums = self.allreduce(given, self._kept)
        if self._threshold is not None:
            self._threshold.used(len(sums))
        if self._renewal is not None and (step + 1) % self._renewal == 0:
            self.allreduce.regions = self._plan.renewed(self._sampled(given))
        return sums

    def state_dict(self) -> dict[str, object]:
        """Regions, threshold, and what was received, in plain values."""
        regions, threshold = self.allreduce.regions, self._threshold
        return {
            "cuts": list(regions.cuts),
            "owners": list(regions.owners),
            "threshold": None if threshold is None else threshold.state_dict(),
            "words": {**asdict(self.allreduce.words), "agreement": self.agreement_words},
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """What `state_dict` gave. Raises `InputError` for that of another plan."""
        owners = list(self._plan.regions.owners)
        if data.get("owners") != owners or (data["threshold"] is None) != (self._threshold is None):
            rule = f"state: must be of a plan with owners {owners}, got {data.get('owners')}"
            raise InputError(f"{rule}, or one that chooses otherwise; load what a run by this plan saved")
        if self._threshold is not None:
            self._threshold.load_state_dict(data["threshold"])
        words = dict(data["words"])
        self.agreement_words = int(words.pop("agreement"))
        self.allreduce.words = Words(**words)
        self.allreduce.regions = Regions(tuple(data["cuts"]), tuple(owners))

    def _kept(self, sums: Entries) -> Entries:
        """The rank's own sums that go to all."""
        if self._threshold is None:
            return sums
        if self._threshold.is_due:
            self._threshold.find(torch.cat(self._all_of(sums.values)).to(sums.values.device))
        return sums.where(self._threshold.places(sums.values))

    def _sampled(self, given: Entries) -> list[NDArray[np.int32]]:
        """All ranks' places, or every so many of them."""
        every = -(-len(given) // _SAMPLE)
        places = given.places[:: max(every, 1)].to(torch.int32)
        return [row.cpu().numpy() for row in self._all_of(places)]

    def _all_of(self, own: torch.Tensor) -> list[torch.Tensor]:
        """What all ranks have, of unlike lengths, of words each."""
        wire = self.allreduce.wire
        counts = wire.numbers([own.numel()])
        rows = wire.gathered(torch.nn.functional.pad(own, (0, max(counts) - own.numel())))
        self.agreement_words += (len(rows) - 1) * max(counts)
        return [row[:count] for row, count in zip(rows, counts, strict=True)]
