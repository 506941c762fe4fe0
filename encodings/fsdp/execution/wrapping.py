"""What FSDP2 makes of a plan: calls of `fully_shard` and what they gather ahead; and the order that this comes to.

FSDP2 gathers a group when its pass begins, and then the groups that its lists name; it scatters when a group's backward
pass is over. It takes the memory of a gather when it begins it, though the network may be busy. So a gather of a plan
belongs to the last pass that begins before the gather starts, behind whatever stands before it on the network. What
FSDP2 can't say is how long a backward pass waits for scatters but for one number, how many may be under way.
`order_of` is the order as FSDP2 has it: its time line is what runs.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gapless.encodings.fsdp.decision import ShardedDecision
from gapless.encodings.fsdp.problem import ELEMENT_BYTES, Problem
from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order
from gapless.encodings.fsdp.step.timeline import Timeline, memory_changes, peak_of, timeline
from gapless.errors import InputError
from gapless.io.formats.fsdp2 import Fsdp2Group, Fsdp2Wrapping
from gapless.io.record import Record
from gapless.profiles.pipelines.profile import PipelineProfile

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["allocated_bytes", "costs_of", "order_of", "wrapping_of", "wrapping_of_plan"]

_ROUNDING = 1e-9
"""Of an instant: sums in another order differ by less."""


def wrapping_of_plan(plan: SavedPlan, where: str = "plan") -> Fsdp2Wrapping:
    """How FSDP2 wraps a model by a saved plan. Raises `InputError` as `wrapping_of` does."""
    asked = Record(dict(plan.problem), f"{where}: problem")
    return wrapping_of(ShardedDecision.of(plan, where), costs_of(plan, where), asked.text("profile"))


def wrapping_of(decision: ShardedDecision, costs: Costs, profile: str) -> Fsdp2Wrapping:
    """Gathers begin with later passes than the plan's order asks for as long as FSDP2 would have memory for more than
    the costs allow. Raises `InputError` for what FSDP2 can't do, and for an order that can't be run."""
    bounds = decision.groups
    if not bounds:
        rule = "FSDP2 gathers and scatters a group of modules together, the plan has other groups for each"
        raise InputError(f"groups: {rule}; solve with --groups shared")
    passes = _Passes(bounds)
    groups = tuple(Fsdp2Group(*bound, _kept(decision, bound), *_precisions(decision, bound)) for bound in bounds)
    parameters, most = tuple(costs.parameters.tolist()), _scatters_in_flight(decision, passes)
    bare = Fsdp2Wrapping(profile, decision.layers, parameters, groups, most)
    return _within_memory(costs, bare, _begun_ahead(decision, costs, passes))


_Ahead = tuple[tuple[int, ...], ...]
"""Groups that are gathered when each pass begins."""


def _begun_ahead(decision: ShardedDecision, costs: Costs, passes: _Passes) -> _Ahead:
    """In the last pass that begins before each gather of the plan starts, and in the plan's order."""
    times = timeline(costs, decision.order)
    if times is None:
        raise InputError("collectives: must have all that a pass needs before it, and each layer's scatter")
    begin_s = [times.begin_s[position] for position in passes.begins]
    ahead: list[list[int]] = [[] for _ in begin_s]
    least, scatters = 0, [passes.backward(passes.number[each.first]) for each in _scatters(decision)]
    for each, start_s in zip(decision.collectives, times.start_s, strict=True):
        if each.kind == Kind.SCATTER:
            least = max(least, scatters.pop(0) + 1)
            continue
        group = passes.number[each.first]
        used = group if each.kind == Kind.FORWARD else passes.backward(group)
        freed = 0 if each.kind == Kind.FORWARD else group + 1
        before = bisect_right(begin_s, start_s * (1 + _ROUNDING)) - 1
        least = min(max(least, freed, min([before, *scatters[:1]])), used)  # before the next scatter
        if least < used:
            ahead[least].append(group)
    return tuple(map(tuple, ahead))


def _ahead(wrapping: Fsdp2Wrapping, ahead: _Ahead) -> Fsdp2Wrapping:
    """The same, with other groups gathered ahead."""
    pairs = zip(wrapping.groups, ahead, reversed(ahead), strict=False)
    groups = (replace(each, forward_prefetch=first, backward_prefetch=second) for each, first, second in pairs)
    return replace(wrapping, groups=tuple(groups))


def _within_memory(costs: Costs, bare: Fsdp2Wrapping, ahead: _Ahead) -> Fsdp2Wrapping:
    """With gathers put off to the next pass, of those that wait for the network when memory is first exceeded the one
    that helps most, as long as one does."""
    best = _tried(costs, bare, ahead)
    while best.exceeded:
        later = (_tried(costs, bare, each) for each in _put_off(len(bare.groups), best))
        following = min(later, default=best)
        if following.exceeded >= best.exceeded:
            break
        best = following
    return _ahead(bare, best.ahead)


class _Tried(NamedTuple):
    """`exceeded`: by how many bytes memory is, times seconds. `waiting`: passes and groups of the gathers that wait for
    the network when that begins."""

    exceeded: float
    step_s: float
    ahead: _Ahead
    waiting: tuple[tuple[int, int], ...]


def _tried(costs: Costs, bare: Fsdp2Wrapping, ahead: _Ahead) -> _Tried:
    order = order_of(_ahead(bare, ahead))
    times = timeline(costs, order)
    assert times is not None, "FSDP2 gathers by itself what a pass needs"
    begun_s = _begun_s(costs, order, times)
    changes = memory_changes(costs, order.collectives, begun_s, times.end_s, times.begin_s, times.over_s)
    exceeded, taken, first_s, most = 0.0, 0.0, math.inf, costs.memory_bytes * (1 + _ROUNDING)
    for (when_s, by), (next_s, _) in pairwise([*changes, (times.step_s, 0.0)]):
        taken += by
        if taken > most and next_s > when_s:
            exceeded += (taken - most) * (next_s - when_s)
            first_s = min(first_s, when_s)
    passes = _Passes(tuple((group.first, group.last) for group in bare.groups))
    waiting = tuple(
        (passes.begins.index(each.after), passes.number[each.first])
        for each, from_s, to_s in zip(order.collectives, begun_s, times.start_s, strict=True)
        if each.kind != Kind.SCATTER and from_s <= first_s < to_s
    )
    return _Tried(exceeded, times.step_s, ahead, waiting)


def _put_off(count: int, tried: _Tried) -> Iterator[_Ahead]:
    """With each of the gathers that wait begun one pass later; by its own pass where that is the next."""
    for begun, group in tried.waiting:
        if group not in tried.ahead[begun]:
            continue
        lists = [list(each) for each in tried.ahead]
        lists[begun].remove(group)
        own = group if begun < group else 2 * count - 1 - group
        if begun + 1 < own:
            lists[begun + 1].insert(0, group)
        yield tuple(map(tuple, lists))


def _scatters(decision: ShardedDecision) -> list[Collective]:
    return [each for each in decision.collectives if each.kind == Kind.SCATTER]


class _Passes:
    """Forward passes of groups 0..G-1, then their backward passes from G-1 to 0."""

    def __init__(self, bounds: tuple[tuple[int, int], ...]) -> None:
        self.bounds, self.count, layers = bounds, len(bounds), bounds[-1][1] + 1
        self.number = {layer: k for k, (first, last) in enumerate(bounds) for layer in range(first, last + 1)}
        self.begins = [first for first, _ in bounds] + [2 * layers - 1 - last for _, last in reversed(bounds)]
        """Positions of layers that are over when each begins."""

    def backward(self, group: int) -> int:
        """Which pass is the group's backward."""
        return 2 * self.count - 1 - group


def _kept(decision: ShardedDecision, bound: tuple[int, int]) -> bool:
    return next(
        each.kept for each in decision.collectives if each.kind == Kind.FORWARD and (each.first, each.last) == bound
    )


def _precisions(decision: ShardedDecision, bound: tuple[int, int]) -> tuple[str, str]:
    """Of a group's gathers and of its scatter."""
    own = [each for each in decision.collectives if (each.first, each.last) == bound]
    gathers = {each.precision for each in own if each.kind != Kind.SCATTER}
    if len(gathers) > 1:
        names = f"{decision.layers[bound[0]]} to {decision.layers[bound[1]]}"
        rule = f"FSDP2 has one precision for both gathers of {names}, the plan has {' and '.join(sorted(gathers))}"
        raise InputError(f"collectives: {rule}; solve with one --gather")
    return gathers.pop(), next(each.precision for each in own if each.kind == Kind.SCATTER)


def _scatters_in_flight(decision: ShardedDecision, passes: _Passes) -> int:
    """As many as the plan's backward passes leave under way at most; all, where none waits."""
    most = passes.count
    for group, (_, last) in enumerate(passes.bounds):
        before = decision.collectives[: decision.holds[last]]
        over = [passes.backward(passes.number[each.first]) for each in before if each.kind == Kind.SCATTER]
        if over:
            most = min(most, passes.backward(group) - 1 - max(over))
    return max(1, most)


def order_of(wrapping: Fsdp2Wrapping) -> Order:
    """The collectives as FSDP2 has them on the network, and what its backward passes wait for."""
    passes = _Passes(tuple((group.first, group.last) for group in wrapping.groups))
    order: list[Collective] = []
    gathered, scatters = set[int](), list[int]()
    holds = [0] * len(wrapping.layer_names)
    for number in range(2 * passes.count):
        is_forward = number < passes.count
        own = number if is_forward else 2 * passes.count - 1 - number
        group = wrapping.groups[own]
        if not is_forward and len(scatters) > wrapping.scatters_in_flight:
            holds[group.last] = scatters[-1 - wrapping.scatters_in_flight]
        for each in (own, *(group.forward_prefetch if is_forward else group.backward_prefetch)):
            if each not in gathered:
                gathered.add(each)
                kind = Kind.FORWARD if is_forward and each >= own else Kind.BACKWARD
                order.append(_gather(wrapping.groups[each], kind, passes.begins[number]))
        if not is_forward:
            order.append(Collective(Kind.SCATTER, group.first, group.last, precision=group.scatter))
            scatters.append(len(order))
        if not (is_forward and group.kept):
            gathered.discard(own)
    return Order(tuple(order), tuple(holds))


def _gather(group: Fsdp2Group, kind: str, after: int) -> Collective:
    is_kept = kind == Kind.FORWARD and group.kept
    return Collective(kind, group.first, group.last, is_kept, after, group.gather)


def allocated_bytes(costs: Costs, order: Order, times: Timeline) -> float:
    """The most that FSDP2 has memory for: it takes a gather's when the pass begins that it belongs to, not when the
    network is free. `order`: as `order_of` has it; `times`: its time line."""
    begun_s = _begun_s(costs, order, times)
    return peak_of(memory_changes(costs, order.collectives, begun_s, times.end_s, times.begin_s, times.over_s))


def _begun_s(costs: Costs, order: Order, times: Timeline) -> list[float]:
    """When FSDP2 begins each collective: a pass gathers what it needs, and once it has that, what it gathers ahead."""
    begun_s = []
    for each, start_s in zip(order.collectives, times.start_s, strict=True):
        is_own = each.kind == Kind.SCATTER or each.first <= costs.layer_at[each.after] <= each.last
        over_s = times.over_s[each.after - 1] if each.after else 0.0
        begun_s.append(min(start_s, over_s if is_own else times.begin_s[each.after]))
    return begun_s


def costs_of(plan: SavedPlan, where: str = "plan") -> Costs:
    """What a saved plan's question says that a step costs. Raises `InputError` naming the field."""
    asked = Record(dict(plan.problem), f"{where}: problem")
    names, columns = tuple(asked.texts("layers")), {}
    for title in ("parameters", "forward_s", "backward_s"):
        columns[title] = np.array([asked.real(title, value, 0) for value in asked.array(title)])
        if len(columns[title]) != len(names):
            raise InputError(f"{where}: problem: {title} must be one for each of {len(names)} layers")
    none = np.zeros(len(names), np.int64)
    stored_bytes = ELEMENT_BYTES["bf16"] * columns["parameters"].astype(np.int64)
    profile = PipelineProfile(
        asked.text("profile"), names, columns["forward_s"], columns["backward_s"], none.astype(float),
        stored_bytes, stored_bytes, none, none,
    )  # fmt: skip
    return Problem(
        profile, asked.integer("ranks", 2), asked.number("bandwidth_bytes_per_s"), asked.number("latency_s", 0.0),
        math.inf if asked.raw("memory_bytes", None) is None else asked.number("memory_bytes"),
        tuple(asked.texts("gather")), tuple(asked.texts("scatter")),
    ).costs  # fmt: skip
