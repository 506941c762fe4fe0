"""Plans run by FSDP2 on processes of this machine: `gapless run fsdp`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gapless.encodings.fsdp.decision import ShardedDecision
from gapless.encodings.fsdp.execution.wrapping import costs_of, order_of, wrapping_of, wrapping_of_plan
from gapless.encodings.fsdp.question import RunQuestion
from gapless.encodings.fsdp.search.baselines import BUILDERS
from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order
from gapless.encodings.fsdp.step.timeline import Change, Timeline, peak_of, timeline
from gapless.errors import InputError
from gapless.io.formats.fsdp2 import Fsdp2Wrapping
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.torch.fsdp.comparison import Collective as Gathered
    from gapless.torch.fsdp.comparison import Ran, Strategy

__all__ = ["Row", "execute", "row_of"]

_LATE = 0.05
"""A lag behind the emulated wire that is a larger share of a step is said."""
_NODES = _RANKS_PER_NODE = 2
"""More than two summands gloo adds up in an order that depends on where in a message they are."""
_REMEDY = f"solve with --ranks {_NODES * _RANKS_PER_NODE} --ranks-per-node {_RANKS_PER_NODE}"
_ROUNDING = 1e-6
"""Of a peak, in shares: instants that differ by the rounding of a clock."""


@dataclass(frozen=True)
class Row:
    """A wrapping that ran, and what was predicted of it. `gathered_bytes`: the most at once that FSDP2 has memory for,
    which it takes when it begins a gather; predicted and observed."""

    wrapping: Fsdp2Wrapping
    order: Order
    predicted: Timeline
    found: Ran
    dilation: float
    gathered_bytes: tuple[float, float]
    is_timed: bool

    @property
    def measured_s(self) -> float:
        """The median step."""
        return statistics.median(self.found.steps_s) / self.dilation

    @property
    def is_in_order(self) -> bool:
        """Whether all ranks had the collectives of the order, each on its networks, in each step."""
        bounds = {(group.first, group.last): number for number, group in enumerate(self.wrapping.groups)}
        wanted = [
            (bounds[each.first, each.last], each.kind == Kind.SCATTER, tuple(network for network, _, _ in parts))
            for each, parts in zip(self.order.collectives, self.predicted.parts, strict=True)
        ]
        return self.found.is_same and wanted == [each.which for each in self.found.collectives]

    @property
    def emulated_s(self) -> float:
        """When the last collective was through in emulated time, which no machine makes later."""
        return max(each.end_s for each in self.found.collectives) / self.dilation

    @property
    def is_as_planned(self) -> bool:
        """Whether order, bits and, where instants are the plan's, these and memory are what they must be."""
        planned, observed = self.gathered_bytes
        is_within = abs(observed - planned) <= _ROUNDING * planned and self._is_on_time
        return self.is_in_order and self.found.equal == self.found.gradients and (is_within or not self.is_timed)

    @property
    def _is_on_time(self) -> bool:
        ends_s = zip(self.found.collectives, self.predicted.end_s, strict=True)
        most_s = _ROUNDING * self.predicted.step_s
        return all(abs(each.end_s / self.dilation - end_s) <= most_s for each, end_s in ends_s)

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        return {
            "name": self.found.name,
            "groups": [[group.first, group.last] for group in self.wrapping.groups],
            "predicted_s": self.predicted.step_s,
            "emulated_s": self.emulated_s,
            "measured_s": self.measured_s,
            "steps_s": [step_s / self.dilation for step_s in self.found.steps_s],
            "late_s": self.found.late_s / self.dilation,
            "in_order": self.is_in_order,
            "gathered_bytes": {"predicted": self.gathered_bytes[0], "observed": self.gathered_bytes[1]},
            "equal": self.found.equal,
            "gradients": self.found.gradients,
        }


def execute(question: RunQuestion, session: Session) -> Answer:
    """What ran, what it took, and whether gradients, order and memory are the plan's. Needs the extra `torch`."""
    plan, report = plan_to_run(question.plan, "fsdp")
    if not report.valid:
        return not_run(report)
    if question.dilation > 1 and question.emulate != "step":
        raise InputError("dilation: goes with emulate step, since what is real can't be slowed down")
    costs, wrapping = costs_of(plan, question.plan), wrapping_of_plan(plan, question.plan)
    ranks = int(plan.problem["ranks"])
    if costs.inner is not None and (ranks, wrapping.ranks_per_node) != (_NODES * _RANKS_PER_NODE, _RANKS_PER_NODE):
        rule = f"two networks are emulated between and inside {_NODES} nodes of {_RANKS_PER_NODE} ranks"
        raise InputError(f"plan: {rule}, got {ranks} ranks in nodes of {wrapping.ranks_per_node}; {_REMEDY}")
    wrappings = {"plan": wrapping, **_each_alone(costs, wrapping)}
    rows = _run(question, session, costs, wrappings, ranks)
    is_valid = all(row.is_as_planned for row in rows)
    data = {
        "ranks": ranks, "emulated": question.emulate, "valid": is_valid, "rows": [row.data for row in rows]
    }  # fmt: skip
    return Answer(data, _text(rows, question, ranks), _notes(rows), is_valid=is_valid)


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    """Where the emulated wire isn't what was measured."""
    return tuple(
        f"{row.found.name}: collectives were through {format_seconds(row.found.late_s / row.dilation)} after the "
        "emulated wire; take --emulate step with a larger --dilation, or a quieter machine"
        for row in rows
        if row.found.late_s > _LATE * row.dilation * row.predicted.step_s
    )


def _each_alone(costs: Costs, wrapping: Fsdp2Wrapping) -> dict[str, Fsdp2Wrapping]:
    """FSDP2 with each layer a module of its own, in the plan's precisions: by name, as it may be sharded."""
    own = {layer: group for group in wrapping.groups for layer in range(group.first, group.last + 1)}
    wrappings = {}
    for name in ("fsdp2", "secondary", "hybrid"):
        order = BUILDERS[name](costs)
        if order is None:
            continue
        collectives = tuple(
            replace(each, precision=own[each.first].scatter if each.kind == Kind.SCATTER else own[each.first].gather)
            for each in order.collectives
        )
        decision = ShardedDecision(wrapping.layer_names, collectives, order.holds)
        wrappings[name] = wrapping_of(
            decision, replace(costs, memory_bytes=math.inf), wrapping.profile, wrapping.ranks_per_node
        )
    return wrappings


def _run(
    question: RunQuestion, session: Session, costs: Costs, wrappings: dict[str, Fsdp2Wrapping], ranks: int
) -> list[Row]:
    from gapless.torch.fsdp.comparison import RunTask, compare

    session.say(f"running {len(wrappings)} wrappings in {ranks} processes ...")
    is_timed, dilation = question.emulate == "step", question.dilation
    passes_s = zip((dilation * costs.forward_s).tolist(), (dilation * costs.backward_s).tolist(), strict=True)
    task = RunTask(
        model=question.model,
        seed=session.options.seed,
        ranks=ranks,
        strategies=tuple(_strategy(name, costs, wrapping, dilation) for name, wrapping in wrappings.items()),
        passes_s=tuple(passes_s) if is_timed else (),
        repeats=question.repeats,
        wait_s=question.wait,
        ranks_per_node=1 if costs.inner is None else _RANKS_PER_NODE,
    )
    found = compare(task, session.options.stop)
    return [
        row_of(costs, wrapping, ran, dilation, is_timed)
        for wrapping, ran in zip(wrappings.values(), found, strict=True)
    ]


def _strategy(name: str, costs: Costs, wrapping: Fsdp2Wrapping, dilation: float) -> Strategy:
    from gapless.torch.fsdp.comparison import Strategy

    durations_s = []
    for group in wrapping.groups:
        in_node = group.sharding == "hybrid"
        gather = Collective(Kind.FORWARD, group.first, group.last, precision=group.gather)
        scatter = Collective(Kind.SCATTER, group.first, group.last, precision=group.scatter, in_node=in_node)
        gathered, scattered = (
            tuple((network, dilation * part_s) for network, part_s in costs.parts_s(each)) for each in (gather, scatter)
        )
        durations_s.append((gathered, scattered))
    return Strategy(name, wrapping, tuple(durations_s))


def row_of(costs: Costs, wrapping: Fsdp2Wrapping, found: Ran, dilation: float, is_timed: bool) -> Row:
    """What ran of a wrapping, held against FSDP2's order of it."""
    order = order_of(wrapping)
    no_state = replace(costs.without_gradients(), replicas=replace(costs.replicas, bytes=0.0))
    predicted, gathers = timeline(costs, order), timeline(no_state, order)
    assert predicted is not None, "FSDP2 gathers by itself what a pass needs"
    assert gathers is not None, "it is the same order"
    changes = _changes(costs, order, wrapping, found.collectives)
    return Row(wrapping, order, predicted, found, dilation, (gathers.peak_bytes, peak_of(sorted(changes))), is_timed)


def _changes(
    costs: Costs, order: Order, wrapping: Fsdp2Wrapping, collectives: Sequence[Gathered]
) -> Iterator[Change]:  # fmt: skip
    """Bytes that FSDP2 took and freed of gathered parameters, and of shares of a node from a group's first gather until
    its last is freed."""
    shares = costs.secondary_bytes(order.collectives)
    gathers = [each for each in collectives if not each.is_scatter]
    for group, bounds in enumerate(wrapping.groups):
        own = [each for each in gathers if each.group == group]
        size = costs.between(bounds.first, bounds.last) * costs.gathered_bytes
        share = sum(shares.get(layer, 0.0) for layer in range(bounds.first, bounds.last + 1))
        for number, each in enumerate(own):
            yield min(each.issued_s, each.start_s), size + (share if number == 0 else 0.0)
            yield each.released_s, -size - (share if number == len(own) - 1 else 0.0)


def _text(rows: Sequence[Row], question: RunQuestion, ranks: int) -> str:
    lines = [f"{'':<9} {'groups':>6} {'predicted':>10} {'measured':>10} {'ratio':>6} {'gathered':>9} {'observed':>9}"]
    for row in rows:
        gathered, observed = (format_bytes(int(size)) for size in row.gathered_bytes)
        order = "in order" if row.is_in_order else "in another order"
        equal = f"{row.found.equal} of {row.found.gradients} gradients bit-equal"
        lines.append(
            f"{row.found.name:<9} {len(row.wrapping.groups):>6} {format_seconds(row.predicted.step_s):>10} "
            f"{format_seconds(row.measured_s):>10} {row.measured_s / row.predicted.step_s:>6.3f} {gathered:>9} "
            f"{observed:>9}  {order}, {equal}"
        )
    how = {"wire": "the wire is emulated, passes are real", "step": "wire and passes are emulated"}[question.emulate]
    slower = f", {question.dilation:g} times as slow" if question.dilation > 1 else ""
    lines.append(f"{question.repeats} steps of each in turns, {ranks} processes; {how}{slower}")
    return "\n".join(lines)
