"""The exact choice: formats of a layer's heads for each window and number of kept keys, then the modes of all layers.

Given a layer's window and which keys are kept, its heads are items of a multiple-choice knapsack, whose front is a
dynamic programme. The fronts of a layer's windows and counts together are the modes of one item of another one, over
layers. A price on bytes makes all heads and layers independent, and bounds every choice (Lagrange).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cache.problem import Problem
from gapless.model.knapsack import Choice, Front, Items, best, front
from gapless.profiles.cache.layout import FORMATS, FULL, PARTS
from gapless.profiles.cache.modes import LayerModes

__all__ = ["LayerOption", "Options", "options_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LayerOption:
    """A layer's window and shared keys, and what its heads may choose: `items` are the kept heads' keys, then values.

    `modes`: with all heads in full. `error`: of the window and the sharing.
    """

    modes: LayerModes
    error: float
    items: Items

    def with_formats(self, chosen: Sequence[int]) -> LayerModes:
        """The modes with these places in `FORMATS`, of each item."""
        names = [FORMATS[each] for each in chosen]
        kept, keys = self.modes.kept, list(self.modes.keys)
        for head, name in zip(kept, names, strict=False):
            keys[head] = name
        values = tuple(names[len(kept) :])
        return LayerModes(self.modes.window, tuple(keys), values, self.modes.representatives)


def options_of(problem: Problem, layer: int) -> list[LayerOption]:
    """All windows, with all numbers of kept keys, that are offered to a layer."""
    profile, full = problem.profile, problem.full[layer]
    windows, shared = [(0, 0.0)], [(full, 0.0)]
    if "windows" in problem.modes:
        errors = profile.of("window", problem.measure)[layer].tolist()
        windows += [each for each in zip(profile.windows, errors, strict=True) if each[0] < problem.tokens]
    if "sharing" in problem.modes:
        errors = profile.of("sharing", problem.measure)[layer].tolist()
        rows = [tuple(row) for row in profile.representatives[layer].tolist()]
        shared += [(full.sharing(profile.kept(layer, place), row), errors[place]) for place, row in enumerate(rows)]
    return [
        LayerOption(
            LayerModes(window, modes.keys, modes.values, modes.representatives), window_error + sharing_error,
            _items(problem, layer, window, modes.kept),
        )
        for window, window_error in windows
        for modes, sharing_error in shared
    ]  # fmt: skip


def _items(problem: Problem, layer: int, window: int, kept: Sequence[int]) -> Items:
    """The kept heads' keys and all heads' values, in all formats that are offered."""
    by_head = problem.profile.by_head(problem.measure)[layer]
    offered = FORMATS if "formats" in problem.modes else (FULL,)
    cost, error = list[list[int]](), list[list[float]]()
    for part, heads in zip(PARTS, (kept, range(problem.profile.key_heads)), strict=True):
        bytes_of = [problem.head_bytes(part, name, window) for name in offered]
        for head in heads:
            cost.append(bytes_of)
            error.append([0.0, *by_head[PARTS.index(part), head, : len(offered) - 1].tolist()])
    return Items(np.array(cost, dtype=np.float64), np.array(error))


class Options:
    """All layers' options, their fronts, and the choices that these allow."""

    def __init__(self, problem: Problem, most_work: int) -> None:
        self.problem, self.most_work = problem, most_work
        self.layers = [options_of(problem, layer) for layer in range(problem.profile.layers)]

    @property
    def least_bytes(self) -> int:
        """Of the smallest cache that is offered."""
        return int(sum(min(float(option.items.least_cost.sum()) for option in layer) for layer in self.layers))

    @cached_property
    def _fronts(self) -> list[list[Front]]:
        """Of each layer and option."""
        work = max(1, self.most_work // sum(map(len, self.layers)))
        return [[front(option.items, work) for option in layer] for layer in self.layers]

    @cached_property
    def _points(self) -> list[tuple[Floats, Floats, Ints]]:
        """Of each layer the bytes, the errors and the options that no other point beats, from the fewest bytes on."""
        found = []
        for options, fronts in zip(self.layers, self._fronts, strict=True):
            cost = np.concatenate([each.budgets for each in fronts])
            errors = [option.error + each.errors for option, each in zip(options, fronts, strict=True)]
            error = np.concatenate(errors)
            number = np.repeat(np.arange(len(options)), [len(each) for each in errors])
            order = np.lexsort((error, cost))
            least = np.concatenate([[np.inf], np.minimum.accumulate(error[order])[:-1]])
            useful = order[error[order] < least]
            found.append((cost[useful], error[useful], number[useful]))
        return found

    @cached_property
    def items(self) -> Items:
        """A layer each, in modes that are its points."""
        most = max(len(cost) for cost, _, _ in self._points)
        costs, errors = np.zeros((len(self.layers), most)), np.full((len(self.layers), most), np.inf)
        for row, (cost, error, _) in enumerate(self._points):
            costs[row, : len(cost)], errors[row, : len(error)] = cost, error
        return Items(costs, errors)

    @cached_property
    def front(self) -> Front:
        """The least error within every budget."""
        return front(self.items, self.most_work)

    def best(self, budget: int) -> Choice | None:
        """The best choice of points within a budget; its bound holds where the points are exact."""
        return best(self.items, float(budget), self.most_work)

    @property
    def is_exact(self) -> bool:
        """Whether no layer's point could be better."""
        return all(each.is_exact for layer in self._fronts for each in layer)

    def layers_of(self, choice: Choice) -> tuple[LayerModes, ...]:
        """The modes of each layer in a choice."""
        return tuple(self._layer(number, int(mode)) for number, mode in enumerate(choice.modes))

    def _layer(self, layer: int, point: int) -> LayerModes:
        cost, _, number = self._points[layer]
        option = int(number[point])
        found = self._fronts[layer][option].at(float(cost[point]))
        assert found is not None, "a point of the front is within its own bytes"
        return self.layers[layer][option].with_formats(found.modes.tolist())

    def bound(self, budget: int, prices: int) -> float:
        """No choice within the budget is charged less: the best of so many prices of a byte, found by bisection."""
        low, high, most = 0.0, 1.0 / max(1, budget), 0.0
        while self._priced(high, budget)[1] > budget and high < 1.0:
            high *= 4.0
        for price in self._prices(low, high, budget, prices):
            most = max(most, self._priced(price, budget)[0])
        return most

    def _prices(self, low: float, high: float, budget: int, prices: int) -> Iterator[float]:
        yield high
        for _ in range(prices):
            price = (low + high) / 2
            if price in (low, high):
                return  # floats have none between
            low, high = (price, high) if self._priced(price, budget)[1] > budget else (low, price)
            yield price

    def _priced(self, price: float, budget: int) -> tuple[float, float]:
        """What every choice within the budget is charged at least, by a price of a byte; the bytes that attain it."""
        total, spent = [-price * budget], 0.0
        for options in self.layers:
            sums = []
            for option in options:
                value = option.items.error + price * option.items.cost
                modes = value.argmin(axis=1)
                rows = np.arange(len(modes))
                sums.append(
                    (option.error + float(value[rows, modes].sum()), float(option.items.cost[rows, modes].sum()))
                )
            charge, cost = min(sums)
            total.append(charge)
            spent += cost
        return math.fsum(total), spent
