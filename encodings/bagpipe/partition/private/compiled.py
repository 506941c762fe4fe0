"""The loops of `private.py`, compiled. Each gives what its function over arrays does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints, Mask
from gapless.methods.compiled import compiled

__all__ = ["evicted_uses", "marginal_costs", "moved"]

Rows = NDArray[np.int32]


@compiled
def evicted_uses(index: NDArray[np.integer], evicted: Mask) -> tuple[Ints, Ints, Rows, int]:
    """As `EvictedUses.of`, in the order of its fields."""
    examples, tables = index.shape
    uses = np.zeros(len(evicted), np.int32)
    for table in range(tables):
        for example in range(examples):
            uses[index[example, table]] += 1
    count = total = 0
    for row in range(len(evicted)):  # from here on the number of a row that counts, else -1
        is_shared = evicted[row] and uses[row] > 1
        total += uses[row] if is_shared else 0
        uses[row] = count if is_shared else -1
        count += is_shared
    held, number = np.empty(total + 1, np.int32), np.empty(total + 1, np.int32)
    ends, at = np.zeros(examples + 1, np.int64), 0
    for table in range(tables):
        for example in range(examples):
            number[at] = uses[index[example, table]]  # stays if it is one, else the next is written over it
            held[at] = example
            at += number[at] >= 0
    for place in range(total):
        ends[held[place] + 1] += 1
    some, starts, full = np.empty(examples, np.int64), np.zeros(examples + 1, np.int64), 0
    for example in range(examples):
        if ends[example + 1]:
            some[full] = example
            full += 1
            starts[full] = starts[full - 1] + ends[example + 1]
        ends[example + 1] += ends[example]
    rows = np.empty(total, np.int32)
    for place in range(total):
        rows[ends[held[place]]] = number[place]
        ends[held[place]] += 1
    return some[:full].copy(), starts[: full + 1].copy(), rows, count


@compiled
def marginal_costs(examples: Ints, starts: Ints, rows: Rows, counts: Rows, share: Rows, finer: int) -> Rows:
    """As `_State.costs`."""
    count, trainers = counts.shape
    taken, only = np.zeros(count, np.int32), np.empty(count, np.int32)
    for example in examples:
        for place in range(starts[example], starts[example + 1]):
            taken[rows[place]] += 1
    for row in range(count):  # the one trainer that uses it, -1 where none or several do
        users, user = 0, -1
        for trainer in range(trainers):
            if counts[row, trainer]:
                users, user = users + 1, trainer
        only[row] = user if users == 1 else -1
    costs, added = np.empty((len(examples), trainers), np.int32), np.empty(trainers, np.int32)
    for at in range(len(examples)):
        added[:] = finer // 2
        for place in range(starts[examples[at]], starts[examples[at] + 1]):
            row = rows[place]
            if only[row] >= 0:
                added += share[taken[row]]
                added[only[row]] -= share[taken[row]]
        costs[at] = added // finer
    return costs


@compiled
def moved(examples: Ints, trainer: Ints, times: int, starts: Ints, rows: Rows, counts: Rows) -> int:
    """As `_State._move`: how many more rows have several users then."""
    unused, change, more = np.int32(times < 0), np.int32(times), 0
    for at in range(len(examples)):
        to = trainer[at]
        for place in range(starts[examples[at]], starts[examples[at] + 1]):
            row = rows[place]
            before = counts[row, to]
            counts[row, to] = before + change
            if before == unused:
                others = 0
                for other in range(counts.shape[1]):
                    others += counts[row, other] > 0 and other != to
                more += times * (others == 1)
    return more
