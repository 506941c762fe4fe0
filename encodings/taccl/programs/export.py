"""TACCL plans as TACCL-EF XML or MSCCL++ plans: lowered, verified, and executed before they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gapless.collective import Collective
from gapless.errors import GaplessError, InputError
from gapless.io import mscclpp
from gapless.io.atomic import write_text
from gapless.io.collective_file import collective_of
from gapless.io.taccl_ef import RUNTIMES, Program, lower, run, write_program
from gapless.schedule import Schedule

__all__ = ["collective_of", "to_program", "write_mscclpp", "write_taccl_ef"]


_OTHER = "custom"
"""What the runtimes call a collective that they have no name for."""


def to_program(schedule: Schedule, collective: Collective, **how: Any) -> Program:
    """Lower a clean schedule (`how` goes to `lower`) and execute the program with 1 and 8 messages in flight.

    Raises `InputError` where a limit of the runtime is exceeded, `GaplessError` if the execution finds a fault.
    """
    known = collective if collective.name in RUNTIMES["both"].collectives else replace(collective, name=_OTHER)
    named = {**how, "name": how.get("name") or f"{collective.name}_{collective.rank_count}"}
    program = lower(schedule, known, **named)
    for slots in (1, 8):
        outcome = run(program, collective, slots=slots)
        if not outcome.is_ok:
            raise GaplessError(f"taccl-ef: the lowered program fails its execution: {outcome.problems[0]}")
    return program


def write_taccl_ef(path: Path | str, schedule: Schedule, description: Mapping[str, Any], **how: Any) -> Program:
    """Write the XML of a plan, whole or not at all; returns the program."""
    program = to_program(schedule, _described(schedule, description), **how)
    write_program(path, program)
    return program


def write_mscclpp(path: Path | str, schedule: Schedule, description: Mapping[str, Any], **how: Any) -> mscclpp.Plan:
    """Write the MSCCL++ plan of a plan, whole or not at all, once its text was read back and executed.

    Raises `InputError` for what is not covered, `GaplessError` if the execution finds a fault.
    """
    text = mscclpp.plan_text(mscclpp.lower(schedule, _described(schedule, description), **how))
    plan = mscclpp.parse_plan(text, str(path))
    problems = mscclpp.judge(plan).problems
    if problems:
        raise GaplessError(f"mscclpp: the lowered plan fails its execution: {problems[0]}")
    write_text(Path(path), text)
    return plan


def _described(schedule: Schedule, description: Mapping[str, Any]) -> Collective:
    collective = collective_of(description, "plan")
    if collective.chunk_count != schedule.graph.tensor_count:
        raise InputError(
            f"plan: problem: {collective.name} over {collective.rank_count} ranks has {collective.chunk_count} chunks, "
            f"the schedule has {schedule.graph.tensor_count}"
        )
    return collective
