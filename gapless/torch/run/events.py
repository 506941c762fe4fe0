"""From the events of a schedule to calls: what each computes, by which implementation, and what goes after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.ir.schedule import Event
from gapless.torch.capture.program import Call, Operator
from gapless.torch.library import Node
from gapless.torch.run.step_plan import StepPlan

__all__ = ["PlannedCall", "drawn_again", "planned_calls", "recomputed_share"]

_IN_PLACE = "in place"
"""What the lowering calls a forward operator that runs in place."""


@dataclass(frozen=True)
class PlannedCall:
    """An event that computes: the node of the training graph that runs, how, and the values that go after it.

    `claimed`: the intermediates that are made with it. `is_first`: the node has not run before. `is_after`: the forward
    pass is over.
    """

    node: int
    operator: Operator
    call: Call
    claimed: frozenset[int]
    gone: tuple[Node, ...]
    is_first: bool
    is_after: bool


def planned_calls(plan: StepPlan) -> tuple[PlannedCall, ...]:
    """The events that compute, in their order. Raises `InputError` for an op that the captured step lacks."""
    events = list(plan.schedule.events())
    nodes = _nodes(plan, events)
    planned: list[PlannedCall] = []
    ran: set[int] = set()
    end = len(plan.step.graph.forward) - 1
    for place, (event, node) in enumerate(zip(events, nodes, strict=True)):
        operator, gone = plan.step.operators[node], _gone(plan, event)
        if operator is not None and operator.calls:
            claimed = _claimed(plan, nodes[place + 1 :])
            planned.append(
                PlannedCall(
                    node, operator, _call(plan, event, operator, claimed), claimed, gone, node not in ran, end in ran
                )
            )
        elif gone:  # an intermediate, or the loss: nothing runs, but what ends here goes
            planned[-1] = replace(planned[-1], gone=(*planned[-1].gone, *gone))
        ran.add(node)
    return tuple(planned)


def drawn_again(planned: Sequence[PlannedCall]) -> set[str]:
    """The random operators whose state is needed again: they run twice, or another call draws what they drew."""
    again = {event.operator.name for event in planned if not event.is_first}
    drawn = {event.call.random for event in planned if event.call.random and event.call.random != event.operator.name}
    return {event.call.random for event in planned if event.call.random in again | drawn}


def recomputed_share(plan: StepPlan) -> float:
    """The time of what a plan computes again, as a share of the forward pass."""
    forward = plan.step.graph.forward
    again_s = sum(forward[call.node].implementations[0].duration_s for call in planned_calls(plan) if not call.is_first)
    total_s = sum(node.implementations[0].duration_s for node in forward)
    return again_s / total_s if total_s else 0.0


def _nodes(plan: StepPlan, events: Sequence[Event]) -> list[int]:
    graph = plan.step.graph
    named = [*(node.name for node in graph.forward), *(node.name for node in graph.backward)]
    numbers = {name: number for number, name in enumerate(named)}
    names = [plan.schedule.graph.ops[event.op].name for event in events]
    for name in names:
        if name not in numbers:
            raise InputError(f"plan: op {name!r} is none of the captured step {graph.name!r}")
    return [numbers[name] for name in names]


def _call(plan: StepPlan, event: Event, operator: Operator, claimed: frozenset[int]) -> Call:
    """The call that an event stands for: one that makes what comes after it, or is named by its implementation, or the
    framework's own."""
    for call in operator.calls:
        if call.makes in claimed:
            return call
    label = plan.schedule.graph.ops[event.op].implementations[event.implementation].name
    if label == _IN_PLACE:
        return next(call for call in operator.calls if call.in_place)
    return next((call for call in operator.calls if call.name == label), operator.calls[0])


def _claimed(plan: StepPlan, later: Sequence[int]) -> frozenset[int]:
    """The intermediates that are made with the operator of an event: they come right after it."""
    claimed = set()
    forward = plan.step.graph.forward
    for node in later:
        if node >= len(forward) or forward[node].creator is None:
            break
        claimed.add(node)
    return frozenset(claimed)


def _gone(plan: StepPlan, event: Event) -> tuple[Node, ...]:
    """The values that an event frees, or that it has written over."""
    implementation = plan.schedule.graph.ops[event.op].implementations[event.implementation]
    operators = plan.step.operators
    tensors = [*(tensor for tensor, _ in event.frees), *implementation.overwrites]
    freed = [operators[tensor - 1] for tensor in tensors if 1 <= tensor <= len(operators)]
    return tuple(value for operator in freed if operator is not None for value in operator.holds)
