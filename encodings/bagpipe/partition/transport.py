"""The transportation problem: every example to one trainer, every trainer as many as it has places, at least cost.

Successive shortest paths on a graph of the trainers. Start from prices of places and put each example where its cost
and the price add up to least; then some trainers have too many. The arc (j, k) costs what the cheapest example on j
costs more on k; along a shortest path from a trainer with too many to one with places left, all examples at once move
that attain the arcs' costs. Costs that are small whole numbers tie often, so the blocks are large and the steps few.

The prices stay such that no example would rather be elsewhere. That is the certificate: `lower_bound` turns any prices
into a bound on the cost of every assignment, and at the last prices it equals the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints
from gapless.encodings.bagpipe.cluster import capacities, checked_capacities
from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.errors import InputError

__all__ = ["Transport", "lower_bound", "placed", "transport"]

Costs = NDArray[np.integer]

_FAR = 2**60
_WIDE = 16
"""Trainers from which on moving along whole rows of costs is quicker than along single columns."""

_SAMPLE = 32
"""So many examples a trainer set the first prices, if the batch has four times as many."""
_SWEEPS = 2
"""How often each trainer's first price is set."""

_LARGEST_SPAN = 2**40
"""A path crosses at most 2^15 trainers, so its length stays below `_FAR`."""


@dataclass(frozen=True)
class Transport:
    """An assignment of least cost: `trainer` one per example, `prices` one per trainer, the smallest 0.

    `steps`: blocks that were moved.
    """

    trainer: Ints
    cost: int
    prices: Ints
    steps: int


def transport(cost: Costs, capacity: Ints | None = None, prices: Ints | None = None) -> Transport:
    """The cheapest assignment in which trainer j gets exactly `capacity[j]` examples.

    Parameters
    ----------
    cost
        Whole numbers, examples x trainers.
    capacity
        Places per trainer, adding up to the number of examples; as even as possible if None.
    prices
        Whole-number prices to start from; any are right, good ones save steps. Those of a sample if None.

    Raises
    ------
    InputError
        For costs that are no matrix of whole numbers or span 2^40 or more, and capacities that don't fit.
    """
    numbers = _checked_costs(cost)
    places = checked_capacities(capacity, *numbers.shape)
    start = _prices_of_sample(numbers, places) if prices is None else np.asarray(prices, dtype=np.int64)
    compiled = partition_loops(numbers.size)
    if compiled is None:
        trainer, now, steps = _assigned(numbers, places, start)
    else:
        trainer, now, steps = compiled.assigned(np.ascontiguousarray(numbers), places, start)
    total = int(np.take_along_axis(numbers, trainer[:, None], axis=1).sum(dtype=np.int64))
    return Transport(trainer, total, now - now.min(), steps)


def placed(cost: Costs, places: Ints, prices: Ints | None = None) -> Ints:
    """The trainers of `transport`, for searches that ask often: nothing is checked where compiled loops need it not.

    `places`: int64, adding up to the examples.
    """
    if prices is None or cost.dtype != np.int32 or (compiled := partition_loops(cost.size)) is None:
        return transport(cost, places, prices).trainer
    trainer: Ints = compiled.assigned(np.ascontiguousarray(cost), places, prices)[0]  # differences are of 64 bits there
    return trainer


def lower_bound(cost: Costs, capacity: NDArray[np.integer], prices: NDArray[np.integer]) -> int:
    """What every assignment costs at least, by these prices: each example pays its least cost plus price.

    Summed over the examples of an assignment, the prices come to `capacity @ prices` however they are assigned, which
    is taken off again. Holds for any prices; for those of `transport` it equals the optimum.
    """
    seats = np.asarray(prices, dtype=np.int64)
    return int((np.asarray(cost, dtype=np.int64) + seats).min(axis=1).sum() - np.asarray(capacity) @ seats)


def _assigned(cost: Costs, places: Ints, start: Ints) -> tuple[Ints, Ints, int]:
    """Trainer of each example, prices, steps."""
    state = _Assignment(cost, start)
    surplus = np.array([len(members) for members in state.members]) - places
    now, steps = start.copy(), 0
    while (surplus > 0).any():
        path, now = _shortest_path(state, surplus, now)
        first, last = path[0], path[-1]
        moved = state.move(path, int(min(surplus[first], -surplus[last])))
        surplus[first] -= moved
        surplus[last] += moved
        steps += 1
    return state.trainer, now, steps


class _Assignment:
    """The examples of each trainer; and for each pair of trainers the least that moving one example costs."""

    def __init__(self, cost: Costs, prices: Ints) -> None:
        self.cost = cost
        self.by_trainer = np.ascontiguousarray(cost.T)
        favourite = (cost + prices if prices.any() else cost).argmin(axis=1)
        trainers = cost.shape[1]
        order = np.argsort(favourite.astype(np.int16), kind="stable")
        ends = np.cumsum(np.bincount(favourite, minlength=trainers))
        self.members = np.split(order, ends[:-1])
        self.least = np.full((trainers, trainers), _FAR, np.int64)
        for trainer in range(trainers):
            self._renew(trainer, np.arange(trainers))

    @property
    def trainer(self) -> Ints:
        """The trainer of each example."""
        of_example = np.empty(len(self.cost), np.int64)
        for trainer, members in enumerate(self.members):
            of_example[members] = trainer
        return of_example

    def move(self, path: list[int], at_most: int) -> int:
        """Move as many examples as can move at least cost along every arc of the path; returns how many."""
        arcs = list(pairwise(path))
        tight = []
        for source, target in arcs:
            more = self._more(source, target)
            tight.append(np.flatnonzero(more == self.least[source, target]))
        count = min(at_most, *map(len, tight))
        leaving = []
        for (source, _), places in zip(arcs, tight, strict=True):
            members, places = self.members[source], places[:count]
            leaving.append(members[places])
            self.members[source] = np.delete(members, places)
        for (source, target), examples in zip(arcs, leaving, strict=True):
            # Only where a leaver was the cheapest can the least have grown; the other entries stand.
            costs = self.cost[examples]
            gone = (costs - costs[:, source, None]).min(axis=0)
            self._renew(source, np.flatnonzero(gone == self.least[source]))
            arrived = (costs - costs[:, target, None]).min(axis=0)
            np.minimum(self.least[target], arrived, out=self.least[target])
            self.members[target] = np.concatenate([self.members[target], examples])
        return count

    def _more(self, source: int, target: int | Ints) -> NDArray[np.integer]:
        """What each example on `source` costs more on `target`, one trainer or a column of them."""
        members = self.members[source]
        more: NDArray[np.integer] = self.by_trainer[target, members] - self.by_trainer[source][members]
        return more

    def _renew(self, source: int, targets: Ints) -> None:
        members, trainers = self.members[source], len(self.members)
        if not len(members):
            self.least[source] = _FAR
        elif trainers >= _WIDE and len(targets) > trainers // 8:
            costs = self.cost[members]
            self.least[source] = (costs - costs[:, source, None]).min(axis=0)
        else:
            self.least[source, targets] = self._more(source, targets[:, None]).min(axis=1)


def _prices_of_sample(cost: Costs, places: Ints) -> Ints:
    """Prices that suit a sample of the examples, which suit the others nearly as well; zeros for few examples.

    Trainer after trainer gets the price at which as many examples are at least as well off there as there are places:
    ascent of the dual, one price at a time, by an exact step.
    """
    examples, trainers = cost.shape
    stride = examples // (_SAMPLE * trainers)
    if stride < 4:
        return np.zeros(trainers, np.int64)
    own = np.ascontiguousarray(cost[::stride].T, dtype=np.int64)
    sample = own.shape[1]
    unplaced = sample - capacities(sample, trainers, places.tolist())
    prices = np.zeros(trainers, np.int64)
    for _ in range(_SWEEPS):
        priced = own + prices[:, None]
        later = np.minimum.accumulate(priced[::-1])[::-1]  # the least of each trainer and those after it
        best = np.full(sample, _FAR)
        for trainer, stays in enumerate(unplaced):
            others = best if trainer == trainers - 1 else np.minimum(best, later[trainer + 1])
            gains = others - own[trainer]
            price = gains.max() + 1 if stays == sample else np.partition(gains, stays)[stays]
            prices[trainer] = min(price, _LARGEST_SPAN)  # a trainer alone has nobody to compare with
            np.minimum(best, own[trainer] + prices[trainer], out=best)
    prices -= prices.min()
    return prices


def _shortest_path(state: _Assignment, surplus: Ints, prices: Ints) -> tuple[list[int], Ints]:
    """The path from a trainer with too many to the nearest with places left, and the prices that make it free.

    Bellman and Ford's method on all arcs at once; lengths count the prices, so none is negative.
    """
    trainers = np.arange(len(surplus))
    length = state.least + prices - prices[:, None]
    length[state.least[:, 0] >= _FAR] = _FAR  # there is no example to move
    distance = np.where(surplus > 0, 0, _FAR)
    before = np.full(len(surplus), -1)
    while True:
        through = distance[:, None] + length
        nearest = through.argmin(axis=0)
        nearer = through[nearest, trainers]
        is_nearer = nearer < distance
        if not is_nearer.any():
            break
        distance = np.where(is_nearer, nearer, distance)
        before[is_nearer] = nearest[is_nearer]
    last = int(np.where(surplus < 0, distance, 2 * _FAR).argmin())
    path = [last]
    while before[path[-1]] >= 0:
        path.append(int(before[path[-1]]))
    return path[::-1], prices - np.minimum(distance, distance[last])


def _checked_costs(cost: Costs) -> Costs:
    """The costs in a type that holds their differences."""
    if cost.ndim != 2 or cost.shape[1] < 1 or not np.issubdtype(cost.dtype, np.integer):
        kind = f"shape {cost.shape} of {cost.dtype}"
        raise InputError(f"cost: must be whole numbers, examples x trainers (at least one), got {kind}")
    span = int(cost.max(initial=0)) - int(cost.min(initial=0))  # at least the largest size, as 0 is among them
    if span >= _LARGEST_SPAN:
        raise InputError(f"cost: must span less than 2^40, got {span}")
    enough = next(dtype for dtype in (np.int16, np.int32, np.int64) if span <= np.iinfo(dtype).max)
    signed = np.issubdtype(cost.dtype, np.signedinteger)
    return cost if signed and cost.dtype.itemsize >= np.dtype(enough).itemsize else cost.astype(enough)
