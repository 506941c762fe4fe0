"""Entries of a sparse gradient: places and values, a word (4 bytes) each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gapless.torch.library import rank_count, torch

__all__ = ["WORDS_PER_ENTRY", "Entries", "added", "gathered_rows"]

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
    def unpacked(cls, words: torch.Tensor) -> Entries:
        """Of what `packed` gave."""
        places, values = words.view(WORDS_PER_ENTRY, -1)
        return cls(places.to(torch.int64), values.contiguous().view(torch.float32))

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """One after the other."""
        if not parts:
            return cls(torch.empty(0, dtype=torch.int64), torch.empty(0))
        return cls(torch.cat([part.places for part in parts]), torch.cat([part.values for part in parts]))

    def where(self, chosen: torch.Tensor) -> Entries:
        """Those that a mask (bool, shape (entries,)), or their numbers, choose."""
        return Entries(self.places[chosen], self.values[chosen])

    def part(self, begin: int, end: int) -> Entries:
        """Those numbered `begin` .. `end` - 1."""
        return Entries(self.places[begin:end], self.values[begin:end])


def added(contributions: Sequence[Entries], begin: int, end: int) -> Entries:
    """The sums of places `begin` .. `end` - 1, in the order in which contributions are given; places rise."""
    total = torch.zeros(end - begin)
    is_there = torch.zeros(end - begin, dtype=torch.bool)
    for each in contributions:
        places = each.places - begin
        total[places] += each.values
        is_there[places] = True
    places = is_there.nonzero().flatten()
    return Entries(places + begin, total[places])


def gathered_rows(row: torch.Tensor, group: Any = None) -> torch.Tensor:
    """What all ranks of a group give, equally long, as rows."""
    rows = row.new_empty(rank_count(group), row.numel())
    torch.distributed.all_gather(list(rows), row, group=group)
    return rows
