"""Groups that forward gathers, backward gathers and scatters share, as modules of FSDP2 do: which layers are in one.

With the groups given, each is a layer of a smaller question that labels answer. Groups are searched for from several
starts: two neighbours become one, or one becomes two, as long as that gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gapless.encodings.fsdp.baselines import Groups, each_alone, ungrouped
from gapless.encodings.fsdp.costs import Costs, Order
from gapless.encodings.fsdp.labels import search
from gapless.options import Deadline

__all__ = ["Grouped", "best_grouped", "starts_of"]

_FEW = 12
"""Labels that are kept while groups are compared."""


@dataclass(frozen=True)
class Grouped:
    """An order, and when its step ends."""

    groups: Groups
    order: Order
    step_s: float


def best_grouped(
    costs: Costs, starts: list[Groups], most: int, most_labels: int, deadline: Deadline
) -> Iterator[Grouped]:
    """Each that is better than those before it. `most`: groupings that are tried. `most_labels`: kept for the last."""
    tried: dict[Groups, Grouped | None] = {}
    best: Grouped | None = None
    for groups in starts:
        tried[groups] = _ordered(costs, groups, _FEW, deadline)
    known = [each for each in tried.values() if each is not None]
    if not known:
        return
    best = min(known, key=lambda each: each.step_s)
    yield best
    improves = True
    while improves and not deadline.over:
        improves = False
        for groups in _neighbours(best.groups):
            if groups in tried or len(tried) >= most or deadline.over:
                continue
            tried[groups] = other = _ordered(costs, groups, _FEW, deadline)
            if other is not None and other.step_s < best.step_s * (1 - 1e-9):
                best, improves = other, True
                yield best
                break
    final = _ordered(costs, best.groups, most_labels, deadline)
    if final is not None and final.step_s < best.step_s:
        yield final


def _ordered(costs: Costs, groups: Groups, most_labels: int, deadline: Deadline) -> Grouped | None:
    """The best order of these groups; None where memory has no room for them."""
    found = search(costs.merged(groups), most_labels, 1, float("inf"), deadline)
    if found.order is None:
        return None
    return Grouped(groups, ungrouped(found.order, groups), found.step_s)


def _neighbours(groups: Groups) -> Iterator[Groups]:
    """With two groups that become one, or one that is halved: in turns from the last layer to the first."""
    for k in reversed(range(len(groups))):
        first, last = groups[k]
        if k:
            yield (*groups[: k - 1], (groups[k - 1][0], last), *groups[k + 1 :])
        if first < last:
            middle = (first + last) // 2
            yield (*groups[:k], (first, middle), (middle + 1, last), *groups[k + 1 :])


def starts_of(costs: Costs, order: Order | None) -> list[Groups]:
    """Groups to begin with: every layer alone, two and four together, and those of an order that need not share any."""
    starts = [each_alone(costs)]
    for size in (2, 4):
        inner = [(k, min(k + size, costs.layers - 1) - 1) for k in range(1, costs.layers - 1, size)]
        ends = [(0, 0), *inner, (costs.layers - 1, costs.layers - 1)] if costs.layers > 1 else [(0, 0)]
        starts.append(tuple(ends))
    collectives = () if order is None else order.collectives
    for kind in {each.kind for each in collectives}:
        groups = sorted((each.first, each.last) for each in collectives if each.kind == kind)
        if groups and groups[0][0] == 0 and groups[-1][1] == costs.layers - 1 and _is_whole(groups):
            starts.append(tuple(groups))
    return list(dict.fromkeys(starts))


def _is_whole(groups: list[tuple[int, int]]) -> bool:
    return all(one[1] + 1 == two[0] for one, two in pairwise(groups))
