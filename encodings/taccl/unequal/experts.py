"""Expert parallelism: from tokens of each rank for each expert to bytes of each rank for each rank.

Dispatch sends a token's vector from the rank that has it to the rank that holds its expert. Combine sends the expert's
answer back: the same bytes, the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.errors import InputError
from gapless.ir.amounts import ALLTOALLV, Amounts

__all__ = ["DIRECTIONS", "ExpertLoads"]

DIRECTIONS = ("dispatch", "combine")


@dataclass(frozen=True)
class ExpertLoads:
    """`tokens[r][e]`: tokens of rank r for expert e, each of `token_bytes`; `placement[e]`: the rank of expert e.

    Without a placement experts lie in equal runs: as many on each rank, in their order. Raises `InputError` where they
    can't, and for a rank that isn't there.
    """

    tokens: tuple[tuple[int, ...], ...]
    token_bytes: int
    placement: tuple[int, ...] | None = None
    direction: str = DIRECTIONS[0]

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
            raise InputError(f"expert_direction: must be one of {', '.join(DIRECTIONS)}, got {self.direction!r}")
        if self.placement is None:
            if self.expert_count % self.rank_count:
                raise InputError(
                    f"expert_loads: experts must be a multiple of the {self.rank_count} ranks (rows), got "
                    f"{self.expert_count} columns; name the rank of each with expert_placement"
                )
            return
        if len(self.placement) != self.expert_count:
            raise InputError(
                f"expert_placement: must name a rank for each of the {self.expert_count} experts (columns of "
                f"expert_loads), got {len(self.placement)}"
            )
        outside = [rank for rank in self.placement if not 0 <= rank < self.rank_count]
        if outside:
            raise InputError(f"expert_placement: ranks must be in 0..{self.rank_count - 1}, got {outside[0]}")

    @property
    def rank_count(self) -> int:
        """The number of ranks."""
        return len(self.tokens)

    @property
    def expert_count(self) -> int:
        """The number of experts."""
        return len(self.tokens[0])

    @property
    def ranks_of_experts(self) -> list[int]:
        """The rank that holds each expert."""
        if self.placement is not None:
            return list(self.placement)
        return [expert * self.rank_count // self.expert_count for expert in range(self.expert_count)]

    @property
    def amounts(self) -> Amounts:
        """The ALLTOALLV of the tokens."""
        to_rank = np.zeros((self.expert_count, self.rank_count), dtype=np.int64)
        to_rank[np.arange(self.expert_count), self.ranks_of_experts] = 1
        tokens = np.array(self.tokens, dtype=np.int64)
        if float(tokens.max()) * self.expert_count * self.token_bytes >= 2**62:
            raise InputError(f"expert_loads: bytes between two ranks must be at most 10^15, got {tokens.max()} tokens")
        dispatch = Amounts(ALLTOALLV, tuple(map(tuple, ((tokens @ to_rank) * self.token_bytes).tolist())))
        return dispatch if self.direction == DIRECTIONS[0] else dispatch.turned

    @property
    def description(self) -> dict[str, object]:
        """In plain values."""
        return {
            "direction": self.direction, "token_bytes": self.token_bytes, "tokens": [list(row) for row in self.tokens],
            "ranks_of_experts": self.ranks_of_experts,
        }  # fmt: skip
