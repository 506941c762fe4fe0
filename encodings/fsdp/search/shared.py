"""Groups that forward gathers, backward gathers and scatters share, as modules of FSDP2 do: which layers are in one.

With the groups given, each is a layer of a smaller question that labels answer. Groups are searched for from several
starts: two neighbours become one, or one becomes two, as long as that gains.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gapless.encodings.fsdp.search.baselines import Groups, each_alone, ungrouped
from gapless.encodings.fsdp.search.labels import search
from gapless.encodings.fsdp.step.costs import Costs, Order
from gapless.options import Deadline

__all__ = ["Grouped", "best_grouped", "starts_of"]

_FEW = 12
"""Labels that are kept while groups are compared."""


@dataclass(frozen=True)
class Grouped:
    """An order of groups, when its step ends, and the labels that it took."""

    groups: Groups
    order: Order | None
    step_s: float
    labels: int


def best_grouped(
    costs: Costs, starts: list[Groups], most_extensions: int, most_labels: int, deadline: Deadline
) -> Iterator[Order]:
    """Each order that is better than those before it. `most_extensions`: labels that are made while groups are
    compared. `most_labels`: kept for the last."""
    tried: dict[Groups, Grouped] = {}
    best: Grouped | None = None
    queue = deque(sorted(starts, key=len))
    while queue and not deadline.over and sum(each.labels for each in tried.values()) < most_extensions:
        groups = queue.popleft()
        if groups in tried:
            continue
        tried[groups] = other = _ordered(costs, groups, _FEW, deadline)
        if other.order is not None and (best is None or other.step_s < best.step_s * (1 - 1e-9)):
            best = other
            yield other.order
            if len(tried) > len(starts):
                queue.clear()
        if not queue and best is not None and (len(tried) <= len(starts) or other is best):
            queue.extend(_neighbours(best.groups))
    final = None if best is None else _ordered(costs, best.groups, most_labels, deadline)
    if final is not None and final.order is not None and best is not None and final.step_s < best.step_s:
        yield final.order


def _ordered(costs: Costs, groups: Groups, most_labels: int, deadline: Deadline) -> Grouped:
    """The best order of these groups, None where memory has no room for them."""
    found = search(costs.merged(groups), most_labels, 1, math.inf, deadline)
    order = None if found.order is None else ungrouped(found.order, groups)
    return Grouped(groups, order, found.step_s, found.labels)


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
