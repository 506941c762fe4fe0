"""Durations, energy, exclusive resources and memory: what an event takes while it runs; budgets: what all spend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gapless.checker.copies import BEGIN, END, READ, CopyLog
from gapless.checker.program import Program
from gapless.checker.report import BusyTime, Findings, Rule, Violation
from gapless.checker.timeline import Timeline
from gapless.model.knapsack import is_within
from gapless.topologies.topology import Topology

__all__ = [
    "check_budgets",
    "check_durations",
    "check_memory",
    "check_resources",
    "energy_of",
    "memory_levels",
    "memory_violation",
    "report_memory",
]


def check_durations(program: Program, findings: Findings) -> None:
    """No event takes less time than graph and topology say."""
    taken_s = program.end_s - program.start_s
    bad = np.flatnonzero(taken_s < program.least_s - program.tolerance_s)

    def explain(k: int) -> Violation:
        event = int(bad[k])
        text = f"takes {taken_s[event]:.9g} s, but needs {program.least_s[event]:.9g} s"
        return program.violation(Rule.DURATION_TOO_SHORT, event, -1, text)

    findings.add(Rule.DURATION_TOO_SHORT, len(bad), explain)


def energy_of(program: Program) -> float | None:
    """Joules: what each event draws, for as long as it runs; None where an event that takes time has no known power.

    Whatever idles draws nothing here.
    """
    taken_s = program.end_s - program.start_s
    running = taken_s > 0
    running[: program.carried] = False
    with np.errstate(over="ignore"):
        used_j = float(program.power_w[running] @ taken_s[running])
    return used_j if np.isfinite(used_j) else None


def check_budgets(program: Program, findings: Findings) -> tuple[float, ...]:
    """No budget of the graph is exceeded: what the implementations that run spend in sum, of what neither time nor
    memory measures. Returns what is spent of each, in the graph's order.
    """
    graph, schedule = program.graph, program.schedule
    if not graph.budgets:
        return ()
    amounts: list[list[float]] = [[] for _ in graph.budgets]
    rows = program.numbers[program.computes]
    for op, implementation in zip(schedule.op[rows].tolist(), schedule.implementation[rows].tolist(), strict=True):
        for budget, amount in graph.ops[op].implementations[implementation].spends:
            amounts[budget].append(amount)
    spent = tuple(math.fsum(each) for each in amounts)
    over = [k for k, budget in enumerate(graph.budgets) if not is_within(spent[k], budget.limit)]

    def explain(k: int) -> Violation:
        budget = graph.budgets[over[k]]
        text = f"budget {budget.name!r}: {spent[over[k]]:.9g} is spent of {budget.limit:.9g}"
        return program.violation(Rule.BUDGET_EXCEEDED, -1, -1, text)

    findings.add(Rule.BUDGET_EXCEEDED, len(over), explain)
    return spent


def check_resources(program: Program, timeline: Timeline, findings: Findings) -> BusyTime:
    """No two events hold a link, an engine or a named resource at once; returns how long each is held."""
    holds, topology = program.holds, program.schedule.topology
    bits = len(timeline.event_at).bit_length()
    taken = (holds.copy << bits) | timeline.start[holds.event]
    order = np.argsort(taken, kind="stable")
    taken, event = taken[order], holds.event[order]
    held_until = np.maximum.accumulate((holds.copy[order] << bits) | timeline.end[event])
    bad = np.flatnonzero(held_until[:-1] > taken[1:]) + 1
    bad = bad[event[bad] >= program.carried]
    links = len(topology.links)
    named = links + len(topology.engines)

    def explain(k: int) -> Violation:
        other = timeline.event_at[held_until[bad[k] - 1] & ((1 << bits) - 1)]
        name = _resource_name(topology, int(taken[bad[k]] >> bits))
        text = f"takes {name} while event {program.number(int(other))} holds it until {program.end_s[other]:.9g} s"
        return program.violation(Rule.RESOURCE_OVERLAP, int(event[bad[k]]), -1, text)

    findings.add(Rule.RESOURCE_OVERLAP, len(bad), explain)
    _check_switches(program, timeline, findings)
    held_s = np.where(holds.event < program.carried, 0.0, (program.end_s - program.start_s)[holds.event])
    busy = np.bincount(holds.copy, weights=held_s, minlength=named + len(topology.resources)).tolist()
    return BusyTime(tuple(busy[:links]), tuple(busy[links:named]), tuple(busy[named:]))


def _check_switches(program: Program, timeline: Timeline, findings: Findings) -> None:
    """No more operations of a switch go on at once than it has slots; no more sets of ranks than it has groups."""
    steps = program.switch_steps
    if steps is None:
        return
    late, strange = list[tuple[int, str]](), list[tuple[int, str]]()
    for which, group in enumerate(program.schedule.topology.switch_groups):
        own = np.flatnonzero(steps.group == which)
        slots, sets = group.reduction.slots, group.reduction.groups
        events = steps.leader[own]
        events = events[np.argsort(timeline.start[events])]
        if slots is not None:
            ended = np.searchsorted(np.sort(timeline.end[events]), timeline.start[events])
            over = events[np.arange(1, len(events) + 1) - ended > slots].tolist()
            late += [(event, f"takes a slot of switch group {which} while all {slots} are held") for event in over]
        used = len({steps.ranks[number] for number in own.tolist()})
        if sets is not None and used > sets:
            strange.append((int(events[0]), f"{used} sets of ranks use switch group {which}, which has {sets}"))
    for rule, found in ((Rule.RESOURCE_OVERLAP, late), (Rule.SWITCH_OP_MALFORMED, strange)):
        findings.add(rule, len(found), partial(_named, program, rule, found))


def _named(program: Program, rule: Rule, found: Sequence[tuple[int, str]], k: int) -> Violation:
    event, text = found[k]
    return program.violation(rule, event, -1, text)


def _resource_name(topology: Topology, number: int) -> str:
    """The name of what `Program.holds` numbers: links, then engines, then named resources."""
    if number < len(topology.links):
        return f"link {topology.link_name(number)}"
    number -= len(topology.links)
    if number < len(topology.engines):
        device, name = topology.engines[number]
        return f"engine {name} of device {device}"
    return f"resource {topology.resources[number - len(topology.engines)]}"


def check_memory(program: Program, timeline: Timeline, log: CopyLog, findings: Findings) -> tuple[int, ...]:
    """No device holds more bytes than it has, at any instant; returns each device's peak."""
    peaks = [0] * program.device_count
    for where, (position, level) in enumerate(memory_levels(program, timeline, log)):
        if not len(level):
            continue
        top = int(level.argmax())
        peaks[where] = max(0, int(level[top]))
        event = int(timeline.event_at[position[top]])
        if peaks[where] > program.schedule.topology.memory_bytes[where]:
            report_memory(findings, memory_violation(program, where, event, peaks[where]))
    return tuple(peaks)


def report_memory(findings: Findings, violation: Violation) -> None:
    """Add what `memory_violation` says to the findings."""
    findings.add(Rule.MEMORY_EXCEEDED, 1, lambda _: violation)


def memory_levels(
    program: Program, timeline: Timeline, log: CopyLog
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For each device the positions at which its live bytes change, ascending, and the bytes from there on; int64."""
    device, position, size_bytes = _allocations(program, timeline, log)
    empty = np.empty(0, dtype=np.int64)
    levels = [(empty, empty)] * program.device_count
    if not len(device):
        return levels
    bits = len(timeline.event_at).bit_length()
    moment = (device << bits) | position
    order = np.argsort(moment, kind="stable")
    moment = moment[order]
    level = np.cumsum(size_bytes[order])
    # What one event does at one position happens at once: only the last level of a moment counts.
    lasts = np.flatnonzero(np.append(np.diff(moment) != 0, True))
    level, moment = level[lasts], moment[lasts]
    first = np.flatnonzero(np.diff(moment >> bits, prepend=-1))
    level -= np.repeat(np.append(0, level[first[1:] - 1]), np.diff(np.append(first, len(level))))
    for begin, stop in zip(first.tolist(), [*first[1:].tolist(), len(level)], strict=True):
        levels[int(moment[begin] >> bits)] = (moment[begin:stop] & ((1 << bits) - 1), level[begin:stop])
    return levels


def memory_violation(program: Program, device: int, event: int, peak: int) -> Violation:
    """That a device holds more than it has, from an event's start on (-1: before the first)."""
    at_s = float(program.start_s[event]) if event >= 0 else 0.0
    capacity = program.schedule.topology.memory_bytes[device]
    text = f"device {device} holds {peak:,} bytes at {at_s:.9g} s, and has {capacity:,.15g}"
    return replace(program.violation(Rule.MEMORY_EXCEEDED, event, -1, text), device=device)


def _allocations(
    program: Program, timeline: Timeline, log: CopyLog
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Device, position and bytes (negative: released) of all allocations, int64 each.

    A copy takes its bytes from the first write on and gives them back when it is freed or overwritten; writing it
    again while it is there changes nothing.
    """
    entries = np.flatnonzero(log.action != READ)
    action = log.action[entries]
    copy = log.copy_of(entries)
    taken = (action == BEGIN) | (action == END)
    before = np.append(False, taken[:-1] & (copy[1:] == copy[:-1]))[: len(taken)]
    changes = np.flatnonzero(taken != before)
    entries, copy, change = entries[changes], copy[changes], np.where(taken[changes], 1, -1)
    tensor, device = np.divmod(copy, program.device_count)
    worked = np.flatnonzero(program.workspace_bytes)
    workspace = program.workspace_bytes[worked]
    return (
        np.concatenate([device, program.device[worked], program.device[worked]]),
        np.concatenate([log.position_of(entries), timeline.start[worked], timeline.end[worked]]),
        np.concatenate([change * program.graph.size_bytes[tensor], workspace, -workspace]),
    )
