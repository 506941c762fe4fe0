"""Program: what graph and topology say of each event of a schedule, in columns; unknown events are left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

from gapless.checker.report import Findings, Rule, Violation
from gapless.checker.switches import Steps, broken_ops, leaders, steps_of
from gapless.checker.timeline import tolerance_s
from gapless.ir.graph import Graph, Placement
from gapless.ir.schedule import EventKind, Ragged, Schedule
from gapless.topologies.topology import Topology

__all__ = ["Program", "Rows", "known_events", "read_program"]


@dataclass(frozen=True)
class Rows:
    """What events do to copies, int64 each: `event[k]` does it to `copy[k]` = tensor * device_count + device."""

    event: NDArray[np.int64]
    copy: NDArray[np.int64]


@dataclass(frozen=True)
class Program:
    """The n events that are replayed, and what they do.

    `numbers`: their rows in the schedule. `least_s`: the duration that graph and topology ask for. `power_w`: nan where
    unknown, as a transfer's is. `workspace_bytes` and `device` (0 and the target for a transfer). Rows: `sends` and
    `arrivals` are the source and the target side of every tensor that moves, in step with each other; `merges` are the
    target copies that reductions read. `computes` are the events that run an op, `op_reads` and `op_writes` the copies
    they read and write. `holds`: event and resource, where resources are numbered links first, then engines, then the
    topology's named ones. Of a window of a longer run: `first` is the number of its schedule's first event, and the
    first `carried` events of the program are those of earlier windows that go on, which hold what they hold. `leader`:
    of each event the one that stands for its operation of a switch, which does and holds all of it; int64, None where
    there are no such operations. `switch_steps`: what these take and hold.
    """

    schedule: Schedule
    numbers: NDArray[np.int64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    tolerance_s: float
    least_s: NDArray[np.float64]
    power_w: NDArray[np.float64]
    workspace_bytes: NDArray[np.int64]
    device: NDArray[np.int64]
    sends: Rows
    arrivals: Rows
    merges: Rows
    computes: NDArray[np.int64]
    op_reads: Ragged
    op_writes: Ragged
    overwrites: Rows
    frees: Rows
    holds: Rows
    leader: NDArray[np.int64] | None = None
    switch_steps: Steps | None = None
    first: int = 0
    carried: int = 0

    @property
    def graph(self) -> Graph:
        """The schedule's graph."""
        return self.schedule.graph

    @property
    def device_count(self) -> int:
        """The number of devices."""
        return self.schedule.topology.device_count

    @cached_property
    def reads(self) -> Rows:
        """All copies that events read: sends, merges, what ops read, in this order."""
        owner = self.computes[self.op_reads.owner]
        return Rows(
            np.concatenate([self.sends.event, self.merges.event, owner]),
            np.concatenate([self.sends.copy, self.merges.copy, self.op_reads.values]),
        )

    @cached_property
    def writes(self) -> Rows:
        """All copies that events write: arrivals, what ops write, in this order."""
        owner = self.computes[self.op_writes.owner]
        return Rows(
            np.concatenate([self.arrivals.event, owner]), np.concatenate([self.arrivals.copy, self.op_writes.values])
        )

    def placed(self, placement: Placement) -> NDArray[np.int64]:
        """The copies of a placement, -1 for one on a device that the topology does not have."""
        known = placement.devices < self.device_count
        return np.where(known, placement.tensors * self.device_count + placement.devices, -1)

    def violation(self, rule: Rule, event: int, copy: int, text: str) -> Violation:
        """The violation of a replayed event (-1: of none) at a copy (-1: at none), with the text `event ...: text`."""
        tensor, device = divmod(copy, self.device_count) if copy >= 0 else (-1, -1)
        if event < 0:
            makespan_s = float(self.end_s.max(initial=0.0))
            return Violation(rule, -1, tensor, device, makespan_s, makespan_s, text)
        number = self.number(event)
        start_s, end_s = float(self.start_s[event]), float(self.end_s[event])
        return Violation(rule, number, tensor, device, start_s, end_s, f"event {number}{self._what(event)}: {text}")

    def number(self, event: int) -> int:
        """The number of a replayed event in the run."""
        return int(self.numbers[event]) + self.first

    def _what(self, event: int) -> str:
        return " (of an earlier window)" if event < self.carried else described(self.schedule, int(self.numbers[event]))

    def copy_name(self, copy: int) -> str:
        """`tensor a on device 3`."""
        tensor, device = divmod(copy, self.device_count)
        return f"tensor {self.graph.tensor_name(tensor)} on device {device}"


@dataclass(frozen=True)
class _Variants:
    """All implementations of all ops in columns: implementation i of op o is row `first[o] + i`."""

    first: NDArray[np.int64]
    duration_s: NDArray[np.float64]
    power_w: NDArray[np.float64]
    workspace_bytes: NDArray[np.int64]
    reads: Ragged
    writes: Ragged
    overwrites: Ragged


def described(schedule: Schedule, number: int) -> str:
    """` (transfer on link 3->0)`, for messages; the event's numbers may be wild."""
    kind, place, op = int(schedule.kind[number]), int(schedule.place[number]), int(schedule.op[number])
    if kind == EventKind.TRANSFER:
        known = 0 <= place < len(schedule.topology.links)
        return f" (transfer on link {schedule.topology.link_name(place) if known else place})"
    name = schedule.graph.ops[op].name if 0 <= op < len(schedule.graph.ops) else op
    return f" (op {name})"


def read_program(
    schedule: Schedule, findings: Findings, first: int = 0, tolerance: float | None = None
) -> Program:  # fmt: skip
    """What the events of a schedule do; reports events that name unknown things and leaves them out.

    Of a window of a longer run: `first` is the number of its first event, `tolerance` that of the run's times.
    """
    problems, own_tolerance = _problems(schedule, tolerance)
    unknown = np.logical_or.reduce([mask for mask, _ in problems])
    bad = np.flatnonzero(unknown)

    def explain(k: int) -> Violation:
        number = int(bad[k])
        text = next(text for mask, text in problems if mask[number])
        times = float(schedule.start_s[number]), float(schedule.end_s[number])
        text = f"event {number + first}{described(schedule, number)}: {text}"
        return Violation(Rule.UNKNOWN_ID, number + first, -1, -1, *times, text)

    findings.add(Rule.UNKNOWN_ID, len(bad), explain)
    broken = broken_ops(schedule, ~unknown, own_tolerance)

    def explain_broken(k: int) -> Violation:
        number = int(broken[k][0][0])
        text = f"event {number + first}{described(schedule, number)}: {broken[k][1]}"
        times = float(schedule.start_s[number]), float(schedule.end_s[number])
        return Violation(Rule.SWITCH_OP_MALFORMED, number + first, -1, -1, *times, text)

    findings.add(Rule.SWITCH_OP_MALFORMED, len(broken), explain_broken)
    for rows, _ in broken:
        unknown[rows] = True
    return replace(_program(schedule, np.flatnonzero(~unknown), own_tolerance), first=first)


def known_events(schedule: Schedule) -> NDArray[np.int64]:
    """The rows of a schedule that name only what graph and topology have; the replay leaves the others out."""
    problems, tolerance = _problems(schedule)
    known = ~np.logical_or.reduce([mask for mask, _ in problems])
    for rows, _ in broken_ops(schedule, known.copy(), tolerance):
        known[rows] = False
    return np.flatnonzero(known)


def _problems(
    schedule: Schedule, tolerance: float | None = None
) -> tuple[list[tuple[NDArray[np.bool_], str]], float]:  # fmt: skip
    """Each reason to leave events out, with the events that it is for; and the tolerance of times."""
    problems = _unknown_ids(schedule)
    named = ~np.logical_or.reduce([mask for mask, _ in problems])
    tolerance = tolerance_s(schedule.end_s[named]) if tolerance is None else tolerance
    problems += [
        (schedule.start_s < -tolerance, "starts before time 0"),
        (schedule.end_s < schedule.start_s - tolerance, "ends before it starts"),
    ]
    return problems, tolerance


def _unknown_ids(schedule: Schedule) -> list[tuple[NDArray[np.bool_], str]]:
    """Each kind of name for what is not there: the events that do it, and what to say of them."""
    graph, topology = schedule.graph, schedule.topology
    transfer, strange = schedule.is_transfer, ~np.isin(schedule.kind, list(EventKind))
    compute = ~transfer & ~strange
    choices = np.array([len(op.implementations) for op in graph.ops] or [0], dtype=np.int64)
    op = schedule.op
    op_known = _within(op, len(graph.ops))
    choice = choices[np.where(op_known, op, 0)]
    links, engines = len(topology.links), len(topology.engines)
    tensors, devices = graph.tensor_count, topology.device_count
    return [
        (strange, f"kind must be one of {', '.join(str(int(kind)) for kind in EventKind)}"),
        (transfer & ~_within(schedule.place, links), f"its place must be one of the topology's {links} links"),
        (compute & ~_within(schedule.place, engines), f"its place must be one of the topology's {engines} engines"),
        (compute & ~op_known, f"its op must be one of the graph's {len(graph.ops)} ops"),
        (compute & op_known & ~_within(schedule.implementation, choice), "its op has no such implementation"),
        (transfer & (schedule.moves.lengths == 0), "moves no tensor"),
        (transfer & _any_outside(schedule.moves, tensors), f"moves a tensor not among the graph's {tensors}"),
        (_any_outside(schedule.freed_tensor, tensors), f"frees a tensor not among the graph's {tensors}"),
        (_any_outside(schedule.freed_device, devices), f"frees on a device not among the topology's {devices}"),
    ]


def _within(numbers: NDArray[np.int64], count: int | NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray((numbers >= 0) & (numbers < count))


def _any_outside(lists: Ragged, count: int) -> NDArray[np.bool_]:
    """Whether each list holds a number outside 0..count - 1."""
    outside = ~_within(lists.values, count)
    mask = np.zeros(len(lists), dtype=np.bool_)
    mask[np.searchsorted(lists.start, np.flatnonzero(outside), side="right") - 1] = True
    return mask


def _program(schedule: Schedule, numbers: NDArray[np.int64], tolerance: float) -> Program:
    topology = schedule.topology
    place, start_s = schedule.place[numbers], np.maximum(schedule.start_s[numbers], 0.0)
    transfer = schedule.is_transfer[numbers]
    transfers, computes = np.flatnonzero(transfer), np.flatnonzero(~transfer)
    moves = schedule.moves.take(numbers[transfers])
    mover = transfers[moves.owner]
    link = place[mover]
    merging = schedule.reduces[numbers[mover]]
    target = moves.values * topology.device_count + topology.link_target[link]
    device = np.empty(len(numbers), dtype=np.int64)
    device[transfers] = topology.link_target[place[transfers]]
    device[computes] = np.array([number for number, _ in topology.engines], dtype=np.int64)[place[computes]]
    table = _variants(schedule.graph)
    variant = table.first[schedule.op[numbers[computes]]] + schedule.implementation[numbers[computes]]
    least_s = np.empty(len(numbers), dtype=np.float64)
    least_s[transfers] = _transfer_s(schedule, place[transfers], moves)
    least_s[computes] = table.duration_s[variant]
    power_w = np.full(len(numbers), np.nan)
    power_w[computes] = table.power_w[variant]
    workspace = np.zeros(len(numbers), dtype=np.int64)
    workspace[computes] = table.workspace_bytes[variant]
    overwrites = _on_device(table.overwrites.take(variant), device[computes], topology.device_count)
    freed = schedule.freed_tensor.take(numbers)
    freed_device = schedule.freed_device.take(numbers)
    leader, steps = None, None
    holds = _holds(schedule, place, transfers, computes)
    if schedule.switch_ops is not None:
        leader = leaders(schedule, numbers)
        steps = steps_of(schedule, numbers, leader, tolerance)
        mover, least_s = leader[mover], _with_steps(least_s, steps, leader)
        holds = _held_once(holds, steps, leader, topology)
    return Program(
        schedule=schedule,
        numbers=numbers,
        start_s=start_s,
        end_s=np.maximum(schedule.end_s[numbers], start_s),
        tolerance_s=tolerance,
        least_s=least_s,
        power_w=power_w,
        workspace_bytes=workspace,
        device=device,
        sends=Rows(mover, moves.values * topology.device_count + topology.link_source[link]),
        arrivals=Rows(mover, target),
        merges=Rows(mover[merging], target[merging]),
        computes=computes,
        op_reads=_on_device(table.reads.take(variant), device[computes], topology.device_count),
        op_writes=_on_device(table.writes.take(variant), device[computes], topology.device_count),
        overwrites=Rows(computes[overwrites.owner], overwrites.values),
        frees=Rows(freed.owner, freed.values * topology.device_count + freed_device.values),
        holds=holds,
        leader=leader,
        switch_steps=steps,
    )


def _transfer_s(schedule: Schedule, link: NDArray[np.int64], moves: Ragged) -> NDArray[np.float64]:
    """The least duration of each transfer: alpha + beta * the bytes of all that it moves.

    Where the topology has congestion, beta is larger the more links the schedule itself uses through a port.
    """
    topology = schedule.topology
    sent = np.concatenate([[0], np.cumsum(schedule.graph.size_bytes.astype(np.int64)[moves.values])])
    size_bytes = sent[moves.start[1:]] - sent[moves.start[:-1]]
    ops = schedule.switch_ops
    used = link if ops is None else schedule.place[schedule.is_transfer & (ops.of_event < 0)]
    with np.errstate(over="ignore"):
        return np.asarray(topology.alpha_s[link] + topology.slowed_beta_s(used)[link] * size_bytes)


def _on_device(tensors: Ragged, device: NDArray[np.int64], device_count: int) -> Ragged:
    """Lists of tensors as lists of copies, list i on `device[i]`."""
    return Ragged(tensors.start, tensors.values * device_count + np.repeat(device, tensors.lengths))


def _holds(
    schedule: Schedule, place: NDArray[np.int64], transfers: NDArray[np.int64], computes: NDArray[np.int64]
) -> Rows:
    """What each event holds from start to end: its engine, or its link and the link's resources."""
    topology = schedule.topology
    links = len(topology.links)
    base = links + len(topology.engines)
    shared = Ragged(topology.held_start, topology.held).take(place[transfers])
    return Rows(
        np.concatenate([transfers, transfers[shared.owner], computes]),
        np.concatenate([place[transfers], base + shared.values, links + place[computes]]),
    )


def _with_steps(least_s: NDArray[np.float64], steps: Steps, leader: NDArray[np.int64]) -> NDArray[np.float64]:
    """The least durations of all events, those of operations of switches as their steps take."""
    found = least_s.copy()
    found[steps.leader] = steps.least_s[steps.step]
    return np.asarray(found[leader])


def _held_once(rows: Rows, steps: Steps, leader: NDArray[np.int64], topology: Topology) -> Rows:
    """What events hold, that of a step once, by the event that stands for the step."""
    holder = leader.copy()
    holder[steps.leader] = steps.first[steps.step]
    base = len(topology.links) + len(topology.engines)
    event = np.concatenate([holder[leader[rows.event]], steps.held[:, 0]])
    what = np.concatenate([rows.copy, base + steps.held[:, 1]])
    return Rows(*np.unique(np.stack([event, what], axis=1), axis=0).T)


def _variants(graph: Graph) -> _Variants:
    rows = [(op, impl) for op in graph.ops for impl in op.implementations]
    return _Variants(
        first=np.array([0, *accumulate(len(op.implementations) for op in graph.ops)][:-1], dtype=np.int64),
        duration_s=np.array([impl.duration_s for _, impl in rows], dtype=np.float64),
        power_w=np.array([np.nan if impl.power_w is None else impl.power_w for _, impl in rows], dtype=np.float64),
        workspace_bytes=np.array([impl.workspace_bytes for _, impl in rows], dtype=np.int64),
        reads=_distinct([op.inputs if impl.inputs is None else impl.inputs for op, impl in rows]),
        writes=_distinct([op.outputs for op, _ in rows]),
        overwrites=_distinct([impl.overwrites for _, impl in rows]),
    )


def _distinct(lists: list[tuple[int, ...]]) -> Ragged:
    """The lists, each without repetitions: reading a tensor twice is reading it."""
    lists = [part if len(part) < 2 else tuple(dict.fromkeys(part)) for part in lists]
    start = np.array([0, *accumulate(map(len, lists))], dtype=np.int64)
    return Ragged(start, np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(start[-1])))
