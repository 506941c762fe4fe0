"""What executing and training need of a plan of sparse gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from gapless.errors import InputError
from gapless.torch.sparse.relay import Hop

__all__ = ["Regions", "SparsePlan"]


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
    """What training needs of a plan.

    `density`: the share of entries that each rank sends. `count`: so many of the sums go to all ranks; None: all of
    them. `hops`: along which, (source, target, block) each, in an order in which a rank has what it passes on; None:
    straight.
    """

    regions: Regions
    density: float
    count: int | None = None
    hops: tuple[Hop, ...] | None = None

    def check(self, length: int, ranks: int) -> None:
        """Raise `InputError` where it is for another model or number of ranks."""
        if len(self.regions.owners) != ranks:
            raise InputError(f"plan: is for {len(self.regions.owners)} ranks, got {ranks}; plan for as many")
        if self.regions.length != length:
            rule = f"plan: is for a gradient of {self.regions.length} entries, got a model of {length}"
            raise InputError(f"{rule}; record this model, and plan for it")

    def data(self) -> dict[str, Any]:
        """Plain values, for `read`."""
        return asdict(self)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> SparsePlan:
        """The plan whose `data` these are."""
        regions = Regions(tuple(data["regions"]["cuts"]), tuple(data["regions"]["owners"]))
        hops = data["hops"] and tuple(Hop(hop["source"], hop["target"], tuple(hop["blocks"])) for hop in data["hops"])
        return cls(regions, data["density"], data["count"], hops)
