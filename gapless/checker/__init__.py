"""The checker: replays a schedule on a fresh state, event by event, and trusts no number of the solver."""

from __future__ import annotations

import numpy as np

from gapless.checker.contributions import check_required, replay_contributions
from gapless.checker.copies import check_access, check_reads
from gapless.checker.program import Program
from gapless.checker.replay import Replay, replayed
from gapless.checker.report import BusyTime, Findings, Report, Rule, Violation
from gapless.checker.resources import check_budgets, check_durations, check_memory, check_resources, energy_of
from gapless.errors import must_be
from gapless.ir.graph import Placement
from gapless.ir.schedule import Schedule

__all__ = ["BusyTime", "Replay", "Report", "Rule", "Violation", "check", "judged", "replayed"]


def check(schedule: Schedule) -> Report:
    """Replays a schedule and reports makespan, energy, memory, busy times and every broken rule.

    Times closer than 1e-9 of the makespan are the same instant. At an instant, what ends ends first, then its frees
    happen, then what starts starts in listed order; an event of no duration ends before the next one starts.
    Events that name unknown things are reported and left out. Raises nothing, whatever the schedule's numbers;
    `InputError` for what is no schedule.
    """
    must_be("schedule", isinstance(schedule, Schedule), "a Schedule", schedule)
    return judged(replayed(schedule))


def judged(replay: Replay) -> Report:
    """As `check`, for a schedule whose replay is there already."""
    program, timeline, log, findings = replay.program, replay.timeline, replay.log, replay.new_findings()
    check_durations(program, findings)
    busy_s = check_resources(program, timeline, findings)
    initial = program.placed(program.graph.initial)
    _report_unknown_devices(program, findings)
    known = initial >= 0
    check_reads(program, timeline, log, findings)
    check_access(program, timeline, log, findings)
    peak_bytes = check_memory(program, timeline, log, findings)
    sets: list[int] = []
    if program.graph.tracks_contributions:
        held = program.graph.initial.contributions or (0,) * len(initial)
        start = [part for part, there in zip(held, known.tolist(), strict=True) if there]
        sets = replay_contributions(program, timeline, log, start, findings)
    check_required(program, timeline, log, sets, findings)
    spent = check_budgets(program, findings)
    return Report(
        makespan_s=float(program.end_s.max(initial=0.0)),
        peak_bytes=peak_bytes,
        busy_s=busy_s,
        event_count=len(program.schedule),
        energy_j=energy_of(program),
        spent=spent,
        violations=tuple(sorted(findings.violations, key=lambda found: (found.start_s, found.event))),
        violation_counts=findings.counts,
    )


def _report_unknown_devices(program: Program, findings: Findings) -> None:
    """Initial and required copies lie on devices that the topology has; others are left out of the replay."""

    def report(title: str, placement: Placement) -> None:
        bad = np.flatnonzero(placement.devices >= program.device_count)

        def explain(k: int) -> Violation:
            tensor, device = int(placement.tensors[bad[k]]), int(placement.devices[bad[k]])
            text = f"{title} tensor {program.graph.tensor_name(tensor)}: device {device} is not in the topology"
            return Violation(Rule.UNKNOWN_ID, -1, tensor, device, 0.0, 0.0, text)

        findings.add(Rule.UNKNOWN_ID, len(bad), explain)

    report("initial", program.graph.initial)
    report("required", program.graph.required)
