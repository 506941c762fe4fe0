"""The loops that count which trainers use which ids, compiled; each gives what its function over arrays does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.fast import compiled

__all__ = ["between_trainers", "settled", "used_by_trainer"]

Ints = NDArray[np.int64]


@compiled
def used_by_trainer(index: NDArray[Any], trainer: Ints, ids: int, trainers: int) -> NDArray[np.int32]:
    """As `uses_by_trainer` of examples with as many ids each."""
    counts = np.zeros((trainers, ids), np.int32)
    for table in range(index.shape[1]):
        for example in range(len(index)):
            counts[trainer[example], index[example, table]] += 1
    return counts


@compiled
def settled(uses: NDArray[np.int32], owner: Ints, ids: Ints) -> Ints:
    """As `batch_plans.settled`."""
    trainers, after = len(uses), owner.copy()
    for place in range(len(owner)):
        if owner[place] >= 0:
            continue
        turn, most = ids[place] % trainers, -1
        for trainer in range(trainers):
            rank = np.int64(uses[trainer, place]) * trainers + turn
            if rank > most:
                after[place], most = trainer, rank
            turn += 1
            if turn == trainers:
                turn = 0
    return after


@compiled
def between_trainers(users: NDArray[np.bool_], owner: Ints) -> Ints:
    """As `Traffic.of_users`, of users by trainer: from trainers, from servers, sent; (3, trainers)."""
    trainers = len(users)
    rows = np.zeros((3, trainers), np.int64)
    others = np.zeros(len(owner), np.int32)
    for trainer in range(trainers):
        fetched = served = 0
        for place in range(len(owner)):
            is_fetched = users[trainer, place] and owner[place] != trainer
            fetched += is_fetched
            served += is_fetched and owner[place] < 0
            others[place] += is_fetched
        rows[0, trainer], rows[1, trainer] = fetched - served, served
    for place in range(len(owner)):
        if owner[place] >= 0:
            rows[2, owner[place]] += others[place]
    return rows
