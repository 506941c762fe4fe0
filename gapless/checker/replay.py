"""Replay: the events of a schedule in logical time, and what they do to copies; rules and pictures look at it."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.checker.copies import CopyLog, copy_log
from gapless.checker.program import Program, read_program
from gapless.checker.report import Findings
from gapless.checker.timeline import Timeline, logical_time
from gapless.ir.schedule import Schedule

__all__ = ["Replay", "replayed"]


@dataclass(frozen=True)
class Replay:
    """What the events of a schedule do, and when. `unknown`: the events that name unknown things and are left out."""

    program: Program
    timeline: Timeline
    log: CopyLog
    unknown: Findings

    def new_findings(self) -> Findings:
        """The unknown events, for the rules to add to."""
        return Findings(list(self.unknown.violations), dict(self.unknown.counts))


def replayed(schedule: Schedule) -> Replay:
    """The replay of a schedule, which no rule has looked at yet."""
    unknown = Findings()
    program = read_program(schedule, unknown)
    timeline = logical_time(program.start_s, program.end_s, program.tolerance_s)
    initial = program.placed(program.graph.initial)
    return Replay(program, timeline, copy_log(program, timeline, initial[initial >= 0]), unknown)
