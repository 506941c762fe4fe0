"""The loops of the partition of least cost, compiled; each gives what its function over arrays does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.fast import compiled

__all__ = ["assigned", "costs"]

Ints = NDArray[np.int64]

_FAR = 2**60


@compiled
def costs(owner: NDArray[Any], slot: NDArray[Any], cost: NDArray[Any]) -> None:
    """The cost matrix of examples with as many ids each, written into `cost`."""
    examples, trainers = cost.shape
    held = np.zeros(trainers + 1, cost.dtype)  # what is cached nowhere counts at -1, the last
    for example in range(examples):
        held[:] = 0
        for table in range(slot.shape[1]):
            held[owner[slot[example, table]]] += 1
        cached = slot.shape[1] - held[-1]
        for trainer in range(trainers):
            cost[example, trainer] = cached - held[trainer]


@compiled
def _favourites(cost: NDArray[Any], places: Ints, prices: Ints) -> tuple[Ints, Ints, Ints]:
    """Each example where cost and price are least: the members of trainer j are `held[j]` from `first[j]` on.

    Trainers with too many only lose members, the others never hold more than they have places.
    """
    examples, trainers = cost.shape
    favourite = np.empty(examples, np.int64)
    held = np.zeros(trainers, np.int64)
    for example in range(examples):
        best, least = 0, cost[example, 0] + prices[0]
        for trainer in range(1, trainers):
            priced = cost[example, trainer] + prices[trainer]
            if priced < least:
                best, least = trainer, priced
        favourite[example] = best
        held[best] += 1
    first = np.zeros(trainers, np.int64)
    first[1:] = np.cumsum(np.maximum(held, places))[:-1]
    members = np.empty(np.maximum(held, places).sum(), np.int64)
    held[:] = 0
    for example in range(examples):
        trainer = favourite[example]
        members[first[trainer] + held[trainer]] = example
        held[trainer] += 1
    return members, first, held


@compiled
def _renew(
    cost: NDArray[Any], members: Ints, first: Ints, held: Ints, least: Ints, attain: Ints, source: int, targets: Ints,
    count: int,
) -> None:  # fmt: skip
    """The least that moving a member of `source` to each of the first `count` targets costs, and how many attain it."""
    trainers = cost.shape[1]
    if 4 * count > trainers:  # along whole rows, which the compiler does many at a time
        lowest = np.full(trainers, _FAR)
        attained = np.zeros(trainers, np.int64)
        for example in members[first[source] : first[source] + held[source]]:
            own = np.int64(cost[example, source])
            for target in range(trainers):
                lowest[target] = min(lowest[target], cost[example, target] - own)
        for example in members[first[source] : first[source] + held[source]]:
            own = np.int64(cost[example, source])
            for target in range(trainers):
                attained[target] += cost[example, target] - own == lowest[target]
        least[source], attain[source] = lowest, attained
        return
    for at in range(count):
        least[source, targets[at]], attain[source, targets[at]] = _FAR, 0
    for example in members[first[source] : first[source] + held[source]]:
        own = np.int64(cost[example, source])
        for at in range(count):
            target = targets[at]
            more = cost[example, target] - own
            if more < least[source, target]:
                least[source, target], attain[source, target] = more, 1
            elif more == least[source, target]:
                attain[source, target] += 1


@compiled
def _leave(
    cost: NDArray[Any], members: Ints, first: Ints, held: Ints, least: Ints, source: int, target: int, count: int,
    leaving: Ints,
) -> None:  # fmt: skip
    """Take the first `count` members of `source` that cost least on `target`; the others keep their order."""
    gone = kept = 0
    for place in range(first[source], first[source] + held[source]):
        example = members[place]
        if gone < count and np.int64(cost[example, target]) - cost[example, source] == least[source, target]:
            leaving[gone] = example
            gone += 1
        else:
            members[first[source] + kept] = example
            kept += 1
    held[source] = kept


@compiled
def _without(
    cost: NDArray[Any], members: Ints, first: Ints, held: Ints, least: Ints, attain: Ints, source: int, gone: Ints,
    lost: Ints,
) -> None:  # fmt: skip
    """The costs of the arcs from `source` once these examples are gone; `lost` is room to work in."""
    trainers = cost.shape[1]
    for example in gone:
        own = np.int64(cost[example, source])
        for target in range(trainers):
            attain[source, target] -= cost[example, target] - own == least[source, target]
    count = 0
    for target in range(trainers):
        if attain[source, target] == 0:
            lost[count] = target
            count += 1
    _renew(cost, members, first, held, least, attain, source, lost, count)


@compiled
def _arrive(
    cost: NDArray[Any], members: Ints, first: Ints, held: Ints, least: Ints, attain: Ints, target: int, gone: Ints
) -> None:
    """Add these examples to the members of `target`."""
    for example in gone:
        members[first[target] + held[target]] = example
        held[target] += 1
        own = np.int64(cost[example, target])
        for other in range(cost.shape[1]):
            more = cost[example, other] - own
            if more < least[target, other]:
                least[target, other], attain[target, other] = more, 1
            elif more == least[target, other]:
                attain[target, other] += 1


@compiled
def _shortest_path(least: Ints, surplus: Ints, prices: Ints) -> Ints:
    """As `transport._shortest_path`, round by round; the prices are changed in place."""
    trainers = len(surplus)
    distance = np.where(surplus > 0, 0, _FAR)
    before = np.full(trainers, -1)
    is_nearer = surplus > 0
    while is_nearer.any():
        nearest = np.full(trainers, -1)
        found = distance.copy()
        for source in range(trainers):
            if not is_nearer[source] or least[source, 0] >= _FAR:
                continue
            here = distance[source] - prices[source]
            for target in range(trainers):
                through = here + least[source, target] + prices[target]
                if through < found[target]:
                    found[target], nearest[target] = through, source
        is_nearer = nearest >= 0
        distance = found
        before = np.where(is_nearer, nearest, before)
    last = -1
    for trainer in range(trainers):
        if surplus[trainer] < 0 and (last < 0 or distance[trainer] < distance[last]):
            last = trainer
    for trainer in range(trainers):
        prices[trainer] -= min(distance[trainer], distance[last])
    path = np.empty(trainers, np.int64)
    path[trainers - 1], count = last, 1
    while before[path[trainers - count]] >= 0:
        path[trainers - count - 1] = before[path[trainers - count]]
        count += 1
    return path[trainers - count :]


@compiled
def assigned(cost: NDArray[Any], places: Ints, start: Ints) -> tuple[Ints, Ints, int]:
    """Trainer of each example, prices, steps: the loop of `transport`, with counts of what attains each arc's cost."""
    examples, trainers = cost.shape
    members, first, held = _favourites(cost, places, start)
    surplus = held - places
    least = np.full((trainers, trainers), _FAR, np.int64)
    attain = np.zeros((trainers, trainers), np.int64)
    every = np.arange(trainers)
    for trainer in range(trainers):
        _renew(cost, members, first, held, least, attain, trainer, every, trainers)
    prices, steps = start.copy(), 0
    leaving = np.empty(examples, np.int64)
    lost = np.empty(trainers, np.int64)
    while surplus.max() > 0:
        path = _shortest_path(least, surplus, prices)
        source, target = path[0], path[-1]
        count = min(surplus[source], -surplus[target])
        for arc in range(len(path) - 1):
            count = min(count, attain[path[arc], path[arc + 1]])
        for arc in range(len(path) - 1):
            _leave(cost, members, first, held, least, path[arc], path[arc + 1], count, leaving[arc * count :])
        for arc in range(len(path) - 1):
            gone = leaving[arc * count : (arc + 1) * count]
            _without(cost, members, first, held, least, attain, path[arc], gone, lost)
            _arrive(cost, members, first, held, least, attain, path[arc + 1], gone)
        surplus[source] -= count
        surplus[target] += count
        steps += 1
    found = np.empty(examples, np.int64)
    for trainer in range(trainers):
        found[members[first[trainer] : first[trainer] + held[trainer]]] = trainer
    return found, prices, steps
