"""LinkBuilder: collects links in blocks of arrays and numbers the resources that they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.topologies.links import Links

__all__ = ["MOST_LINKS", "LinkBuilder", "refuse_too_many"]

MOST_LINKS = 4_000_000
"""More links than any solver here can use; they would take half a gigabyte."""


class LinkBuilder:
    """Collects blocks of links. Resources have keys (any numbers >= 0) until `finish` numbers those in use."""

    def __init__(self) -> None:
        self._blocks: list[tuple[NDArray[np.generic], ...]] = []
        self._next_key = 0

    def keys(self, count: int) -> int:
        """The first of `count` new consecutive resource keys."""
        first = self._next_key
        self._next_key += count
        return first

    def add(
        self,
        source: NDArray[np.int64],
        target: NDArray[np.int64],
        alpha_s: NDArray[np.float64] | float,
        beta_s_per_byte: NDArray[np.float64] | float,
        keys: NDArray[np.int64] | None = None,
    ) -> None:
        """A block of links: ends and costs of shape (block,) or scalars; `keys`, (block, held), has -1 for none."""
        count = len(source)
        keys = np.empty((count, 0), dtype=np.int64) if keys is None else keys
        costs = (np.broadcast_to(cost, (count,)) for cost in (alpha_s, beta_s_per_byte))
        self._blocks.append((source, target, *costs, (keys >= 0).sum(axis=1), keys[keys >= 0]))

    def finish(self) -> tuple[Links, NDArray[np.int64]]:
        """The links, and the keys of the resources that they hold; resources are numbered in order of first use."""
        if not self._blocks:
            return Links.of(()), np.empty(0, dtype=np.int64)
        source, target, alpha_s, beta_s_per_byte, lengths, keys = (
            np.concatenate(column) for column in zip(*self._blocks, strict=True)
        )
        used, first, number = np.unique(keys, return_index=True, return_inverse=True)
        by_first_use = np.argsort(first)
        rank = np.empty(len(used), dtype=np.int64)
        rank[by_first_use] = np.arange(len(used))
        held_start = np.concatenate([[0], np.cumsum(lengths)])
        links = Links(source, target, alpha_s, beta_s_per_byte, held_start, rank[number.reshape(-1)])
        return links, used[by_first_use]


def refuse_too_many(what: str, links: int, way_out: str) -> None:
    """Raises `InputError` where a machine would have more than `MOST_LINKS` links."""
    if links > MOST_LINKS:
        raise InputError(f"{what}: must have at most {MOST_LINKS:,} links, would have {links:,}; {way_out}")
