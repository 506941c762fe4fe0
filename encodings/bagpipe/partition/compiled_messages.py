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

_TILE = 64
"""Examples whose lookups are gathered at a time."""


@compiled
def uses_and_users(
    index: NDArray[np.integer], ends: Ints, root: Ints, rows: int
) -> tuple[Rows, Rows, NDArray[np.bool_]]:  # fmt: skip
    """As `message_state._uses_and_users`."""
    uses, users, last = np.zeros(rows, np.int32), np.zeros(rows, np.int32), np.full(rows, -1, np.int32)
    at_root = np.zeros(rows, np.bool_)
    for table in range(index.shape[1]):
        start = 0
        for trainer in range(len(ends)):
            for example in range(start, ends[trainer]):
                row = index[example, table]
                uses[row] += 1
                users[row] += last[row] != trainer
                last[row] = trainer
                at_root[row] |= root[row] == trainer
            start = ends[trainer]
    return uses, users, at_root


@compiled
def divided(
    index: NDArray[np.integer], uses: Rows, number: Rows, weight: Rows, root: Ints, trainers: int
) -> tuple[Rows, Ints, Rows]:
    """As `message_state._divided`: some examples at a time, so that memory is read and written in order."""
    examples, tables = index.shape
    alone, starts = np.zeros((examples, trainers), np.int32), np.zeros(examples + 1, np.int64)
    shared, end = np.empty(examples * tables + 1, np.int32), 0
    code = np.empty(
        len(uses), np.int32
    )  # one look-up says it all: its number, -1, or -2 - row where one example uses it
    for row in range(len(uses)):
        code[row] = -2 - row if uses[row] == 1 else number[row]
    codes = np.empty((_TILE, tables), np.int32)
    for first in range(0, examples, _TILE):
        here = min(_TILE, examples - first)
        for table in range(tables):
            for at in range(here):
                codes[at, table] = code[index[first + at, table]]
        for at in range(here):
            example, added = first + at, np.int32(0)
            for table in range(tables):
                what = codes[at, table]
                shared[end] = what  # stays if it is a number, else the next is written over it
                end += what >= 0
                if what < -1:
                    row = -2 - what
                    added += weight[row]
                    if root[row] >= 0:
                        alone[example, root[row]] -= weight[row]
            for trainer in range(trainers):
                alone[example, trainer] += added
            starts[example + 1] = end
    return alone, starts, shared[:end].copy()


@compiled
def marginal_costs(
    examples: Ints, alone: Rows, starts: Ints, shared: Rows, counts: Rows, weight: Rows, share: Floats, finer: int
) -> Rows:  # fmt: skip
    """As `State.costs`."""
    rows, trainers = counts.shape
    taken, per_row = np.zeros(rows, np.int32), np.empty(rows, np.int32)
    for example in examples:
        for place in range(starts[example], starts[example + 1]):
            taken[shared[place]] += 1
    for row in range(rows):
        per_row[row] = np.int32(np.rint(weight[row] * share[taken[row]]))
    costs, added = np.empty((len(examples), trainers), np.int32), np.empty(trainers, np.int32)
    for at in range(len(examples)):
        example = examples[at]
        added[:] = finer // 2
        for place in range(starts[example], starts[example + 1]):
            row = shared[place]
            cost = per_row[row]
            for trainer in range(trainers):
                added[trainer] += cost if counts[row, trainer] == 0 else np.int32(0)
        for trainer in range(trainers):
            costs[at, trainer] = alone[example, trainer] + added[trainer] // finer
    return costs


@compiled
def moved(
    examples: Ints, trainer: Ints, times: int, alone: Rows, starts: Ints, shared: Rows, weight: Rows, counts: Rows
) -> int:  # fmt: skip
    """As `State.take` (`times` is -1) and `State.put` (1): how much more the partition costs."""
    unused, change, more = np.int32(times < 0), np.int32(times), 0
    for at in range(len(examples)):
        example, to = examples[at], trainer[at]
        added = int(alone[example, to])
        for place in range(starts[example], starts[example + 1]):
            row = shared[place]
            before = counts[row, to]
            counts[row, to] = before + change
            added += int(weight[row]) * (before == unused)
        more += times * added
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
