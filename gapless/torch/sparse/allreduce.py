"""Sparse allreduce in two phases: each region of the entries is added by its owner, then all get all sums.

An entry is a place and a value, of a word (4 bytes) each. Contributions to a place are added in the order of ranks, to
zero: the sums have the bits of the dense sum in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gapless.errors import InputError
from gapless.torch.library import rank_count, torch
from gapless.torch.sparse.entries import WORDS_PER_ENTRY, Entries, added, gathered_rows
from gapless.torch.sparse.plan import Regions
from gapless.torch.sparse.relay import Hop, Relay

__all__ = ["SparseAllreduce", "Words", "all_to_all"]


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


def all_to_all(ranks: int) -> tuple[Hop, ...]:
    """Each rank's block straight to all others, to another one at each turn."""
    return tuple(Hop(rank, (rank + turn) % ranks, (rank,)) for turn in range(1, ranks) for rank in range(ranks))


@dataclass(frozen=True)
class _Move:
    """Balancing: so many of a rank's last entries go to another."""

    source: int
    target: int
    count: int


def balanced(counts: Sequence[int]) -> tuple[list[_Move], list[int]]:
    """The fewest entries moved so that no rank has more than ceil(K / P), and what each has then."""
    ranks, total = len(counts), sum(counts)
    least, more = divmod(total, ranks)
    most_first = sorted(range(ranks), key=lambda rank: (-counts[rank], rank))
    wanted = [least] * ranks
    for rank in most_first[:more]:
        wanted[rank] += 1
    spare = [(rank, counts[rank] - wanted[rank]) for rank in range(ranks) if counts[rank] > wanted[rank]]
    moves = []
    for target in range(ranks):
        lacking = wanted[target] - counts[target]
        while lacking > 0:
            source, left = spare.pop()
            count = min(lacking, left)
            moves.append(_Move(source, target, count))
            lacking -= count
            if left > count:
                spare.append((source, left - count))
    return moves, wanted


@dataclass
class SparseAllreduce:
    """A sparse allreduce by regions; made and called by all ranks of the default group.

    `hops`: along which the balanced sums go in the end, block r being rank r's; by default straight to all.
    `words`: what this rank received, in all calls. Raises `InputError` where the process group has another number of
    ranks than the regions.
    """

    regions: Regions
    hops: Sequence[Hop] | None = None
    words: Words = field(default_factory=Words)

    def __post_init__(self) -> None:
        self._ranks, self._rank = rank_count(), torch.distributed.get_rank()
        if self._ranks != len(self.regions.owners):
            raise InputError(
                f"plan: is for {len(self.regions.owners)} ranks, the process group has {self._ranks}; plan for as many"
            )
        self._relay = Relay()

    def __call__(self, given: Entries, chosen: Callable[[Entries], Entries] = lambda sums: sums) -> Entries:
        """The sums of all ranks' entries, the same in all ranks. `given`: with rising places. `chosen(sums)`: those of
        the rank's own region that are to be sent to all, by default all of them.
        """
        own = chosen(self._reduced(given))
        counts = gathered_rows(torch.tensor([len(own)]), self._ranks).flatten().tolist()
        moves, held = balanced(counts)
        return self._to_all(self._moved(own, moves), held)

    def _reduced(self, given: Entries) -> Entries:
        """Phase 1: the sums of this rank's region."""
        regions, ranks = self.regions, self._ranks
        bounds = torch.searchsorted(given.places, torch.tensor(regions.cuts)).tolist()
        region_of = np.argsort(regions.owners).tolist()
        sizes = torch.tensor([bounds[region + 1] - bounds[region] for region in region_of])
        counts = gathered_rows(sizes, ranks)  # [i, j]: entries from rank i to rank j
        lengths = {i * ranks + j: WORDS_PER_ENTRY * int(counts[i, j]) for i in range(ranks) for j in range(ranks)}
        blocks = {
            self._rank * ranks + j: given.part(bounds[region], bounds[region + 1]).packed()
            for j, region in enumerate(region_of)
        }
        hops = [
            Hop(rank, (rank + turn) % ranks, (rank * ranks + (rank + turn) % ranks,))
            for turn in range(1, ranks)
            for rank in range(ranks)
        ]
        blocks, received = self._carried(hops, blocks, lengths)
        self.words.reduced += received
        region = region_of[self._rank]
        contributions = [Entries.unpacked(blocks[rank * ranks + self._rank]) for rank in range(ranks)]
        return added(contributions, regions.cuts[region], regions.cuts[region + 1])

    def _moved(self, own: Entries, moves: Sequence[_Move]) -> torch.Tensor:
        """Phase 2, balancing: what this rank has then, packed."""
        left, blocks = len(own), {}
        for number, move in enumerate(moves):
            if move.source == self._rank:
                blocks[number] = own.part(left - move.count, left).packed()
                left -= move.count
        hops = [Hop(move.source, move.target, (number,)) for number, move in enumerate(moves)]
        lengths = {number: WORDS_PER_ENTRY * move.count for number, move in enumerate(moves)}
        blocks, received = self._carried(hops, blocks, lengths)
        self.words.balanced += received
        new = [Entries.unpacked(blocks[number]) for number, move in enumerate(moves) if move.target == self._rank]
        return Entries.joined([own.part(0, left), *new]).packed()

    def _to_all(self, words: torch.Tensor, held: Sequence[int]) -> Entries:
        """Phase 2, the allgather of unlike lengths."""
        hops = all_to_all(self._ranks) if self.hops is None else self.hops
        lengths = {rank: WORDS_PER_ENTRY * count for rank, count in enumerate(held)}
        blocks, received = self._carried(hops, {self._rank: words}, lengths)
        self.words.gathered += received
        return Entries.joined([Entries.unpacked(blocks[rank]) for rank in range(self._ranks)])

    def _carried(
        self, hops: Sequence[Hop], blocks: dict[int, torch.Tensor], lengths: dict[int, int]
    ) -> tuple[dict[int, torch.Tensor], int]:
        before = self._relay.received_words
        blocks = self._relay(hops, blocks, lengths)
        return blocks, self._relay.received_words - before
