"""The loops of the objective `time`, compiled: which uses partitions can share, and what they cost.

Each gives what its function over arrays does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Ints
from gapless.methods.compiled import compiled

__all__ = ["divided", "marginal_costs", "messages", "moved", "uses_and_users"]

Rows = NDArray[np.int32]


@compiled
def uses_and_users(index: NDArray[np.integer], ends: Ints, rows: int) -> tuple[Rows, Rows]:
    """How many uses each row has, and how many trainers use it where runs of examples end so."""
    uses, users, last = np.zeros(rows, np.int32), np.zeros(rows, np.int32), np.full(rows, -1, np.int32)
    for table in range(index.shape[1]):
        trainer = 0
        for example in range(len(index)):
            while example >= ends[trainer]:
                trainer += 1
            row = index[example, table]
            uses[row] += 1
            if last[row] != trainer:
                users[row] += 1
                last[row] = trainer
    return uses, users


@compiled
def divided(
    index: NDArray[np.integer], uses: Rows, number: Rows, weight: Ints, root: Ints, trainers: int
) -> tuple[Rows, Ints, Rows]:
    """As `message_state._divided`."""
    alone = np.zeros((len(index), trainers), np.int32)
    starts = np.zeros(len(index) + 1, np.int64)
    for table in range(index.shape[1]):
        for example in range(len(index)):
            row = index[example, table]
            if number[row] >= 0:
                starts[example + 1] += 1
            elif uses[row] == 1:
                alone[example] += np.int32(weight[row])
                if root[row] >= 0:
                    alone[example, root[row]] -= np.int32(weight[row])
    for example in range(len(index)):
        starts[example + 1] += starts[example]
    shared, filled = np.empty(starts[-1], np.int32), starts.copy()
    for table in range(index.shape[1]):
        for example in range(len(index)):
            row = number[index[example, table]]
            if row >= 0:
                shared[filled[example]] = row
                filled[example] += 1
    return alone, starts, shared


@compiled
def marginal_costs(
    examples: Ints, alone: Rows, starts: Ints, shared: Rows, counts: Rows, taken: Rows, weight: Ints, share: Floats,
    finer: int,
) -> Rows:  # fmt: skip
    """As `State.costs`."""
    trainers = counts.shape[1]
    costs, added = np.empty((len(examples), trainers), np.int32), np.empty(trainers, np.int32)
    for at in range(len(examples)):
        example = examples[at]
        added[:] = finer // 2
        for place in range(starts[example], starts[example + 1]):
            row = shared[place]
            cost = np.int32(np.rint(weight[row] * share[taken[row]]))
            for trainer in range(trainers):
                added[trainer] += cost if counts[row, trainer] == 0 else np.int32(0)
        for trainer in range(trainers):
            costs[at, trainer] = alone[example, trainer] + added[trainer] // finer
    return costs


@compiled
def moved(
    examples: Ints, trainer: Ints, times: int, alone: Rows, starts: Ints, shared: Rows, weight: Ints, counts: Rows,
    taken: Rows,
) -> int:  # fmt: skip
    """As `State.take` (`times` is -1) and `State.put` (1): how much more the partition costs."""
    unused, more = np.int64(times < 0), 0
    for at in range(len(examples)):
        example, to = examples[at], trainer[at]
        more += times * alone[example, to]
        for place in range(starts[example], starts[example + 1]):
            row = shared[place]
            before = counts[row, to]
            counts[row, to] = before + times
            taken[row] -= times
            if before == unused:
                more += times * weight[row]
    return more


@compiled
def messages(uses: Rows, in_next: NDArray[np.bool_], at_once: NDArray[np.bool_], root: Ints) -> int:
    """As `messages.messages`, of uses by trainer."""
    total = 0
    users = np.zeros(uses.shape[1], np.int32)
    for trainer in range(len(uses)):
        for row in range(uses.shape[1]):
            users[row] += uses[trainer, row] > 0
    for row in range(uses.shape[1]):
        if in_next[row]:
            total += users[row] - 1
        if at_once[row]:
            total += users[row] - (uses[root[row], row] > 0)
    return total
