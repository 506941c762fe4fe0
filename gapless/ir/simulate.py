"""Simulate: the earliest times at which the events of a schedule can happen in their order, also under other costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.checker.program import Program, read_program
from gapless.checker.report import Findings
from gapless.checker.timeline import RELATIVE_TOLERANCE, Timeline, logical_time, tolerance_s
from gapless.errors import InputError, must_be
from gapless.ir.schedule import Schedule
from gapless.topologies.topology import Topology

__all__ = ["retime"]


def retime(
    schedule: Schedule, topology: Topology | None = None, size_bytes: NDArray[np.int64] | None = None
) -> Schedule:
    """The same events in the same order and grouping, each as early as possible; rows come in order of their ends.

    Each event takes what graph and topology say and starts as soon as what it waits for is over: earlier events on its
    link, engine and resources, writes of what it reads, earlier reads and writes of what it writes or overwrites.
    It ends no sooner than earlier readers and writers of what it frees (and starts no sooner than those of them that
    take no time: at one instant, frees come before what only happens there). The order is the schedule's own, so a
    schedule that replays clean stays clean; memory is no part of the order and may peak higher. A schedule whose times
    only number the events (0, 1, 2, ...) will do.

    `topology` replaces the schedule's, with the same devices, engines and links at other costs and resources;
    `size_bytes`, int64 of shape (tensors,), replaces the graph's. Raises `InputError` where they do not fit, or where
    an event names an unknown thing.
    """
    must_be("schedule", isinstance(schedule, Schedule), "a Schedule", schedule)
    if schedule.switch_ops is not None:
        raise InputError("retime: a schedule must have no operations of switches, their steps keep to their times")
    target = _with_costs(schedule, topology, size_bytes)
    findings = Findings()
    program = read_program(target, findings)
    if findings.violations:
        raise InputError(f"schedule: {findings.violations[0].message}")
    timeline = logical_time(program.start_s, program.end_s, program.tolerance_s)
    order = np.argsort(timeline.end)
    start_s = _earliest(program, timeline)
    end_s = start_s + program.least_s
    # The rows of one instant must follow the old order: first as it was, then as the new times have it.
    listing = order[np.argsort(end_s[order], kind="stable")]
    again = logical_time(start_s[listing], end_s[listing], tolerance_s(end_s))
    listing = listing[np.argsort(again.end)]
    return replace(
        target,
        kind=target.kind[listing],
        start_s=start_s[listing],
        end_s=end_s[listing],
        place=target.place[listing],
        op=target.op[listing],
        implementation=target.implementation[listing],
        reduces=target.reduces[listing],
        moves=target.moves.take(listing),
        freed_tensor=target.freed_tensor.take(listing),
        freed_device=target.freed_device.take(listing),
    )


def _with_costs(schedule: Schedule, topology: Topology | None, size_bytes: NDArray[np.int64] | None) -> Schedule:
    """The schedule on another topology and with other sizes, at its old times."""
    if topology is not None:
        old = schedule.topology
        if topology.device_count != old.device_count:
            raise InputError(f"retime: topology must have {old.device_count} devices, got {topology.device_count}")
        if topology.engines != old.engines:
            raise InputError(f"retime: topology must have the engines {old.engines}, got {topology.engines}")
        same_sources = np.array_equal(old.link_source, topology.link_source)
        if not (same_sources and np.array_equal(old.link_target, topology.link_target)):
            raise InputError(
                f"retime: topology must have the same {len(old.links)} links with the same ends, "
                f"got {len(topology.links)} links"
            )
        schedule = replace(schedule, topology=topology)
    if size_bytes is not None:
        if len(size_bytes) != schedule.graph.tensor_count:
            raise InputError(
                f"retime: size_bytes must have {schedule.graph.tensor_count} elements, got {len(size_bytes)}"
            )
        schedule = replace(schedule, graph=replace(schedule.graph, size_bytes=size_bytes))
    return schedule


def _earliest(program: Program, timeline: Timeline) -> NDArray[np.float64]:
    """Earliest start of each event, float of shape (n,), visiting ends and frees in their old order.

    Everything that an event waits for ended before it ended, so one pass settles it. Only where an event frees what
    another that ended with it, but is listed later, uses must it be put off and the pass be repeated.
    """
    freeing = np.unique(program.frees.event)
    steps = np.append(np.arange(len(program.numbers)), ~freeing)
    order = np.argsort(np.append(timeline.end, timeline.free[freeing]))
    work = _Work.of(program, steps[order].tolist())
    floor_s = [0.0] * len(program.numbers)
    for _ in range(len(freeing) + 1):
        starts, late = work.replay(floor_s)
        if not late:
            return np.array(starts, dtype=np.float64)
        for event, start in late:
            floor_s[event] = max(floor_s[event], start)
    number = int(program.numbers[late[0][0]])
    raise InputError(
        f"retime: event {number} frees what another uses that ends with it, takes no time now, and waits for its end: "
        "free the tensor in a later event"
    )


@dataclass(frozen=True)
class _Work:
    """What each event waits for and moves on, as clocks in lists (CSR): Python's own are the fastest in a loop.

    A clock is the time until which something is taken: a resource; a copy's last write, its last use, and its last use
    by an event that takes no time (less than the checker distinguishes from none). An event starts after the clocks in
    `waits`, ends after those in `frees`, and moves those in `holds` on to its end. `steps`: event e ends (e), or frees
    (~e), in this order.
    """

    steps: list[int]
    least_s: list[float]
    slack_s: float
    clocks: int
    wait_start: list[int]
    waits: list[int]
    hold_start: list[int]
    holds: list[int]
    free_start: list[int]
    frees: list[int]

    @classmethod
    def of(cls, program: Program, steps: list[int]) -> _Work:
        reads, writes, frees, kills = rows = (program.reads, program.writes, program.frees, program.overwrites)
        copies, dense = np.unique(np.concatenate([part.copy for part in rows]), return_inverse=True)
        cuts = np.cumsum([len(part.copy) for part in rows])[:-1]
        taken = int(program.holds.copy.max(initial=-1)) + 1
        read, written, freed, killed = (taken + 3 * part for part in np.split(dense, cuts))
        resources = (program.holds.event, program.holds.copy)
        waits = [resources, (reads.event, read), (writes.event, written + 1), (kills.event, killed + 1)]
        waits.append((frees.event, freed + 2))
        holds = [resources, (writes.event, written), (reads.event, read + 1), (writes.event, written + 1)]
        slack_s = RELATIVE_TOLERANCE * float(program.least_s.sum())
        for part, clock in ((reads, read), (writes, written)):
            at_once = program.least_s[part.event] <= slack_s
            holds.append((part.event[at_once], clock[at_once] + 2))
        count, clocks = len(program.numbers), taken + 3 * len(copies)
        lists = [_by_event(part, count) for part in (waits, holds, [(frees.event, freed + 1)])]
        return cls(steps, program.least_s.tolist(), slack_s, clocks, *(column for part in lists for column in part))

    def replay(self, floor_s: list[float]) -> tuple[list[float], list[tuple[int, float]]]:
        """One pass: each event's start, not before its floor; and the events that must start later, with when."""
        clock = [0.0] * self.clocks
        starts, late = list(floor_s), []
        for step in self.steps:
            event = step if step >= 0 else ~step
            start, least = starts[event], self.least_s[event]
            frees = self.frees[self.free_start[event] : self.free_start[event + 1]]
            if step < 0:
                # A copy's last use is followed by the clock of its last use by what takes no time.
                needed = max(max(clock[slot] - least, clock[slot + 1]) for slot in frees)
                if needed > start + self.slack_s:
                    late.append((event, needed))
                holds = frees
            else:
                for slot in self.waits[self.wait_start[event] : self.wait_start[event + 1]]:
                    if clock[slot] > start:
                        start = clock[slot]
                for slot in frees:
                    if clock[slot] - least > start:
                        start = clock[slot] - least
                starts[event] = start
                holds = self.holds[self.hold_start[event] : self.hold_start[event + 1]]
            end = start + least
            for slot in holds:
                if clock[slot] < end:
                    clock[slot] = end
        return starts, late


def _by_event(parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]], count: int) -> tuple[list[int], list[int]]:
    """(event, value) pairs as lists of values per event, in CSR: where each event's begin, and the values."""
    event = np.concatenate([events for events, _ in parts])
    value = np.concatenate([values for _, values in parts])
    start = np.append(0, np.cumsum(np.bincount(event, minlength=count)))
    return start.tolist(), value[np.argsort(event, kind="stable")].tolist()
