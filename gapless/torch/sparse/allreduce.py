"""Sparse allreduce in two phases: each region of the entries is added by its owner, then all get all sums.

Contributions to a place are added in the order of ranks, to zero: the sums have the bits of the dense sum in that
order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from gapless.torch.library import rank_count, torch
from gapless.torch.sparse.entries import WORDS_PER_ENTRY, Entries, added, gathered_rows
from gapless.torch.sparse.plan import SparsePlan
from gapless.torch.sparse.relay import Hop, Relay

__all__ = ["SparseAllreduce", "Words"]


@dataclass
class Words:
    """What a rank received, by phase: contributions, what balancing moved, sums. Sizes of messages don't count."""

    reduced: int = 0
    balanced: int = 0
    gathered: int = 0

    @property
    def total(self) -> int:
        """In all phases."""
        return self.reduced + self.balanced + self.gathered


class SparseAllreduce:
    """A sparse allreduce by a plan; made and called by all ranks of a group, by default of the default one.

    `regions`: the plan's, until others are set. `words`: what this rank received, in all calls. Raises `InputError`
    where the process group has another number of ranks than the plan.
    """

    def __init__(self, plan: SparsePlan, group: Any = None) -> None:
        plan.check(plan.regions.length, rank_count(group))
        self.regions, self.words = plan.regions, Words()
        self._plan, self._ranks, self._rank = plan, rank_count(group), torch.distributed.get_rank(group)
        self._group, self._relay = group, Relay(group)

    def __call__(self, given: Entries, chosen: Callable[[Entries], Entries] = lambda sums: sums) -> Entries:
        """The sums of all ranks' entries, the same in all ranks. `given`: with rising places. `chosen(sums)`: those of
        the rank's own region that are to be sent to all, by default all of them.
        """
        own = chosen(self._reduced(given))
        held = gathered_rows(torch.tensor([len(own)]), self._group).flatten().tolist()
        return self._to_all(own, held, self._plan.moves(held))

    def _reduced(self, given: Entries) -> Entries:
        """Phase 1: the sums of this rank's region. Block i * P + j: rank i's entries of rank j's region."""
        ranks, region_of = self._ranks, np.argsort(self.regions.owners).tolist()
        bounds = torch.searchsorted(given.places, torch.tensor(self.regions.cuts)).tolist()
        sizes = torch.tensor([bounds[region + 1] - bounds[region] for region in region_of])
        counts = gathered_rows(sizes, self._group).flatten().tolist()
        blocks = {
            self._rank * ranks + owner: given.part(bounds[region], bounds[region + 1]).packed()
            for owner, region in enumerate(region_of)
        }
        hops = [Hop(source, target, (of * ranks + to,)) for source, target, of, to in self._plan.contributions]
        blocks, self.words.reduced = self._carried(hops, blocks, counts, self.words.reduced)
        contributions = [Entries.unpacked(blocks[rank * ranks + self._rank]) for rank in range(ranks)]
        region = region_of[self._rank]
        return added(contributions, self.regions.cuts[region], self.regions.cuts[region + 1])

    def _to_all(self, own: Entries, held: Sequence[int], moves: Sequence[tuple[int, int, int]]) -> Entries:
        """Phase 2: balancing, and the allgather of unlike lengths. Block i * P + j: what rank i holds of rank j's sums.

        A rank isn't sent its own sums again.
        """
        ranks, counts = self._ranks, [0] * self._ranks**2
        for rank, count in enumerate(held):
            counts[rank * ranks + rank] = count
        left, blocks = len(own), dict[int, torch.Tensor]()
        for source, target, count in moves:
            counts[source * ranks + source] -= count
            counts[target * ranks + source] = count
            if source == self._rank:
                blocks[target * ranks + source] = own.part(left - count, left).packed()
                left -= count
        blocks[self._rank * ranks + self._rank] = own.part(0, left).packed()
        hops = [Hop(source, target, (target * ranks + source,)) for source, target, _ in moves]
        blocks, self.words.balanced = self._carried(hops, blocks, counts, self.words.balanced)
        hops = [
            Hop(
                source,
                target,
                tuple(of * ranks + owner for _, _, of in routes for owner in range(ranks) if owner != target),
            )
            for (source, target), routes in groupby(self._plan.sums, key=lambda route: route[:2])
        ]
        blocks, self.words.gathered = self._carried(hops, blocks, counts, self.words.gathered)
        return Entries.joined([Entries.unpacked(blocks[block]) for block, count in enumerate(counts) if count])

    def _carried(
        self, hops: Sequence[Hop], blocks: dict[int, torch.Tensor], counts: Sequence[int], words: int
    ) -> tuple[dict[int, torch.Tensor], int]:
        """The blocks that this rank has then, and `words` with those that it received. `counts`: entries a block."""
        before = self._relay.received_words
        blocks = self._relay(hops, blocks, [WORDS_PER_ENTRY * count for count in counts])
        return blocks, words + self._relay.received_words - before
