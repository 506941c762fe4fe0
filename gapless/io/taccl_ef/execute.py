"""Run a TACCL-EF program on numpy buffers as the device would, and compare the result with the collective.

Covered: the order of steps, queues of bounded size, dependencies, all step types with sum as the reduction, buffers
that alias in place, reads of what nobody wrote, data races. Not covered: sizes (the pieces into which a step of several
chunks may be cut only matter for deadlock, see `slots=0`), the protocols' own timing, and other reductions than sums.

What runs when does not depend on the data, so it is a walk over steps alone. Every thread block is a process. A
connection is a queue of messages: a send waits while it is full, a receive while it is empty. Since each queue has one
writer and one reader and a dependency never comes undone, whether the program gets stuck does not depend on the order
in which ready blocks are taken; where a connection holds at least one message, it follows from what waits for what,
which flat.py has as arrays. The same holds for the runtimes' loop over slices: running slice after slice is one of the
possible orders, so a program that ends once ends for any number of slices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.errors import InputError
from gapless.io.taccl_ef.flat import Columns, Flags, Flat, columns_of, flatten, rounds_of
from gapless.io.taccl_ef.memory import Memory, race_problems, replay
from gapless.io.taccl_ef.program import (
    BUFFERS,
    EXECUTOR,
    READS_SOURCE,
    RECEIVING,
    WRITES,
    Gpu,
    Problem,
    Program,
)
from gapless.io.taccl_ef.verify import SHAPELESS, structure_problems
from gapless.ir.collective import Collective

__all__ = ["Execution", "Outcome", "execute", "run"]


SHOWN = 8
"""Steps of a cycle that a message names."""
_LONGEST = 1000
"""Of random interleavings: how long steps take, so that any order that waits allow may come out."""


@dataclass(frozen=True)
class Execution:
    """The flat numbers of the steps in the order in which they ran, and one problem for each block that is stuck."""

    trace: list[int]
    problems: tuple[Problem, ...]


def execute(flat: Flat, columns: Columns, nchannels: int, slots: int, order: int | None) -> Execution:
    """Run to the end, or until nothing moves.

    `slots`: messages that a connection holds. With 0 a send starts only when the other side stands at the receive: the
    worst that cutting a step of several chunks into pieces can do. Connections on channels from `nchannels` on are
    never set up. `order`: None takes the blocks in turn, each as far as it goes; a number seeds a random interleaving.
    """
    lasts = None if order is None else np.random.default_rng(order).integers(1, _LONGEST, len(flat.steps))
    rounds = rounds_of(flat, columns, slots, _never(flat, columns, nchannels), lasts)
    ran = np.flatnonzero(rounds)
    trace = ran[np.argsort(rounds[ran], kind="stable")].tolist()
    if len(trace) == len(flat.steps):
        return Execution(trace, ())
    return Execution(trace, tuple(_Standstill.of(flat, columns, rounds > 0, nchannels, slots).problems()))


def _never(flat: Flat, columns: Columns, nchannels: int) -> Flags:
    """Steps that wait for what never signals, or send where nothing is set up."""
    awaited = np.array(flat.awaited, dtype=np.int64)
    signals = np.array([step.hasdep for step in flat.steps])
    is_set_up = np.array([channel < nchannels for _, _, channel in flat.connections] or [True])
    sends_in_vain = columns.sends & ~is_set_up[np.array(flat.outgoing, dtype=np.int64)[columns.block]]
    never: Flags = sends_in_vain | ((awaited >= 0) & ~signals[awaited]) | (columns.receives & (columns.sent_by < 0))
    return never


@dataclass(frozen=True)
class _Standstill:
    """Where blocks stand once nothing moves: `at[b]`, the next step of block b; what is `in_flight` by connection."""

    flat: Flat
    done: Flags
    at: list[int]
    in_flight: list[int]
    nchannels: int
    slots: int

    @classmethod
    def of(cls, flat: Flat, columns: Columns, done: Flags, nchannels: int, slots: int) -> _Standstill:
        """`done`: the steps that ran."""
        steps = np.bincount(columns.block[done], minlength=len(flat.place))
        count = len(flat.connections)
        sent, received = (
            np.bincount(np.array(ends, dtype=np.int64)[columns.block[flags & done]], minlength=count)
            for ends, flags in ((flat.outgoing, columns.sends), (flat.incoming, columns.receives))
        )
        at = (np.array(flat.first[:-1], dtype=np.int64) + steps).tolist()
        return cls(flat, done, at, (sent - received).tolist(), nchannels, slots)

    def obstacle(self, block: int) -> tuple[str, int]:
        """Why the block's next step can't run, and the block that it waits for (-1 for none)."""
        flat, number = self.flat, self.at[block]
        step, target = flat.steps[number], flat.awaited[number]
        if target >= 0 and not (self.done[target] and flat.steps[target].hasdep):
            silent = "" if flat.steps[target].hasdep else ", which signals no one (hasdep is 0)"
            return f"waits for {flat.name(target)}{silent}", flat.owner[target]
        connection = flat.incoming[block]
        if step.type in RECEIVING and not self.in_flight[connection]:
            return self.reason("to receive from", connection, 0), flat.sender[connection]
        connection = flat.outgoing[block]
        receiver = flat.receiver[connection] if self.is_set_up(connection) else -1
        return self.reason("to send to", connection, 1), receiver

    def is_set_up(self, connection: int) -> bool:
        return self.flat.connections[connection][2] < self.nchannels

    def reason(self, action: str, connection: int, side: int) -> str:
        ends = self.flat.connections[connection]
        unset = "" if self.is_set_up(connection) else ", which nchannels leaves out"
        return f"waits {action} gpu {ends[side]} on chan {ends[2]}{unset}"

    def problems(self) -> list[Problem]:
        """A problem for each block that has steps left, and one for a cycle among them."""
        flat, problems, target = self.flat, list[Problem](), dict[int, int]()
        for block in range(len(flat.place)):
            if self.at[block] < flat.first[block + 1]:
                reason, target[block] = self.obstacle(block)
                problems.append(Problem("deadlock", f"{reason} for ever", *flat.where(self.at[block])))
        seen: dict[int, int] = {}
        for start in target:
            path: list[int] = []
            at = start
            while at in target and at not in seen:
                seen[at] = start
                path.append(at)
                at = target[at]
            if seen.get(at) == start and at in path:
                cycle = path[path.index(at) :]
                names = [flat.name(self.at[block]) for block in cycle[:SHOWN]] + ["..."] * (len(cycle) > SHOWN)
                message = f"{len(cycle)} blocks wait for each other: {' <- '.join(names)}"
                problems.append(Problem("deadlock-cycle", message, *flat.where(self.at[cycle[0]])))
                break
        return problems


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
