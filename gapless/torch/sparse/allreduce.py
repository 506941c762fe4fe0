"""Sums of sparse gradients: by regions, each of which has an owner that adds its entries; or all entries go to all.

Contributions to a place are added in the order of ranks, to zero: the sums have the bits of the dense sum in that
order. A region's owner adds while later contributions are under way. Entries stay on the device that they come from;
only what is sent goes to that of the `Wire`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from gapless.errors import InputError
from gapless.torch.library import rank_count, torch
from gapless.torch.sparse.plan import SparsePlan
from gapless.torch.sparse.relay import EmulatedLink, Hop, Relay, Wire

__all__ = ["WORDS_PER_ENTRY", "Entries", "RunningSum", "SparseAllreduce", "TopkAllgather", "Words", "added"]


WORDS_PER_ENTRY = 2


@dataclass(frozen=True)
class Entries:
    """`places`: int64, shape (entries,), each once; `values`: float32, the same shape."""

    places: torch.Tensor
    values: torch.Tensor

    def __len__(self) -> int:
        return int(self.places.numel())

    def packed(self) -> torch.Tensor:
        """Two words an entry: all places, then all values."""
        return torch.cat([self.places.to(torch.int32), self.values.view(torch.int32)])

    @classmethod
    def unpacked(cls, words: torch.Tensor, device: torch.device) -> Entries:
        """Of what `packed` gave, on a device."""
        places, values = words.to(device).view(WORDS_PER_ENTRY, -1)
        return cls(places.to(torch.int64), values.contiguous().view(torch.float32))

    @classmethod
    def joined(cls, parts: Sequence[Entries], device: torch.device) -> Entries:
        """One after the other, all on one device."""
        if not parts:
            return cls(torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, device=device))
        return cls(torch.cat([part.places for part in parts]), torch.cat([part.values for part in parts]))

    def where(self, chosen: torch.Tensor) -> Entries:
        """Those that a mask (bool, shape (entries,)), or their numbers, choose."""
        return Entries(self.places[chosen], self.values[chosen])

    def part(self, begin: int, end: int) -> Entries:
        """Those numbered `begin` .. `end` - 1."""
        return Entries(self.places[begin:end], self.values[begin:end])


@dataclass
class Adding:
    """What adding received entries has taken so far."""

    entries: int = 0
    took_s: float = 0.0


class RunningSum:
    """Sums of places `begin` .. `end` - 1, to which contributions are added one after the other, on a device."""

    def __init__(self, begin: int, end: int, device: torch.device) -> None:
        self._begin = begin
        self._total = torch.zeros(end - begin, device=device)
        self._is_there = torch.zeros(end - begin, dtype=torch.bool, device=device)

    def add(self, given: Entries) -> None:
        """Add what is at places in the range, each once."""
        places = given.places - self._begin
        self._total[places] += given.values
        self._is_there[places] = True

    def entries(self) -> Entries:
        """All places that something was added to, rising."""
        places = self._is_there.nonzero().flatten()
        return Entries(places + self._begin, self._total[places])


def added(contributions: Sequence[Entries], begin: int, end: int) -> Entries:
    """The sums of places `begin` .. `end` - 1, in the order in which contributions are given; places rise."""
    total = RunningSum(begin, end, contributions[0].places.device)
    for each in contributions:
        total.add(each)
    return total.entries()


class TopkAllgather:
    """An exchange for `SparseState` among the ranks of a group, over an emulated `link` if one is given.

    `received_words`: by this rank, in all calls.
    """

    def __init__(self, group: torch.distributed.ProcessGroup | None = None, link: EmulatedLink | None = None) -> None:
        self.group, self.received_words = group, 0
        self._wire = Wire(group, link)

    def __call__(self, given: Entries, length: int, step: int) -> Entries:
        """The sums of all ranks' entries of a gradient of `length` entries."""
        ranks = rank_count(self.group)
        counts = self._wire.numbers([len(given)])
        most = WORDS_PER_ENTRY * max(counts)  # gloo gathers what is equally long
        padded = torch.nn.functional.pad(given.packed(), (0, most - WORDS_PER_ENTRY * len(given)))
        rows = self._wire.gathered(padded)
        self.received_words += (ranks - 1) * most
        parts = [row[: WORDS_PER_ENTRY * count] for row, count in zip(rows, counts, strict=True)]
        return added([Entries.unpacked(part, given.places.device) for part in parts], 0, length)

    def state_dict(self) -> dict[str, int]:
        """What was received."""
        return {"received_words": self.received_words}

    def load_state_dict(self, data: Mapping[str, int]) -> None:
        """What `state_dict` gave."""
        self.received_words = int(data["received_words"])


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

    `regions`: the plan's, until others are set. `words`: what this rank received, in all calls. `balance_above`: sums
    are balanced in those calls in which a rank holds more of them than this factor of the mean (Ok-Topk: 4); None: in
    all calls or none, as the plan says. `balanced_calls`: in which any were moved. Raises `InputError` where the
    process group has another number of ranks than the plan, or the factor is below 1. `link`: an emulated one.
    `adding`: what the rank's own additions took, while it received or after.
    """

    def __init__(
        self, plan: SparsePlan, group: torch.distributed.ProcessGroup | None = None,
        balance_above: float | None = None, link: EmulatedLink | None = None,
    ) -> None:  # fmt: skip
        plan.check(plan.regions.length, rank_count(group))
        if balance_above is not None and not balance_above >= 1:
            raise InputError(f"balance_above: must be a factor of the mean, at least 1, got {balance_above}")
        self.regions, self.words, self.balanced_calls = plan.regions, Words(), 0
        self.balance_above = balance_above
        self._plan, self._ranks, self._rank = plan, rank_count(group), torch.distributed.get_rank(group)
        self.adding, self.wire = Adding(), Wire(group, link)
        self.relay = Relay(self.wire)

    def __call__(self, given: Entries, chosen: Callable[[Entries], Entries] = lambda sums: sums) -> Entries:
        """The sums of all ranks' entries, the same in all ranks. `given`: with rising places. `chosen(sums)`: those of
        the rank's own region that are to be sent to all, by default all of them.
        """
        own = chosen(self.reduced(given))
        held = self.wire.numbers([len(own)])
        moves = self._plan.moves(held, self.balance_above)
        self.balanced_calls += bool(moves)
        return self.to_all(own, held, moves)

    def reduced(self, given: Entries) -> Entries:
        """Phase 1: the sums of this rank's region. Block i * P + j: rank i's entries of rank j's region."""
        ranks, region_of, device = self._ranks, np.argsort(self.regions.owners).tolist(), given.places.device
        bounds = torch.searchsorted(given.places, torch.tensor(self.regions.cuts, device=device)).tolist()
        counts = self.wire.numbers([bounds[region + 1] - bounds[region] for region in region_of])
        blocks = {
            self._rank * ranks + owner: given.part(bounds[region], bounds[region + 1]).packed()
            for owner, region in enumerate(region_of)
        }
        hops = [Hop(source, target, (of * ranks + to,)) for source, target, of, to in self._plan.contributions]
        region = region_of[self._rank]
        total = RunningSum(self.regions.cuts[region], self.regions.cuts[region + 1], device)

        def add(block: Callable[[int], torch.Tensor]) -> None:
            for rank in range(ranks):
                part = Entries.unpacked(block(rank * ranks + self._rank), device)
                begin_s = time.perf_counter()
                total.add(part)
                self.adding.took_s += time.perf_counter() - begin_s
                self.adding.entries += len(part)

        _, self.words.reduced = self._carried(hops, blocks, counts, self.words.reduced, add)
        return total.entries()

    def to_all(self, own: Entries, held: Sequence[int], moves: Sequence[tuple[int, int, int]]) -> Entries:
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
        device = own.places.device
        parts = [Entries.unpacked(blocks[block], device) for block, count in enumerate(counts) if count]
        return Entries.joined(parts, device)

    def _carried(
        self, hops: Sequence[Hop], blocks: dict[int, torch.Tensor], counts: Sequence[int], words: int,
        meanwhile: Callable[[Callable[[int], torch.Tensor]], None] = lambda block: None,
    ) -> tuple[dict[int, torch.Tensor], int]:  # fmt: skip
        """The blocks that this rank has then, and `words` with those that it received. `counts`: entries a block.
        `meanwhile`: as for `Relay`.
        """
        before = self.relay.received_words
        blocks = self.relay(hops, blocks, [WORDS_PER_ENTRY * count for count in counts], meanwhile)
        return blocks, words + self.relay.received_words - before
