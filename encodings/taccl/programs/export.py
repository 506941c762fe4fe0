"""TACCL plans as TACCL-EF XML or MSCCL++ plans: lowered, verified, and executed before they are written."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gapless.collective import Collective
from gapless.errors import GaplessError, InputError
from gapless.io import mscclpp
from gapless.io.collective_file import collective_of
from gapless.io.taccl_ef import (
    MAX_SCRATCH_BYTES,
    RUNTIMES,
    LimitError,
    Program,
    lowered,
    run,
    runtime_for,
    served_placement,
    write_program,
)
from gapless.io.taccl_ef.program import NO_MAX_BYTES
from gapless.schedule import Schedule
from gapless.units import format_bytes

__all__ = ["Written", "collective_of", "to_program", "write_mscclpp", "write_taccl_ef"]


_OTHER = "custom"
"""What the runtimes call a collective that they have no name for."""


def to_program(schedule: Schedule, collective: Collective, **how: Any) -> Program:
    """Lower a clean schedule (`how` goes to `lowered`) and execute the program with one message in flight.

    What ends with one also ends with more: a queue that holds more never makes a block wait. Without races the result
    is the same, too.

    Raises `InputError` where a limit of the runtime is exceeded, `GaplessError` if the execution finds a fault.
    """
    is_known = any(collective.name in each.names for each in RUNTIMES["both"])
    known = collective if is_known else replace(collective, name=_OTHER)
    runtime = how.get("runtime") or runtime_for(known.name)
    named = {
        **how,
        "name": how.get("name") or f"{collective.name}_{collective.rank_count}",
        "runtime": runtime,
        "placement": served_placement(how.get("placement"), collective.name, runtime),
    }
    program, flat = lowered(schedule, known, **named)
    outcome = run(program, collective, slots=1, flat=flat)
    if not outcome.is_ok:
        raise GaplessError(f"taccl-ef: the lowered program fails its execution: {outcome.problems[0]}")
    return program


@dataclass(frozen=True)
class Written:
    """What an export wrote: `instances` of those that were asked for, fewer where `refusal` says why."""

    program: Program
    instances: int
    refusal: str = ""

    def summary(self) -> str:
        """One line."""
        program = self.program
        blocks = max(len(gpu.threadblocks) for gpu in program.gpus)
        size = f"{program.ngpus} GPUs, {program.nchannels} channels, at most {blocks} thread blocks a GPU"
        calls = " and ".join(("out of place",) * program.outofplace + ("in place",) * program.inplace)
        line = f"{program.coll} on {size}, for calls {calls}"
        if program.max_bytes < NO_MAX_BYTES:
            line += f" of up to {format_bytes(program.max_bytes)}"
        if self.refusal:
            line += f"; {self.instances} instances, the most that fit: {self.refusal}"
        return line


def write_taccl_ef(path: Path | str, schedule: Schedule, description: Mapping[str, Any], **how: Any) -> Written:
    """Write the XML of a plan, whole or not at all, with as many of the instances asked for as the runtime takes.

    `per_rank`: one file a rank; `max_scratch`: what the runtime may allocate on a GPU; the others go to `lowered`.
    """
    collective = _described(schedule, description)
    options = {key: value for key, value in how.items() if key not in ("per_rank", "max_scratch", "instances")}
    options["max_scratch_bytes"] = how.get("max_scratch", MAX_SCRATCH_BYTES)
    asked, refusal = how.get("instances", 1), ""
    for instances in range(asked, 0, -1):
        try:
            with _no_collection():
                program = to_program(schedule, collective, instances=instances, **options)
        except LimitError as error:
            refusal = refusal or str(error)
            continue
        write_program(path, program, how.get("per_rank", False))
        return Written(program, instances, refusal)
    raise LimitError(refusal)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the search for garbage: what a lowering makes lives to its end, and a third of its time is the search."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def write_mscclpp(path: Path | str, schedule: Schedule, description: Mapping[str, Any], **how: Any) -> mscclpp.Plan:
    """Write the MSCCL++ plan of a plan, whole or not at all, once it was executed.

    Raises `InputError` for what is not covered, `GaplessError` if the execution finds a fault.
    """
    plan = mscclpp.lower(schedule, _described(schedule, description), **how)
    problems = mscclpp.judge(plan).problems
    if problems:
        raise GaplessError(f"mscclpp: the lowered plan fails its execution: {problems[0]}")
    mscclpp.write_plan(path, plan)
    return plan


def _described(schedule: Schedule, description: Mapping[str, Any]) -> Collective:
    collective = collective_of(description, "plan")
    if collective.chunk_count != schedule.graph.tensor_count:
        raise InputError(
            f"plan: problem: {collective.name} over {collective.rank_count} ranks has {collective.chunk_count} chunks, "
            f"the schedule has {schedule.graph.tensor_count}"
        )
    return collective
