"""What a plan decides: who adds which range of the gradient, in which order messages go, how sums are gathered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gapless.decision import Decision
from gapless.errors import InputError
from gapless.io.typed import Stored

__all__ = ["SparseDecision"]

Ints = tuple[int, ...]


@dataclass(frozen=True)
class SparseDecision(Decision):
    """Rank `owners[r]` adds entries `cuts[r]` .. `cuts[r + 1]` - 1 of the gradient; as many regions as ranks.

    `order`: of the messages to owners. `gather`: how all ranks get the sums. `balances`: whether the sums are spread
    evenly before; `moves`: (from, to, entries) of that in the first step of the schedule. `replayed_steps`: the
    recorded steps that the schedule has. `bucket`: messages that an owner adds at once, 0: all of them. Raises
    `InputError` for cuts, owners or moves that don't fit each other.
    """

    cuts: Ints
    owners: Ints
    order: str
    gather: str
    balances: bool
    moves: Annotated[tuple[Ints, ...], Stored(each="[from, to, entries]")]
    replayed_steps: Ints
    bucket: int = 0

    def __post_init__(self) -> None:
        ranks = len(self.owners)
        if sorted(self.owners) != list(range(ranks)):
            raise InputError(f"owners: must be a permutation of the ranks, got {list(self.owners)}")
        if len(self.cuts) != ranks + 1:
            raise InputError(f"cuts: must be {ranks + 1}, one more than owners, got {len(self.cuts)}")
        if self.bucket < 0:
            raise InputError(f"bucket: must be a number of messages, or 0 for all, got {self.bucket}")
        if not self.replayed_steps:
            raise InputError("replayed_steps: must be at least one step, got none")
        for number, move in enumerate(self.moves):
            if len(move) != 3 or not max(move[:2]) < ranks:
                rule = f"must be [from, to, entries] between {ranks} ranks"
                raise InputError(f"moves[{number}]: {rule}, got {list(move)}")
