"""The exact choice: formats of a layer's heads for each window and number of kept keys, then the modes of all layers.

Given a layer's window and which keys are kept, its heads are items of a multiple-choice knapsack, whose front is a
dynamic programme. The fronts of a layer's windows and counts together are the modes of one item of another one, over
layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cache.choice import LayerOption, Options
from gapless.model.knapsack import Choice, Front, Items, front
from gapless.profiles.cache.modes import LayerModes

__all__ = ["Fronts"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Fronts:
    """The least error of each layer's options within every number of bytes, and the choices that these allow."""

    def __init__(self, layers: Sequence[Sequence[LayerOption]], fronts: Sequence[Sequence[Front]], most_work: int):
        self._layers, self._fronts, self._most_work = layers, fronts, most_work

    @classmethod
    def of(cls, options: Options, most_work: int, is_over: Callable[[], bool] = lambda: False) -> Fronts | None:
        """Of all options; None where it is over before they are made."""
        share, made = max(1, most_work // sum(map(len, options.layers))), []
        for layer in options.layers:
            if is_over():
                return None
            made.append([front(option.items, share) for option in layer])
        return cls(options.layers, made, most_work)

    @property
    def is_exact(self) -> bool:
        """Whether no layer's point could be better."""
        return all(each.is_exact for layer in self._fronts for each in layer)

    @cached_property
    def _points(self) -> list[tuple[Floats, Floats, Ints]]:
        """Of each layer the bytes, the errors and the options that no other point beats, from the fewest bytes on."""
        found = []
        for options, fronts in zip(self._layers, self._fronts, strict=True):
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
        costs, errors = np.zeros((len(self._layers), most)), np.full((len(self._layers), most), np.inf)
        for row, (cost, error, _) in enumerate(self._points):
            costs[row, : len(cost)], errors[row, : len(error)] = cost, error
        return Items(costs, errors)

    @cached_property
    def front(self) -> Front:
        """The least error within every budget."""
        return front(self.items, self._most_work)

    def best(self, budget: int) -> Choice | None:
        """The best choice of points within a budget; its bound holds where the points are exact."""
        return self.front.best_at(float(budget))

    def layers_of(self, choice: Choice) -> tuple[LayerModes, ...]:
        """The modes of each layer in a choice."""
        return tuple(self._layer(number, int(mode)) for number, mode in enumerate(choice.modes))

    def _layer(self, layer: int, point: int) -> LayerModes:
        cost, _, number = self._points[layer]
        option = int(number[point])
        found = self._fronts[layer][option].at(float(cost[point]))
        assert found is not None, "a point of the front is within its own bytes"
        return self._layers[layer][option].with_formats(found.modes.tolist())
