"""What FSDP2 makes of a plan: calls of `fully_shard` and what they gather ahead; and the order that this comes to.

FSDP2 gathers a group when its pass begins, and then the groups that its lists name; it scatters when a group's backward
pass is over. It takes the memory of a gather when it begins it, though the network may be busy. A backward pass waits
for scatters by one number, how many may be under way.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gapless.encodings.fsdp.decision import ShardedDecision
from gapless.encodings.fsdp.problem import ELEMENT_BYTES, Problem
from gapless.encodings.fsdp.question import Question
from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order
from gapless.errors import InputError
from gapless.io.formats.fsdp2 import Fsdp2Group, Fsdp2Wrapping
from gapless.io.record import Record
from gapless.profiles.pipelines.profile import PipelineProfile

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["costs_of", "order_of", "wrapping_of", "wrapping_of_plan"]

_REMEDY = "solve with --executor fsdp2"


def wrapping_of_plan(plan: SavedPlan, where: str = "plan") -> Fsdp2Wrapping:
    """How FSDP2 wraps a model by a saved plan. Raises `InputError` as `wrapping_of` does."""
    asked = Record(dict(plan.problem), f"{where}: problem")
    ranks_per_node = asked.integer("ranks_per_node", 1)
    return wrapping_of(ShardedDecision.of(plan, where), costs_of(plan, where), asked.text("profile"), ranks_per_node)


def wrapping_of(decision: ShardedDecision, costs: Costs, profile: str, ranks_per_node: int = 1) -> Fsdp2Wrapping:
    """Raises `InputError` for what FSDP2 can't do."""
    bounds = decision.groups
    if not bounds:
        raise InputError(f"groups: FSDP2 gathers and scatters a group of modules together; {_REMEDY}")
    passes = _Passes(bounds)
    shardings = (_sharding(decision, bound) for bound in bounds)
    groups = [
        Fsdp2Group(*bound, _kept(decision, bound), *_precisions(decision, bound), sharding=sharding)
        for bound, sharding in zip(bounds, shardings, strict=True)
    ]
    for each in decision.collectives:
        group = passes.number[each.first]
        if each.kind == Kind.SCATTER or each.after not in passes.begins:
            continue
        begun = passes.begins.index(each.after)
        own = begun if begun < passes.count else passes.backward(begun)
        if own == group:
            continue
        if begun < passes.count:
            groups[own] = replace(groups[own], forward_prefetch=(*groups[own].forward_prefetch, group))
        else:
            groups[own] = replace(groups[own], backward_prefetch=(*groups[own].backward_prefetch, group))
    most = _scatters_in_flight(decision, passes)
    sizes = tuple(costs.parameters.tolist())
    wrapping = Fsdp2Wrapping(profile, decision.layers, sizes, tuple(groups), most, ranks_per_node)
    if order_of(wrapping) != decision.order:
        raise InputError(f"collectives: must be in an order that passes of FSDP2 can begin; {_REMEDY}")
    return wrapping


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


def _sharding(decision: ShardedDecision, bound: tuple[int, int]) -> str:
    in_node = {each.kind for each in decision.collectives if each.in_node and (each.first, each.last) == bound}
    if Kind.FORWARD in in_node:
        return "hybrid"
    return "secondary" if Kind.BACKWARD in in_node else "full"


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
            is_hybrid = group.sharding == "hybrid"
            order.append(Collective(Kind.SCATTER, group.first, group.last, precision=group.scatter, in_node=is_hybrid))
            scatters.append(len(order))
        if not (is_forward and group.kept):
            gathered.discard(own)
    return Order(tuple(order), tuple(holds))


def _gather(group: Fsdp2Group, kind: str, after: int) -> Collective:
    is_kept = kind == Kind.FORWARD and group.kept
    in_node = group.sharding == "hybrid" or (kind == Kind.BACKWARD and group.sharding == "secondary")
    return Collective(kind, group.first, group.last, is_kept, after, group.gather, in_node)


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
        tuple(asked.texts("gather")), tuple(asked.texts("scatter")), asked.text("executor"),
        ranks_per_node=asked.integer("ranks_per_node", 1),
        inner_bytes_per_s=None
        if asked.raw("inner_bandwidth_bytes_per_s", None) is None
        else asked.number("inner_bandwidth_bytes_per_s"),
        inner_latency_s=asked.number("inner_latency_s", 0.0),
        sharding=tuple(asked.texts("sharding", default=["full"])),
        state_bytes=asked.number("state_bytes", 0.0, default=Question.state_bytes),
    ).costs  # fmt: skip
