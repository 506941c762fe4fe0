"""What layers may choose, and the choice by prices: windows and numbers of kept keys, formats of the heads in each.

A price on bytes makes all heads and layers independent. It bounds every choice (Lagrange's relaxation), and its own
choice is a plan where it is within the budget; what the budget leaves buys formats of more bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cache.problem import Problem
from gapless.model.knapsack import Items, Relaxation
from gapless.profiles.cache.layout import FORMATS, FULL, PARTS
from gapless.profiles.cache.modes import LayerModes

__all__ = ["LayerOption", "Options", "Priced", "options_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_HIGHEST = 1e6
"""A price of a byte, in nats, at which nothing is worth its bytes."""


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


@dataclass(frozen=True)
class Priced:
    """The modes of all layers, within the budget, and what no choice within it is charged less than."""

    layers: tuple[LayerModes, ...]
    bound: float


class Options:
    """All layers' options, and what they come to at a price of a byte."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.layers = [options_of(problem, layer) for layer in range(problem.profile.layers)]

    def least(self, layer: int) -> LayerOption:
        """The layer's option that may take fewest bytes."""
        return min(self.layers[layer], key=lambda each: float(each.items.least_cost.sum()))

    @property
    def least_bytes(self) -> int:
        """Of the smallest cache that is offered."""
        return int(sum(float(self.least(layer).items.least_cost.sum()) for layer in range(len(self.layers))))

    def priced(self, budget: int, prices: int) -> Priced:
        """The best of so many prices, found by bisection; the budget is at least `least_bytes`."""
        chosen, least = [self.least(layer) for layer in range(len(self.layers))], math.inf
        bound = 0.0
        for price in self._prices(budget, prices):
            here, charge, spent = self._at(price)
            bound = max(bound, charge - price * budget)
            if spent <= budget and price < least:
                chosen, least = [layer[each] for layer, each in zip(self.layers, here, strict=True)], price
        return Priced(self._filled(chosen, budget), bound)

    def _prices(self, budget: int, prices: int) -> Iterator[float]:
        low, high = 0.0, 1.0 / max(1, budget)
        while self._at(high)[2] > budget and high < _HIGHEST:
            low, high = high, 4 * high
        yield high
        for _ in range(prices):
            price = (low + high) / 2
            if price in (low, high):
                return  # floats have none between
            low, high = (price, high) if self._at(price)[2] > budget else (low, price)
            yield price

    @cached_property
    def _flat(self) -> tuple[Items, Ints, Floats, Ints]:
        """The items of all options, where each option begins, what it is charged by itself, where each layer begins."""
        options = [option for layer in self.layers for option in layer]
        items = Items(*(np.concatenate([getattr(each.items, name) for each in options]) for name in ("cost", "error")))
        starts = np.cumsum([0, *(len(each.items) for each in options)])[:-1]
        return items, starts, np.array([each.error for each in options]), np.cumsum([0, *map(len, self.layers)])

    def _at(self, price: float) -> tuple[list[int], float, float]:
        """The option of each layer that is charged least, with a price of a byte; what all are charged, and spend."""
        items, starts, errors, layers = self._flat
        charges = items.error + price * items.cost
        modes, rows = charges.argmin(axis=1), np.arange(len(items))
        charge = np.add.reduceat(charges[rows, modes], starts) + errors
        spent = np.add.reduceat(items.cost[rows, modes], starts)
        chosen = [int(charge[first:end].argmin()) for first, end in itertools.pairwise(layers)]
        places = layers[:-1] + np.array(chosen)
        return chosen, math.fsum(charge[places].tolist()), float(spent[places].sum())

    def _filled(self, chosen: Sequence[LayerOption], budget: int) -> tuple[LayerModes, ...]:
        """These options, with the formats that Dantzig's rule finds."""
        items = [each.items for each in chosen]
        both = Items(*(np.concatenate([getattr(each, name) for each in items]) for name in ("cost", "error")))
        choice = Relaxation(both).at(budget)
        assert choice is not None, "the options' smallest formats are within the budget"
        modes = np.split(choice.modes, np.cumsum([len(each) for each in items])[:-1])
        return tuple(each.with_formats(here.tolist()) for each, here in zip(chosen, modes, strict=True))
