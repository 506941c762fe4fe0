"""What the sampler and the cache need of plans and of the embedding servers; whoever made them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.traces.bags import Lookups

__all__ = ["BatchPlan", "CacheStep", "Ints", "Mask", "Sharding"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class CacheStep(Protocol):
    """What the cache does around one batch with n distinct ids; masks are bool, shape (n,), in the order of `ids`.

    `batch`, `examples`: its number and its count of examples. `ids`: global ids, increasing. `rows`: int32 (n,), where
    each is in the cache. `prefetched`: fetched ahead of the batch, once batch `prefetch_after` is written back (-1: at
    once). `evicted`: leaves the cache after it.
    """

    @property
    def batch(self) -> int: ...
    @property
    def examples(self) -> int: ...
    @property
    def ids(self) -> Ints: ...
    @property
    def rows(self) -> NDArray[np.int32]: ...
    @property
    def prefetched(self) -> Mask: ...
    @property
    def evicted(self) -> Mask: ...
    @property
    def prefetch_after(self) -> int: ...


class BatchPlan(Protocol):
    """The plan of one batch for p trainers; masks as in `step`.

    `index`: int32, shape (examples, tables) or bags, the place of each lookup in `step.ids`. `trainer`: int64, of each
    example. `users`: bool (n, p), which trainers use an id. `is_private`: rows of one user that are written back from
    there. `sync_now`, `sync_later`: rows whose gradients the trainers add up before the next batch, or beside it.
    """

    @property
    def step(self) -> CacheStep: ...
    @property
    def index(self) -> Lookups: ...
    @property
    def trainer(self) -> Ints: ...
    @property
    def users(self) -> Mask: ...
    @property
    def is_private(self) -> Mask: ...
    @property
    def sync_now(self) -> Mask: ...
    @property
    def sync_later(self) -> Mask: ...


class Sharding(Protocol):
    """Which of `servers` embedding servers has which row: row r is number r // servers of server r % servers."""

    @property
    def servers(self) -> int: ...

    def rows(self, ids: Ints) -> Ints:
        """The rows of global ids."""

    def rows_of(self, server: int) -> Ints:
        """The rows that a server has, in its order."""
