"""The loops that count which trainers use which ids, compiled; each gives what its function over arrays does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.fast import compiled

__all__ = ["added_costs", "between_trainers", "count_uses", "move_uses", "one_user", "settled", "used_by_trainer"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@compiled
def used_by_trainer(index: NDArray[Any], trainer: Ints, ids: int, trainers: int) -> NDArray[np.int32]:
    """As `uses_by_trainer` of examples with as many ids each."""
    counts = np.zeros((trainers, ids), np.int32)
    for table in range(index.shape[1]):
        for example in range(len(index)):
            counts[trainer[example], index[example, table]] += 1
    return counts


@compiled
def one_user(users: NDArray[np.bool_]) -> tuple[Ints, NDArray[np.bool_]]:
    """As `roots.one_user`, of users by trainer."""
    user = np.zeros(users.shape[1], np.int64)
    count = np.zeros(users.shape[1], np.int16)
    for trainer in range(len(users)):
        for place in range(len(user)):
            user[place] = trainer if users[trainer, place] else user[place]
            count[place] += users[trainer, place]
    return user, count == 1


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


@compiled
def move_uses(
    index: NDArray[np.int32], examples: Ints, trainer: Ints, times: int, owner: NDArray[np.int32],
    counts: NDArray[np.int32], moved: Ints,
) -> None:  # fmt: skip
    """As `Uses.take` (`times` is -1) and `Uses.put` (1); `moved` is kept up to date. Table after table."""
    unused, rows = np.int64(times < 0), moved.copy()  # the count before, of what stops or starts to be used
    for table in range(index.shape[1]):
        for at in range(len(examples)):
            id_, to = index[examples[at], table], trainer[at]
            before = counts[id_, to]
            counts[id_, to] = before + times
            if before == unused and owner[id_] != to:
                rows[owner[id_] + 1, to] += times
    moved[:] = rows


@compiled
def count_uses(index: NDArray[np.int32], examples: Ints, taken: NDArray[np.int32]) -> None:
    """Add the uses of the examples to the counts of their ids."""
    for table in range(index.shape[1]):
        for example in examples:
            taken[index[example, table]] += 1


@compiled
def added_costs(
    index: NDArray[np.int32], examples: Ints, counts: NDArray[np.int32], taken: NDArray[np.int32],
    owner: NDArray[np.int32], receive: Floats, send: Floats, weight: Floats, per_id: NDArray[np.int32],
) -> NDArray[np.int32]:  # fmt: skip
    """As `Uses.costs`, in the finer unit. `per_id`: room to work in, ids x trainers."""
    trainers = len(receive)
    for id_ in range(len(taken)):
        if taken[id_] == 0:
            continue
        of, share = owner[id_], weight[taken[id_]]
        sent = send[of] if of >= 0 else 0.0
        for trainer in range(trainers):
            cost = np.rint((receive[trainer] + sent) * share)
            per_id[id_, trainer] = np.int32(cost) if counts[id_, trainer] == 0 else 0
        if of >= 0:
            per_id[id_, of] = 0
    found = np.zeros((len(examples), trainers), np.int32)
    for table in range(index.shape[1]):
        for at in range(len(examples)):
            id_ = index[examples[at], table]
            for trainer in range(trainers):
                found[at, trainer] += per_id[id_, trainer]
    return found
