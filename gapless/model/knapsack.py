"""Modes under a budget: each of many items takes one mode, and the costs of all stay within a budget.

A mode has a cost, which the budget limits, and an error, which is minimised: the multiple-choice knapsack problem
(Kellerer, Pferschy and Pisinger, Knapsack Problems, chapter 11). Three methods: `front` is an exact dynamic programme
over all budgets at once; `Relaxation` is Dantzig's bound, and the choice that it rounds down to, for any number of
items; `one_mode_each` and `within_budget` are rows for models in which modes decide more than an error.

>>> items = Items(np.array([[0, 2, 3], [0, 2, 4]]), np.array([[9.0, 4.0, 3.0], [8.0, 5.0, 1.0]]))
>>> front(items).at(5)
Choice(modes=array([2, 1]), cost=5.0, error=8.0, bound=8.0)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gapless.errors import InputError
from gapless.model import Model
from gapless.options import relative_gap

__all__ = ["MOST_WORK", "Choice", "Front", "Items", "Relaxation", "best", "front", "is_within", "one_mode_each",
           "within_budget"]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_WORK = 400_000_000
"""Items times modes times steps of the budget that a dynamic programme looks at unless something else is said, some
seconds; where its costs need more, they are rounded up to multiples of a larger unit."""

_ROUNDING = 1e-9
"""Sums in another order differ by less than this share."""

_LARGEST_EXACT = 2.0**53
"""Floats hold every whole number up to it."""


def is_within(spent: float, limit: float) -> bool:
    """Whether a sum of costs is within its limit, rounding errors of sums apart."""
    return spent <= limit * (1 + _ROUNDING)


@dataclass(frozen=True)
class Items:
    """What each item costs and spoils in each of its modes.

    `cost`: float, shape (items, modes), >= 0. `error`: float, same shape; inf where an item hasn't that mode. Raises
    `InputError` where shapes differ, a cost is no number >= 0, an error is none, or an item has no mode.
    """

    cost: Floats
    error: Floats

    def __post_init__(self) -> None:
        for name in ("cost", "error"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if self.cost.ndim != 2 or self.cost.shape != self.error.shape:
            raise InputError(f"items: cost and error must be (items, modes), got {self.cost.shape}, {self.error.shape}")
        for name, good in (("cost", np.isfinite(self.cost) & (self.cost >= 0)), ("error", self.error > -np.inf)):
            if not good.all():
                item, mode = np.argwhere(~good)[0].tolist()
                value, rule = getattr(self, name)[item, mode], ">= 0" if name == "cost" else "or inf"
                raise InputError(f"items: {name} of item {item} in mode {mode} must be a number {rule}, got {value}")
        empty = ~np.isfinite(self.error).any(axis=1)
        if empty.any():
            raise InputError(f"items: item {int(empty.argmax())} has no mode of finite error")

    def __len__(self) -> int:
        return len(self.cost)

    def choice(self, modes: Ints, bound: float = -math.inf) -> Choice:
        """The choice of a mode for each item, with its sums."""
        rows = np.arange(len(self))
        cost, error = math.fsum(self.cost[rows, modes].tolist()), math.fsum(self.error[rows, modes].tolist())
        return Choice(modes, cost, error, min(bound, error))

    @cached_property
    def least_cost(self) -> Floats:
        """The cost of each item's cheapest mode, float, shape (items,)."""
        return np.asarray(np.where(np.isfinite(self.error), self.cost, np.inf).min(axis=1))

    def useful(self, item: int) -> Ints:
        """The item's modes that no other is at least as good as, from the cheapest to the one of least error."""
        order = np.lexsort((self.error[item], self.cost[item]))
        errors = self.error[item, order]
        before = np.concatenate([[np.inf], np.minimum.accumulate(errors)[:-1]])
        return np.asarray(order[errors < before])


@dataclass(frozen=True)
class Choice:
    """A mode for each item. `bound`: no choice within the budget that was asked for has a smaller error."""

    modes: Ints
    cost: float
    error: float
    bound: float

    @property
    def gap(self) -> float:
        """How far the error may be above the least, relative to it."""
        return relative_gap(self.error, self.bound) or 0.0


class Front:
    """The least error within every budget, by a dynamic programme over items and costs in whole multiples of `unit`.

    `is_exact`: whether every cost is a multiple of the unit beyond the item's least cost. Where it isn't, costs are
    rounded up: a choice of the front is within its budget, and as good as every choice that is within the budget by
    `len(items)` units; `Choice.bound` follows from that, and from Dantzig's.
    """

    def __init__(self, items: Items, unit: float, is_exact: bool) -> None:
        self.items, self.unit, self.is_exact = items, unit, is_exact
        self.least_cost = math.fsum(items.least_cost.tolist())
        self._error = np.zeros(1)
        self._chosen: list[NDArray[np.int16]] = []
        for item in range(len(items)):
            modes = items.useful(item)
            self._add(modes, items.error[item, modes], self._steps(item, modes))

    def _steps(self, item: int, modes: Ints) -> Ints:
        """What modes cost beyond the item's cheapest, in units, rounded up."""
        beyond = self.items.cost[item, modes] - self.items.least_cost[item]
        return np.asarray(np.ceil(beyond / self.unit).astype(np.int64))

    def _add(self, modes: Ints, errors: Floats, steps: Ints) -> None:
        """One more item, whose modes have these errors and steps: the least error within so many units, and its mode.

        Both are constant beyond the steps that all items take in their most expensive modes.
        """
        before, count = self._error, len(self._error) + int(steps[-1])
        self._error = np.full(count, np.inf)
        chosen = np.zeros(count, dtype=np.int16)
        for mode, error, step in zip(modes.tolist(), errors.tolist(), steps.tolist(), strict=True):
            found = np.full(count, before[-1] + error)
            found[:step] = np.inf
            found[step : step + len(before)] = before + error
            is_better = found < self._error
            self._error[is_better], chosen[is_better] = found[is_better], mode
        self._chosen.append(chosen)

    @cached_property
    def relaxation(self) -> Relaxation:
        """Dantzig's bound on the same items."""
        return Relaxation(self.items)

    def at(self, budget: float) -> Choice | None:
        """The best choice within a budget; None where even the cheapest modes cost more."""
        if budget < self.least_cost:
            return None
        return self._choice(int(min((budget - self.least_cost) // self.unit, len(self._error) - 1)), budget)

    def best_at(self, budget: float) -> Choice | None:
        """As `at`, or Dantzig's choice where that is better, with the better bound."""
        found, rounded = self.at(budget), self.relaxation.at(budget)
        if found is None or rounded is None:
            return None
        choice = found if found.error <= rounded.error else rounded
        return self.items.choice(choice.modes, max(found.bound, rounded.bound))

    @cached_property
    def budgets(self) -> Floats:
        """The budgets at which the least error falls, ascending, the cheapest modes' first; float, shape (points,)."""
        return np.asarray(self.least_cost + self.unit * self._falls)

    @cached_property
    def errors(self) -> Floats:
        """The least error within each of `budgets`, in whole units; float, shape (points,)."""
        return np.asarray(self._error[self._falls])

    def choices(self) -> Iterator[Choice]:
        """The best choice within each of `budgets`, in their order."""
        return map(self._choice, self._falls.tolist(), self.budgets.tolist())

    @cached_property
    def _falls(self) -> Ints:
        return np.flatnonzero(np.diff(self._error, prepend=np.inf) < 0)

    def _choice(self, units: int, budget: float) -> Choice:
        modes = self._modes(units)
        if self.is_exact:
            return self.items.choice(modes, math.inf)
        beyond = float(self._error[min(units + 1 + len(self.items), len(self._error) - 1)])
        return self.items.choice(_filled(self.items, modes, budget), max(beyond, self.relaxation.bound_at(budget)))

    def _modes(self, units: int) -> Ints:
        """The modes of the best choice within so many units."""
        modes = np.zeros(len(self.items), dtype=np.int64)
        for item in range(len(self.items) - 1, -1, -1):
            chosen = self._chosen[item]
            modes[item] = chosen[min(units, len(chosen) - 1)]
            units -= int(self._steps(item, modes[item : item + 1])[0])
        return modes


def front(items: Items, most_work: int = MOST_WORK) -> Front:
    """The least error within every budget.

    Exact where costs beyond each item's least are whole numbers and, divided by their greatest common divisor, few
    enough for `most_work`; up to rounding of sums. Otherwise in the smallest unit that is within that work.
    """
    beyond = np.where(np.isfinite(items.error), items.cost - items.least_cost[:, None], 0.0)
    most = float(beyond.max(axis=1, initial=0.0).sum())
    # The table grows item by item to `most / unit` steps, so that half of items x modes x steps are looked at.
    work = 0.5 * beyond.size * most
    smallest_unit = work / most_work
    whole = most < _LARGEST_EXACT and bool((items.cost == np.floor(items.cost)).all())
    if whole:
        divisor = float(np.gcd.reduce(beyond.astype(np.int64), axis=None)) or 1.0
        if divisor >= smallest_unit:
            return Front(items, divisor, True)
    return Front(items, smallest_unit or 1.0, most == 0)


def best(items: Items, budget: float, most_work: int = MOST_WORK) -> Choice | None:
    """The best choice within a budget that `front` and `Relaxation` find; None where the cheapest modes cost more."""
    return front(items, most_work).best_at(budget)


class Relaxation:
    """Items whose modes may be mixed: Dantzig's bound on every budget, in a time that grows with the modes' number.

    Only modes on the lower convex hull of (cost, error) are mixed; steps along the hulls are taken in the order of what
    an error's fall costs, and at most one item is left between two modes.
    """

    def __init__(self, items: Items) -> None:
        self.items = items
        hulls = [_hull(items, item) for item in range(len(items))]
        self._first = np.array([hull[0] for hull in hulls], dtype=np.int64)
        item = np.repeat(np.arange(len(items)), [len(hull) - 1 for hull in hulls])
        to = np.array([mode for hull in hulls for mode in hull[1:]], dtype=np.int64)
        came = np.array([mode for hull in hulls for mode in hull[:-1]], dtype=np.int64)
        cost = items.cost[item, to] - items.cost[item, came]
        error = items.error[item, to] - items.error[item, came]
        order = np.argsort(error / cost, kind="stable")
        self._item, self._to = item[order], to[order]
        start = items.choice(self._first)
        self._cost = start.cost + np.concatenate([[0.0], np.cumsum(cost[order])])
        self._error = start.error + np.concatenate([[0.0], np.cumsum(error[order])])

    def bound_at(self, budget: float) -> float:
        """No choice within the budget has a smaller error; inf where none is within it."""
        return math.inf if budget < self._cost[0] else float(np.interp(budget, self._cost, self._error))

    def at(self, budget: float) -> Choice | None:
        """The mixture rounded down, then whatever else the budget buys; None where the cheapest modes cost more."""
        if budget < self._cost[0]:
            return None
        steps = int(np.searchsorted(self._cost, budget, side="right")) - 1
        modes = self._first.copy()
        modes[self._item[:steps]] = self._to[:steps]  # later steps of an item are further along its hull
        if not is_within(self.items.choice(modes).cost, budget):  # sums in another order
            return self.items.choice(self._first, self.bound_at(budget))
        return self.items.choice(_filled(self.items, modes, budget), self.bound_at(budget))


def _hull(items: Items, item: int) -> list[int]:
    """The item's useful modes on the lower convex hull of (cost, error)."""
    modes = items.useful(item)
    cost, error = items.cost[item, modes].tolist(), items.error[item, modes].tolist()
    hull: list[int] = []
    for k in range(len(modes)):
        while len(hull) > 1:
            i, j = hull[-2], hull[-1]
            if (error[j] - error[i]) * (cost[k] - cost[j]) < (error[k] - error[j]) * (cost[j] - cost[i]):
                break
            hull.pop()
        hull.append(k)
    return [int(modes[k]) for k in hull]


def _filled(items: Items, modes: Ints, budget: float) -> Ints:
    """The modes, and while the rest of the budget buys a mode of smaller error, the one that lowers its error most."""
    modes, rows = modes.copy(), np.arange(len(items))
    while True:
        rest = budget - math.fsum(items.cost[rows, modes].tolist())
        more = items.cost - items.cost[rows, modes][:, None]
        fall = np.where(more <= rest, items.error[rows, modes][:, None] - items.error, 0.0)
        item, mode = divmod(int(fall.argmax()), fall.shape[1]) if fall.size else (0, 0)
        if not fall.size or fall[item, mode] <= 0:
            return modes
        modes[item] = mode


def one_mode_each(model: Model, family: str, ids: ArrayLike, or_none: bool = False) -> None:
    """Rows: of the columns along the last axis of `ids` exactly one is chosen, or at most one."""
    model.add(family, (1.0, ids), lower=-np.inf if or_none else 1.0, upper=1.0)


def within_budget(
    model: Model, family: str, cost: ArrayLike, ids: ArrayLike, budget: float, margin: float = 0.0
) -> None:
    """A row: what the chosen columns cost is within the budget, less that share of it. Scaled to the budget."""
    scale = abs(budget) or 1.0
    costs, columns = np.asarray(cost, dtype=np.float64).reshape(-1), np.asarray(ids).reshape(-1)
    model.add(family, (costs / scale, columns), upper=(1 - margin) * budget / scale)
