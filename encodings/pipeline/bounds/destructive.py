"""Destructive bounds: the longest step that is refuted, by bisection, and a bound that is above it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from gapless.encodings.pipeline.bounds.activities import Activities, of_links, of_rank
from gapless.encodings.pipeline.bounds.bounds import bounds_of, some_ranks, spans_s
from gapless.encodings.pipeline.bounds.heads import heads_and_tails
from gapless.encodings.pipeline.bounds.time_indexed import is_refuted
from gapless.encodings.pipeline.order.stages import Stages
from gapless.options import Deadline

__all__ = ["time_indexed_bound"]

_ROUGH = 4
"""By how much fewer points in time there are where the ranks are compared."""
_FINE = 2
"""Ranks, or pairs of links, that are looked at with all points in time: those that bound most with fewer."""
_ACCURACY = 1000
"""A bisection ends where what is left is so small a part of the step."""


def time_indexed_bound(
    stages: Stages, least: float, step: float, points: int, ranks: int, deadline: Deadline
) -> float:  # fmt: skip
    """A bound on all orders that end before `step`, no less than `least`, no more than `step`; or on spans.

    What bounds a rank alone is a whole number of ticks, though an order's longest span needn't be one.
    `stages`: in ticks, as `least` and `step` are. `points`: in time, of a rank's relaxation. `ranks`: how many are
    looked at, besides that with most to do.
    """
    if stages.steps > 1:
        return _of_steps(stages, least, step, points, ranks, deadline)
    groups = list(_groups(stages, ranks))
    return _raised(groups, least, step, points, deadline)


def _of_steps(stages: Stages, least: float, step: float, points: int, ranks: int, deadline: Deadline) -> float:
    """Of steps that follow one another: so many spans of a rank with a first stage, and one step."""
    span, one, others = replace(stages, by_span=True, steps=1), stages.one_step, stages.steps - 1
    spans, one_s, found = spans_s(stages), max(bounds_of(one).values()), list[float]()
    for first in dict.fromkeys(stages.rank[stages.firsts].tolist()):
        heads, most = heads_and_tails(span, rank=first), np.floor((step - one_s) / others)
        groups = [of_rank(heads, rank) for rank in some_ranks(span, ranks)]
        found.append(_raised(groups, min(spans[first], most), most, points, deadline))
    most = step - others * min(found)
    one_s = _raised(list(_groups(one, ranks)), min(one_s, most), most, points, deadline)
    return max(least, one_s + others * min(found))


def _raised(groups: list[Activities], least: float, step: float, points: int, deadline: Deadline) -> float:
    """The least that is not refuted, of all groups."""
    search = _Bisection(step, deadline, least)
    raised: list[Activities] = []
    for activities in groups:
        if search.raise_by(activities, max(points // _ROUGH, 2), _ROUGH * step / _ACCURACY):
            raised.insert(0, activities)
    for activities in (raised or groups)[:_FINE]:
        search.raise_by(activities, points, 0.0 if step <= points else step / _ACCURACY)
    return search.least


def _groups(stages: Stages, most: int) -> Iterator[Activities]:
    """Some ranks, and pairs of links; of spans what each rank does from the first rank's first op to its end, and from
    its own first op to its own end."""
    ranks = some_ranks(stages, most)
    if stages.by_span:
        first = int(stages.rank[0])
        heads = heads_and_tails(stages, rank=first)
        yield from (of_rank(heads, rank) for rank in ranks)
        yield from (of_rank(heads_and_tails(stages, rank=rank), rank) for rank in ranks if rank != first)
        return
    heads = heads_and_tails(stages)
    yield from (of_rank(heads, rank, parts) for rank in ranks for parts in stages.least_s)
    yield from islice(of_links(heads), most)


class _Bisection:
    """`least`: no order ends before it."""

    def __init__(self, step: float, deadline: Deadline, least: float) -> None:
        self.step, self.deadline, self.least = step, deadline, float(np.ceil(least))

    def raise_by(self, activities: Activities, points: int, accuracy: float) -> bool:
        """Refute longer steps by these activities, if the least is refuted; whether it is."""
        before, high = self.least, self.step
        if high <= self.least or not self._is_refuted(activities, self.least, points):
            return False
        if not accuracy and self._is_refuted(activities, self.step - 1, points):
            return True
        while high - self.least > max(accuracy, 0.5) and not self.deadline.over:
            middle = float(np.floor((self.least + high) / 2))
            if not self._is_refuted(activities, middle, points):
                high = middle
        return self.least > before

    def _is_refuted(self, activities: Activities, step: float, points: int) -> bool:
        """Whether it is; then the least is above it."""
        if step < self.least or not is_refuted(activities, step, points, self.deadline):
            return step < self.least
        self.least = step + 1
        return True
