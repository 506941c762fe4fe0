"""Time points that are never fuller than another: where the room grows by at least what nodes can add, nothing is lost.

Neighbouring points are held against each other, again and again: each difference is of the few nodes that start or end
between them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.presolve.points import Points

__all__ = ["without_dominated"]

_WORTH = 0.01
"""The share of the points that a pass has to find for another one to follow."""


def without_dominated(points: Points, owner: Ints, sizes: Ints) -> Points:
    """The points that no neighbour is always at least as full as. `owner`: of each choice its node, int64, shape
    (choices,); `sizes`: of each node how many choices it has.
    """
    count = 2 * len(points.room)
    while 1 < len(points.room) <= (1 - _WORTH) * count:
        count = len(points.room)
        points = _kept(points, ~_is_dominated(points, owner, sizes))
    return points


def _is_dominated(points: Points, owner: Ints, sizes: Ints) -> NDArray[np.bool_]:
    """Which points a neighbour dominates; of two that dominate each other, the first. What dominates is transitive."""
    most, least = _changes(points, owner, sizes)
    gained = np.diff(points.room)
    is_by_next = -least <= -gained
    is_by_last = (most <= gained) & ~is_by_next
    found = np.zeros(len(points.room), dtype=bool)
    found[:-1] |= is_by_next
    found[1:] |= is_by_last
    return found


def _changes(points: Points, owner: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """By how much a plan's memory can rise at most, and at least, from each point to the next; shape (points - 1,)."""
    count = len(points.room)
    at = np.concatenate([points.first, points.end])
    choice = np.concatenate([points.choice, points.choice])
    change = np.concatenate([points.used, -points.used])
    is_inside = (at > 0) & (at < count)
    at, choice, change = at[is_inside], choice[is_inside], change[is_inside]
    key = at * len(owner) + choice
    order = np.argsort(key, kind="stable")
    new = _is_new(key[order])
    total = np.add.reduceat(change[order], np.flatnonzero(new)) if len(order) else change
    at, choice = at[order][new], choice[order][new]
    node = owner[choice]
    new = _is_new(at * len(sizes) + node)
    start = np.flatnonzero(new)
    most, least = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    if len(start):
        is_whole = np.diff(np.append(start, len(node))) == sizes[node[start]]
        for found, pick in ((most, np.maximum), (least, np.minimum)):
            value = pick.reduceat(total, start)
            np.add.at(found, at[start], np.where(is_whole, value, pick(value, 0)))  # other choices change nothing
    return most[1:], least[1:]


def _is_new(keys: Ints) -> NDArray[np.bool_]:
    """Where ascending keys change."""
    found = np.ones(len(keys), dtype=bool)
    found[1:] = keys[1:] != keys[:-1]
    return found


def _kept(points: Points, kept: NDArray[np.bool_]) -> Points:
    """These points alone; entries that no longer differ in their span are added up."""
    place = np.concatenate([[0], np.cumsum(kept)])
    first, end = place[points.first], place[points.end]
    lasts = first < end
    first, end, choice, used = first[lasts], end[lasts], points.choice[lasts], points.used[lasts]
    order = np.lexsort((end, first, choice))
    first, end, choice, used = first[order], end[order], choice[order], used[order]
    new = np.ones(len(first), dtype=bool)
    new[1:] = (choice[1:] != choice[:-1]) | (first[1:] != first[:-1]) | (end[1:] != end[:-1])
    total = np.add.reduceat(used, np.flatnonzero(new)) if len(used) else used
    return replace(points, room=points.room[kept], choice=choice[new], first=first[new], end=end[new], used=total)
