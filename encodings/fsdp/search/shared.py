"""Groups that forward gathers, backward gathers and scatters share, as modules of FSDP2 do: which layers are in one.

With the groups given, each is a layer of a smaller question that labels answer. Groups are searched for from several
starts: two neighbours become one, or one becomes two, as long as that gains.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

from gapless.encodings.fsdp.search.baselines import Groups, each_alone, ungrouped
from gapless.encodings.fsdp.search.label_setting import Searched
from gapless.encodings.fsdp.search.passes import FEW_LAYERS, search_passes
from gapless.encodings.fsdp.step.costs import Costs, Order
from gapless.options import Deadline

__all__ = ["Grouped", "best_grouped", "best_of", "relaxed_bound", "starts_of"]

_FEW = 12
"""Labels that are kept while groups are compared."""
_SCATTERS_IN_FLIGHT = (1, 2)
"""Of which orders are sought besides those in which no pass waits for scatters: FSDP2 has one number for all passes."""


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
    few = most_labels if costs.layers <= FEW_LAYERS else _FEW
    tried: dict[Groups, Grouped] = {}
    best: Grouped | None = None
    queue = deque(sorted(starts, key=len))
    while queue and not deadline.over and sum(each.labels for each in tried.values()) < most_extensions:
        groups = queue.popleft()
        if groups in tried:
            continue
        tried[groups] = other = _ordered(costs, groups, few, deadline)
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
    found = best_of(costs.merged(groups), most_labels, math.inf, deadline)
    order = None if found.order is None else ungrouped(found.order, groups)
    return Grouped(groups, order, found.step_s, found.labels)


def best_of(costs: Costs, most_labels: int, best_s: float, deadline: Deadline) -> Searched:
    """The best order of these layers, however many scatters FSDP2 leaves under way."""
    best = search_passes(costs, most_labels, costs.layers, best_s, deadline)
    if costs.memory_bytes == math.inf or not costs.gradient_bytes:
        return best
    for most_scatters in _SCATTERS_IN_FLIGHT:
        if most_scatters < costs.layers:
            found = search_passes(costs, most_labels, most_scatters, best.step_s, deadline)
            order = best.order if found.order is None else found.order
            best = Searched(order, found.step_s, min(best.bound_s, found.bound_s), best.labels + found.labels)
    return best


def _neighbours(groups: Groups) -> Iterator[Groups]:
    """With two groups that become one, or one that is halved: in turns from the last layer to the first."""
    for k in reversed(range(len(groups))):
        first, last = groups[k]
        if k:
            yield (*groups[: k - 1], (groups[k - 1][0], last), *groups[k + 1 :])
        if first < last:
            middle = (first + last) // 2
            yield (*groups[:k], (first, middle), (middle + 1, last), *groups[k + 1 :])


def relaxed_bound(costs: Costs, most_labels: int, best_s: float, deadline: Deadline) -> float:
    """No order of any groups is over sooner, but for `best_s`: had gradients no size in memory. Of few layers the least
    of all groups; else of single layers without latency, which no group is faster than, nor holds less."""
    costs = costs.without_gradients()
    if costs.layers > FEW_LAYERS:
        return best_of(costs.without_latency(), most_labels, best_s, deadline).bound_s
    for groups in _all_groups(costs.layers):
        best_s = min(best_s, best_of(costs.merged(groups), most_labels, best_s, deadline).bound_s)
    return best_s


def _all_groups(layers: int) -> Iterator[Groups]:
    """Every way to cut layers into neighbours."""
    for cuts in product((False, True), repeat=layers - 1):
        bounds = [0, *(k + 1 for k, cut in enumerate(cuts) if cut), layers]
        yield tuple((first, last - 1) for first, last in pairwise(bounds))


def starts_of(costs: Costs) -> list[Groups]:
    """Groups to begin with: of few layers all; else every layer alone, two and four together."""
    if costs.layers <= FEW_LAYERS:
        return list(_all_groups(costs.layers))
    starts = [each_alone(costs)]
    for size in (2, 4):
        inner = [(k, min(k + size, costs.layers - 1) - 1) for k in range(1, costs.layers - 1, size)]
        ends = [(0, 0), *inner, (costs.layers - 1, costs.layers - 1)] if costs.layers > 1 else [(0, 0)]
        starts.append(tuple(ends))
    return list(dict.fromkeys(starts))
