"""From the events of a schedule to calls: what each computes, by which implementation, and what goes after it.

A plan that offloads has copies as well: each begins, and is awaited, before one of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gapless.checker.timeline import tolerance_s
from gapless.errors import InputError
from gapless.ir.schedule import Event, EventKind
from gapless.torch.capture.program import Call, Operator
from gapless.torch.library import Node
from gapless.torch.run.step_plan import StepPlan

__all__ = ["PlannedCall", "PlannedCopy", "drawn_again", "planned_calls", "planned_copies", "recomputed_share"]

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


@dataclass(frozen=True)
class PlannedCopy:
    """What an operator holds, on its way to the host and back, by the numbers of calls before which something happens.

    `leaves`: the copy out begins. `gone`: that call waits until it is over. `returns`: the copy back begins, the
    `place`-th of all. `back`: that call waits for it. Of one call, in this order.
    """

    values: tuple[Node, ...]
    leaves: int
    gone: int
    returns: int
    back: int
    place: int


def planned_calls(plan: StepPlan) -> tuple[PlannedCall, ...]:
    """The events that compute, in their order. Raises `InputError` for an op that the captured step lacks."""
    events = _computing(plan)
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


def planned_copies(plan: StepPlan) -> tuple[PlannedCopy, ...]:
    """The copies of a plan that offloads, in the order in which they leave: as early, and back as late, as it has them.

    Raises `InputError` for an op that the captured step lacks, and where what an optimiser has travels.
    """
    trips: dict[int, list[Event]] = {}
    for event in plan.schedule.events():
        for tensor in event.moves if event.kind is EventKind.TRANSFER else ():
            trips.setdefault(tensor, []).append(event)
    if not trips:
        return ()
    if max(trips) > len(plan.step.graph.forward):
        raise InputError(
            "plan: an optimiser's states and gradients can't be copied by a run; plan without an optimizer"
        )
    runs = _Runs.of(plan)
    begins = sorted(back.start_s for _, back in trips.values())
    return tuple(
        runs.copy(plan, tensor, out, back, begins.index(back.start_s))
        for tensor, (out, back) in sorted(trips.items(), key=lambda trip: trip[1][0].start_s)
    )


@dataclass(frozen=True)
class _Runs:
    """The events that compute, and the call that each belongs to."""

    events: list[Event]
    uses: list[frozenset[int]]
    call: list[int]
    tolerance_s: float

    @classmethod
    def of(cls, plan: StepPlan) -> _Runs:
        events = _computing(plan)
        operators = [plan.step.operators[node] for node in _nodes(plan, events)]
        is_call = [operator is not None and bool(operator.calls) for operator in operators]
        ops = [plan.schedule.graph.ops[event.op] for event in events]
        used = []
        for event, op in zip(events, ops, strict=True):
            reads = op.implementations[event.implementation].inputs
            used.append(frozenset((*(op.inputs if reads is None else reads), *op.outputs)))
        return cls(events, used, [count - 1 for count in accumulate(is_call)], tolerance_s(plan.schedule.end_s))

    def copy(self, plan: StepPlan, tensor: int, out: Event, back: Event, place: int) -> PlannedCopy:
        """Events that begin within a rounding error of a copy's end wait for it."""
        slack_s, users = self.tolerance_s, [k for k, used in enumerate(self.uses) if tensor in used]
        last = max(k for k in users if self.events[k].end_s <= out.start_s + slack_s)
        needed = min(k for k in users if k > last)
        ahead = range(last + 1, needed)
        gone = next((k for k in ahead if self.events[k].start_s >= out.end_s - slack_s), needed)
        gate = max((k for k in ahead if self.events[k].end_s <= back.start_s + slack_s), default=last)
        leaves, stop = self.call[last] + 1, self.call[needed]
        operator = plan.step.operators[tensor - 1]
        return PlannedCopy(
            () if operator is None else operator.holds,
            leaves,
            max(self.call[gone], leaves),
            min(self.call[gate] + 1, stop),
            stop,
            place,
        )


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


def _computing(plan: StepPlan) -> list[Event]:
    return [event for event in plan.schedule.events() if event.kind is EventKind.COMPUTE]


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
