"""The exchange of sparse gradients by a plan: its regions, its paths, a global threshold, regions that are renewed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.torch.library import rank_count, torch
from gapless.torch.sparse.allreduce import SparseAllreduce
from gapless.torch.sparse.entries import Entries, gathered_rows
from gapless.torch.sparse.plan import Regions, SparsePlan
from gapless.torch.sparse.selection import Threshold

__all__ = ["PlannedExchange", "Renewal"]

Renewal: TypeAlias = Callable[[Sequence[NDArray[np.int64]], int], Regions]
"""Regions for the next steps, from all ranks' places in this one (rising) and the length of the gradient."""

_SAMPLE = 4096
"""Places at most that a rank sends for new regions, evenly spaced among its own: a region's load is then known to
within a 4096th of what the rank sends, at either end.
"""


class PlannedExchange:
    """An exchange for `SparseState`; made and called by all ranks of the default group.

    The plan's `count` of sums are kept by a threshold, as `Threshold` says.
    `renew`: makes new regions after every `renewal` steps; None: the regions stay. `agreement_words`: what this rank
    received to find thresholds and regions. Raises `InputError` where the process group has another number of ranks.
    """

    def __init__(self, plan: SparsePlan, period: int = 32, renew: Renewal | None = None, renewal: int = 64) -> None:
        if renewal < 1:
            raise InputError(f"renewal: must be at least 1 step, got {renewal}")
        self.allreduce = SparseAllreduce(plan.regions, plan.hops)
        self.agreement_words = 0
        self._threshold = None if plan.count is None else Threshold(plan.count, period)
        self._renew, self._renewal = renew, renewal

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
        if self._renew is not None and (step + 1) % self._renewal == 0:
            self.allreduce.regions = self._renew(self._sampled(given), length)
        return sums

    def _kept(self, sums: Entries) -> Entries:
        """The rank's own sums that go to all."""
        if self._threshold is None:
            return sums
        if self._threshold.is_due:
            self._threshold.find(torch.cat(self._all_of(sums.values)))
        return sums.where(self._threshold.places(sums.values))

    def _sampled(self, given: Entries) -> list[NDArray[np.int64]]:
        """All ranks' places, or every so many of them."""
        every = -(-len(given) // _SAMPLE)
        places = given.places[:: max(every, 1)].to(torch.int32)
        return [row.numpy().astype(np.int64) for row in self._all_of(places)]

    def _all_of(self, own: torch.Tensor) -> list[torch.Tensor]:
        """What all ranks have, of unlike lengths, of words each."""
        counts = gathered_rows(torch.tensor([own.numel()]), rank_count()).flatten().tolist()
        rows = gathered_rows(torch.nn.functional.pad(own, (0, max(counts) - own.numel())), rank_count())
        self.agreement_words += (rank_count() - 1) * max(counts)
        return [row[:count] for row, count in zip(rows, counts, strict=True)]
