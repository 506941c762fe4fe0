"""Run a TACCL-EF program on numpy buffers as the device would, and compare the result with the collective.

Covered: the order of steps, queues of bounded size, dependencies, all step types with sum as the reduction, buffers
that alias in place, reads of what nobody wrote, data races. Not covered: sizes (the pieces into which a step of several
chunks may be cut only matter for deadlock, see `slots=0`), the protocols' own timing, and other reductions than sums.
The loop over slices needs no second round: see execute.py for deadlock, races.py for data.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.collective import Collective
from gapless.errors import InputError
from gapless.io.taccl_ef.columns import columns_of, rounds_of
from gapless.io.taccl_ef.execute import execute
from gapless.io.taccl_ef.flat import Flat, flatten
from gapless.io.taccl_ef.memory import Memory
from gapless.io.taccl_ef.program import (
    BUFFERS,
    READS_SOURCE,
    WRITES,
    Gpu,
    Problem,
    Program,
)
from gapless.io.taccl_ef.races import race_problems
from gapless.io.taccl_ef.replay import replay
from gapless.io.taccl_ef.runtimes import EXECUTOR
from gapless.io.taccl_ef.structure import SHAPELESS, structure_problems

__all__ = ["Outcome", "run"]


@dataclass(frozen=True)
class Outcome:
    """What a run found.

    `problems`: rules `deadlock`, `deadlock-cycle`, `wrong-chunk`, `missing-chunk`, `unwritten-read`, `race`,
    `cnt-mismatch`. `steps_run` of `step_count` steps were executed. `placements`: those that were run. Results and
    races are only judged where the program ran to its end.
    """

    problems: tuple[Problem, ...]
    steps_run: int
    step_count: int
    placements: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """Whether the program ended, with the right result, without races."""
        return not self.problems

    @property
    def is_deadlocked(self) -> bool:
        """Whether steps were left that can never run."""
        return self.steps_run < self.step_count


def run(
    program: Program,
    collective: Collective,
    slots: int = 1,
    in_place: bool | None = None,
    order: int | None = None,
    flat: Flat | None = None,
) -> Outcome:
    """Execute the program and judge the result.

    `slots`: messages that a connection holds (Simple holds 2 chunks, LL and LL128 8; 0: a send waits for its receive,
    the worst case of long messages). `in_place`: whether input and output are one memory; None runs every placement
    that the program claims. `order`: seed of a random interleaving, None for a fixed one; with no race found the result
    is the same for all. A chunk that several ranks have in their inputs is to be summed over them.
    `flat`: the program's flat form, where it has passed `verify`.

    Raises `InputError` where the program has no defined meaning (`verify` lists why) or does not fit the collective.
    """
    if slots < 0:
        raise InputError(f"slots: must be >= 0, got {slots}")
    flat = _well_formed(program) if flat is None else flat
    columns = columns_of(flat)
    parts = _parts(program, collective)
    execution = execute(flat, columns, program.nchannels, slots, order)
    placements = [flag for flag, claimed in ((False, program.outofplace), (True, program.inplace)) if claimed]
    problems = list(execution.problems)
    is_complete = len(execution.trace) == len(flat.steps)
    sizes = [
        (len(collective.inputs[gpu.id]) * parts, len(collective.outputs[gpu.id]) * parts, gpu.s_chunks)
        for gpu in sorted(program.gpus, key=lambda gpu: gpu.id)
    ]
    wanted = placements if in_place is None else [in_place]
    rounds = rounds_of(flat, columns)
    for flag in wanted if is_complete else ():
        memory = Memory(sizes, flag)
        problems += replay(flat, columns, rounds, memory)
        problems += memory.wrong_chunks(collective, parts)
        problems += race_problems(flat, columns, execution.trace, memory)
    return Outcome(
        problems=tuple(dict.fromkeys(problems)),
        steps_run=len(execution.trace),
        step_count=len(flat.steps),
        placements=tuple("in-place" if flag else "out-of-place" for flag in wanted),
    )


def _well_formed(program: Program) -> Flat:
    for problem in structure_problems(program, (EXECUTOR,)):
        if problem.rule in SHAPELESS:
            raise InputError(f"taccl-ef {program.name!r}: can't be run: {problem}")
    flat, problems = flatten(program)
    if problems:
        raise InputError(f"taccl-ef {program.name!r}: can't be run: {problems[0]}")
    return flat


def _parts(program: Program, collective: Collective) -> int:
    """Into how many parts (of the program's chunks) each chunk of the collective is cut."""
    if program.ngpus != collective.rank_count:
        raise InputError(f"taccl-ef: ngpus must be the collective's {collective.rank_count}, got {program.ngpus}")
    longest = max(len(buffer) for buffer in (*collective.inputs, *collective.outputs))
    if program.nchunksperloop % longest:
        message = f"must be a multiple of the {longest} chunks of the larger buffer, got {program.nchunksperloop}"
        raise InputError(f"taccl-ef: nchunksperloop {message}")
    parts = program.nchunksperloop // longest
    for gpu in program.gpus:
        used = _used_chunks(gpu)
        for title, count, buffers in (("i", gpu.i_chunks, collective.inputs), ("o", gpu.o_chunks, collective.outputs)):
            # A custom program declares both buffers as the larger one, and may use a part.
            needed = used[title] if program.coll == "custom" else count
            if needed > len(buffers[gpu.id]) * parts:
                message = f"must be at most {len(buffers[gpu.id]) * parts} for this collective, got {needed}"
                raise InputError(f"taccl-ef: gpu {gpu.id}: {title}_chunks {message}")
    return parts


def _used_chunks(gpu: Gpu) -> dict[str, int]:
    """By buffer, the chunks up to the last one that a step reads or writes."""
    used = dict.fromkeys(BUFFERS, 0)
    for block in gpu.threadblocks:
        for step in block.steps:
            if step.type in READS_SOURCE:
                used[step.srcbuf] = max(used[step.srcbuf], step.srcoff + step.cnt)
            if step.type in WRITES:
                used[step.dstbuf] = max(used[step.dstbuf], step.dstoff + step.cnt)
    return used
