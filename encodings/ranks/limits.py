"""What the knapsack doesn't have: all limits at once as a MILP, and a limited number of switches by prices.

The MILP: a mode for each layer and epoch, a data budget, steps in time, few switches. A price on bytes makes epochs
independent but for switches, and bounds every plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.budget import best, is_within, one_mode_each, within_budget
from gapless.encodings.ranks.problem import Problem
from gapless.model import Model
from gapless.options import Deadline

__all__ = ["Encoding", "Switching", "encode", "switched"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHOSEN = 0.5


@dataclass(frozen=True)
class Encoding:
    """The model; `columns`: int64, shape (phases, L, M), of the modes, and those of switches (none for static modes).
    `unit`: the error that counts as 1.
    """

    problem: Problem
    model: Model
    columns: Ints
    switches: Ints
    unit: float

    def modes(self, values: Floats) -> Ints:
        """The modes of a point, int64, shape (E, L)."""
        chosen = (values[self.columns] > _CHOSEN).argmax(axis=2)
        return self.problem.spread(self.problem.starts, chosen.reshape(-1))

    def point(self, modes: Ints) -> Floats:
        """The point of modes of shape (E, L)."""
        values = np.zeros(self.model.column_count)
        chosen = modes[list(self.problem.starts)]
        np.put_along_axis(values, np.take_along_axis(self.columns, chosen[:, :, None], axis=2).reshape(-1), 1.0, 0)
        if len(self.switches):
            values[self.switches] = (chosen[1:] != chosen[:-1]).any(axis=1)
        return values


def encode(problem: Problem, margin: float = 0.0) -> Encoding:
    """The model of a problem; `margin`: the share of limits that is kept free, since solvers break rows by a little."""
    items, model = problem.items(problem.starts), Model("modes of gradients")
    shape: tuple[Any, ...] = (len(problem.starts), problem.trace.layer_count, len(problem.trace.modes))
    columns: Ints = model.binaries("mode", shape)
    unit = float(items.error.max(axis=1).sum()) or 1.0
    one_mode_each(model, "each_layer_has_one_mode", columns)
    if problem.data_bytes is not None:
        within_budget(model, "what_is_sent_is_within_the_budget", items.cost, columns, problem.data_bytes, margin)
    if problem.step_time_s is not None:
        problem.step.add_limit(model, list(columns), (1 - margin) * problem.step_time_s)
    switches = np.zeros(0, dtype=np.int64)
    if problem.switches is not None and shape[0] > 1:
        switches = model.binaries("switch", shape[0] - 1)
        model.add(
            "modes_change_at_switches_only",
            (1.0, columns[1:, :, :, None]), (-1.0, columns[:-1, :, :, None]), (-1.0, switches[:, None, None, None]),
            upper=0.0,
        )  # fmt: skip
        model.add("switches_are_few", (1.0, switches), upper=problem.switches)
    model.minimize((items.error.reshape(-1) / unit, columns.reshape(-1)))
    return Encoding(problem, model, columns, switches, unit)


_SMALLEST = 1e-15
"""The smallest price that is looked at, of the largest."""


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
