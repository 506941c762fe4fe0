"""A limited number of switches: a price on bytes makes epochs independent but for them, and bounds every plan."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.budget import best, is_within
from gapless.encodings.ranks.problem import Problem
from gapless.options import Deadline

__all__ = ["Switching", "switched"]

_SMALLEST = 1e-15
"""The smallest price that is looked at, of the largest."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Switching:
    """Modes of shape (E, L), what they spoil, and a bound on what all with as few switches and bytes spoil."""

    modes: Ints
    error: float
    bound: float


def switched(problem: Problem, prices: int, most_work: int, deadline: Deadline) -> Switching | None:
    """A good plan of at most `problem.switches` switches within its data budget, for so many prices of a byte.

    At a price, the best phases are a dynamic programme over epochs; the price is bisected to where they fit into the
    budget. The modes of the phases found are then chosen anew, exactly. None where even the cheapest modes don't fit.
    """
    assert problem.data_bytes is not None
    assert problem.switches is not None
    found: Switching | None = None
    bound, tried = -math.inf, set[tuple[int, ...]]()
    for dual, starts in _priced(problem, problem.data_bytes, problem.switches, prices, deadline):
        bound = max(bound, dual)
        if starts in tried:
            continue
        tried.add(starts)
        choice = best(problem.items(starts), problem.data_bytes, most_work)
        if choice is not None and (found is None or choice.error < found.error):
            found = Switching(problem.spread(starts, choice.modes), choice.error, 0.0)
    return None if found is None else Switching(found.modes, found.error, min(bound, found.error))


def _priced(
    problem: Problem, budget: int, switches: int, prices: int, deadline: Deadline
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Lagrangian bounds and the phases that attain them, at prices that are bisected; a price of nothing first."""
    high = float(problem.error.sum()) or 1.0  # at which no error is worth a byte
    low, price = _SMALLEST * high, 0.0
    for _ in range(prices):
        total, starts, spent = _phases(problem, price, switches)
        yield total - price * budget, starts
        if deadline.over or (price == 0.0 and is_within(spent, budget)):
            return
        if price:
            low, high = (price, high) if spent > budget else (low, price)
        price = math.sqrt(low * high)


def _phases(problem: Problem, price: float, switches: int) -> tuple[float, tuple[int, ...], float]:
    """The least error plus price of bytes with so many switches, its phases' first epochs, and its bytes."""
    epochs = problem.trace.epoch_count
    value = np.concatenate(
        [np.zeros((1, *problem.error.shape[1:])), np.cumsum(problem.error + price * problem.cost, 0)]
    )
    # least[p, e]: of the first e epochs in p + 1 phases; came[p, e]: the first epoch of the last of them.
    least = np.full((min(switches, epochs - 1) + 1, epochs + 1), math.inf)
    came = np.zeros(least.shape, dtype=np.int64)
    least[:, 0] = 0.0
    for end in range(1, epochs + 1):
        last = (value[end] - value[:end]).min(axis=2).sum(axis=1)  # of a phase from each epoch before the end
        least[0, end] = last[0]
        for phase in range(1, len(least)):
            totals = least[phase - 1, :end] + last
            came[phase, end] = int(totals.argmin())
            least[phase, end] = totals[came[phase, end]]
    starts, end = list[int](), epochs
    for phase in range(len(least) - 1, -1, -1):
        start = int(came[phase, end])
        if end > start:
            starts.append(start)
        end = start
    firsts = tuple(sorted({0, *starts}))
    cost = np.add.reduceat(problem.cost, list(firsts), axis=0)
    priced = np.add.reduceat(problem.error, list(firsts), axis=0) + price * cost
    spent = np.take_along_axis(cost, priced.argmin(axis=2)[:, :, None], axis=2).sum()
    return float(least[-1, epochs]), firsts, float(spent)
