"""Time points at which memory can run out, and what each choice uses at them.

Only time points after which a node ends, before which one starts, can be the fullest: between those, nodes only start
or only end. What all choices of a node use is taken off the limit; time points with room for the most that is left are
dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.instances.instance import Instance
from gapless.encodings.sharding.presolve.factors import Factors, Ints

__all__ = ["Points", "points_of"]


@dataclass(frozen=True, repr=False)
class Points:
    """What choices use beyond what every choice of their node does.

    `room`: int64, shape (points,), the limit less what all choices use. Entry k says that choice `choice[k]`, a number
    among all choices of nodes with at least two, uses `used[k]` bytes from point `first[k]` to before point `end[k]`.
    `excessive`: (node, choices that may stay) where a choice alone is above the room.
    """

    room: Ints
    choice: Ints
    first: Ints
    end: Ints
    used: Ints
    excessive: tuple[tuple[int, Ints], ...] = ()

    def slack(self, choices: Ints) -> Ints:
        """The room that numbers of choices leave, int64, shape (points,)."""
        is_taken = np.zeros(int(self.choice.max(initial=-1)) + 1, dtype=bool)
        is_taken[choices[choices < len(is_taken)]] = True
        kept = is_taken[self.choice]
        change = np.zeros(len(self.room) + 1, dtype=np.int64)
        np.add.at(change, self.first[kept], self.used[kept])
        np.subtract.at(change, self.end[kept], self.used[kept])
        left: Ints = self.room - change.cumsum()[:-1]
        return left


def points_of(factors: Factors) -> Points | None:
    """The time points of what is left; None where one has too little room for the choices that use least."""
    instance = factors.instance
    at, first, end = _candidates(instance)
    room = np.zeros(len(at) + 1, dtype=np.int64)
    most = np.zeros(len(at) + 1, dtype=np.int64)
    rows: list[tuple[int, int, int, Ints]] = []  # node, first, end, bytes of each choice beyond the least
    for node in factors.asking(sorted(factors.costs)):
        merged: dict[tuple[int, int], Ints] = {}
        for member, choice in factors.members(node):
            span = int(first[member]), int(end[member])
            if span[0] < span[1]:
                merged[span] = merged.get(span, 0) + instance.usages[member][choice]
        for (start, stop), used in sorted(merged.items()):
            least = int(used.min())
            room[start] += least
            room[stop] -= least
            if len(used) > 1 and used.max() > least:
                rows.append((node, start, stop, used - least))
                most[start] += used.max() - least
                most[stop] -= used.max() - least
    left = instance.usage_limit - room.cumsum()[:-1]
    if (left < 0).any():
        return None
    return _dropped(factors, left, most.cumsum()[:-1] > left, rows)


def _candidates(instance: Instance) -> tuple[Ints, Ints, Ints]:
    """Time points that can be the fullest, and for each node the first that it is live at, and the first after it."""
    is_live = instance.intervals[:, 0] < instance.intervals[:, 1]
    starts = np.unique(instance.intervals[is_live, 0])
    ends = np.unique(instance.intervals[is_live, 1])
    following = np.append(starts[1:], np.iinfo(np.int64).max)
    after = ends[np.minimum(np.searchsorted(ends, starts, side="right"), max(len(ends) - 1, 0))] if len(ends) else ends
    at = starts[after <= following]  # a node ends before the next one starts
    first, end = (np.searchsorted(at, instance.intervals[:, side]) for side in (0, 1))
    return at, first, np.where(is_live, end, first)


def _dropped(
    factors: Factors, room: Ints, is_tight: NDArray[np.bool_], rows: list[tuple[int, int, int, Ints]]
) -> Points:
    """The time points that are left, with the entries of their nodes."""
    place = np.concatenate([[0], np.cumsum(is_tight)])
    room = room[is_tight]
    numbers, total = {}, 0
    for node in sorted(factors.costs):
        if len(factors.costs[node]) > 1:
            numbers[node] = total
            total += len(factors.costs[node])
    columns: list[tuple[Ints, Ints, Ints, Ints]] = []
    too_much: dict[int, NDArray[np.bool_]] = {}
    for node, start, stop, used in rows:
        first, end = int(place[start]), int(place[stop])
        if first == end:
            continue
        above = used > room[first:end].min()
        if above.any():
            too_much[node] = too_much.get(node, False) | above
        kept = np.flatnonzero(used)
        columns.append((numbers[node] + kept, np.full(len(kept), first), np.full(len(kept), end), used[kept]))
    entries = [np.concatenate(each) for each in zip(*columns, strict=True)] if columns else [np.zeros(0, np.int64)] * 4
    excessive = tuple((node, np.flatnonzero(~above)) for node, above in sorted(too_much.items()))
    choice, first_point, end_point, used = (each.astype(np.int64) for each in entries)
    return Points(room, choice, first_point, end_point, used, excessive)
