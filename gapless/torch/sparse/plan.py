"""What executing and training need of a plan of sparse gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.system import named

__all__ = ["Regions", "Route", "SparsePlan"]

Route: TypeAlias = tuple[int, int, int]
"""(source, target, of): a message to the next rank, of what rank `of` had at first."""


@dataclass(frozen=True)
class Regions:
    """Who adds what: `owners[r]` adds places `cuts[r]` .. `cuts[r + 1]` - 1. As many regions as ranks.

    Raises `InputError` unless cuts rise from 0 and each rank owns one region.
    """

    cuts: tuple[int, ...]
    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.owners) != list(range(len(self.owners))):
            raise InputError(f"owners: must be a permutation of the ranks, got {list(self.owners)}")
        if len(self.cuts) != len(self.owners) + 1 or self.cuts[0] != 0 or any(a > b for a, b in pairwise(self.cuts)):
            raise InputError(f"cuts: must be {len(self.owners) + 1}, rising from 0, got {list(self.cuts)}")
        if self.length >= 2**31:
            raise InputError(f"cuts: places must fit into 4 bytes, so be below 2^31, got {self.length}")

    @property
    def length(self) -> int:
        """Entries of the dense gradient."""
        return self.cuts[-1]


@dataclass(frozen=True)
class SparsePlan:
    """A plan, which holds for index sets of other sizes too.

    `density`: the share of entries that each rank sends. `count`: so many of the sums go to all ranks; None: all of
    them. `contributions`: on their way to owners, `of` the rank they come from, and the owner; `sums`: on their way to
    all, `of` the rank that holds them. Both in an order in which a rank has what it passes on. `package`: of the
    planner, whose module `training` has `balancing_moves(held, node_of)` and `renewed_cuts(places, elements, owners)`.
    `node_of`: the node of each rank. `balances`: whether sums are balanced before they go to all.
    """

    regions: Regions
    density: float
    contributions: tuple[tuple[int, int, int, int], ...]
    sums: tuple[Route, ...]
    count: int | None
    package: str
    node_of: tuple[int, ...] = ()
    balances: bool = True

    def check(self, length: int, ranks: int) -> None:
        """Raise `InputError` where it is for another model or number of ranks."""
        if len(self.regions.owners) != ranks:
            raise InputError(f"plan: is for {len(self.regions.owners)} ranks, got {ranks}; plan for as many")
        if self.regions.length != length:
            rule = f"plan: is for a gradient of {self.regions.length} entries, got a model of {length}"
            raise InputError(f"{rule}; record this model, and plan for it")

    def moves(self, held: Sequence[int]) -> list[tuple[int, int, int]]:
        """What balancing moves where ranks hold so many sums."""
        if not self.balances:
            return []
        found: list[tuple[int, int, int]] = named(f"{self.package}.training:balancing_moves")(held, self.node_of)
        return found

    def renewed(self, places: Sequence[NDArray[np.int32]]) -> Regions:
        """Regions for the next steps, from all ranks' places in this one, ascending."""
        owners = self.regions.owners
        cuts = named(f"{self.package}.training:renewed_cuts")(places, self.regions.length, owners)
        return Regions(tuple(map(int, cuts)), owners)

    def data(self) -> dict[str, Any]:
        """Plain values, for `read`."""
        return asdict(self)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> SparsePlan:
        """The plan whose `data` these are."""
        regions = Regions(tuple(data["regions"]["cuts"]), tuple(data["regions"]["owners"]))
        columns = {name: tuple(map(tuple, data[name])) for name in ("contributions", "sums")}
        return cls(**{**data, **columns, "regions": regions, "node_of": tuple(data["node_of"])})
