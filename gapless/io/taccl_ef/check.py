"""Judge a TACCL-EF program, anybody's: its rules, then its execution against the collective that it claims to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.io.taccl_ef.execute import Outcome, run
from gapless.io.taccl_ef.program import MAX_SCRATCH_BYTES, RECEIVING, SENDING, Problem, Program, runtime_for
from gapless.io.taccl_ef.verify import verify
from gapless.ir.collective import COLLECTIVES, ROOTED, Collective, collective_by_name, sendrecv

__all__ = ["Verdict", "judge"]

SLOTS = (1, 8)
"""Messages that a connection holds when a program is executed: the least that there can be, and the most."""
CAPACITY = {"Simple": 2, "LL": 8, "LL128": 8}
"""Messages that a connection holds in the runtimes, by protocol."""
MOST_ROOTS = 8
"""Ranks that are tried as the root where several look like it."""
RESULT_RULES = ("wrong-chunk", "missing-chunk")


@dataclass(frozen=True)
class Verdict:
    """What is known of a program.

    `collective`: what its result was compared with, None where that is unknown. `root`: its root, None where it has
    none. `executed`: whether it was run, as it is where it breaks no rule. `warnings`: what doesn't make it wrong.
    """

    program: Program
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    executed: bool = False
    collective: Collective | None = None
    root: int | None = None

    @property
    def is_valid(self) -> bool:
        """Whether no fault was found; `summary` says what was compared."""
        return not self.problems

    def summary(self) -> str:
        """One line: the collective, the ranks, and the verdict."""
        program = self.program
        what = program.coll
        if self.collective is not None and self.collective.name != what.replace("_", ""):
            what += f" (it does {self.collective.name})"
        if self.root is not None:
            what += f" with root {self.root}"
        line = f"{what} on {program.ngpus} GPUs"
        if self.problems:
            count = len(self.problems)
            return f"{line}: {count} fault{'s' * (count > 1)}" + ("" if self.executed else ", not executed")
        placements = ("out of place",) * program.outofplace + ("in place",) * program.inplace
        how = f"executed {' and '.join(placements)} with {' and '.join(map(str, SLOTS))} messages in flight"
        if self.collective is None:
            return f"{line}: well-formed, no deadlock, no race; its result can't be judged, {how}"
        return f"{line}: valid, {how}"


def judge(
    program: Program,
    runtime: str | None = None,
    *,
    collective: str | None = None,
    root: int | None = None,
    warnings: tuple[str, ...] = (),
    max_scratch_bytes: int = MAX_SCRATCH_BYTES,
) -> Verdict:
    """Verify the program, and execute it with 1 and 8 messages in flight in every placement that it claims.

    `runtime`: who must take the program, None for those who know its `coll`. `collective`, `root`: what it should do,
    None to go by its `coll` and by who sends more than it receives. A program called `custom` is compared with every
    collective; where none fits, only deadlocks, races and reads of nothing are looked for. `warnings` are those of the
    reader. A program that needs two messages in flight, as the protocols allow, is warned of and not refused.
    `max_scratch_bytes`: what a runtime may allocate on a GPU.

    Raises `InputError` for an unknown runtime or collective, or a root that the collective can't have.
    """
    runtime = runtime or runtime_for(program.coll)
    found = verify(program, runtime, max_scratch_bytes=max_scratch_bytes)
    channels = 1 + max((block.chan for gpu in program.gpus for block in gpu.threadblocks), default=0)
    if not found and program.nchannels > channels:
        warnings += (f"nchannels is {program.nchannels}, the program uses {channels}: the others are idle",)
    if collective is not None and collective not in COLLECTIVES:
        raise InputError(f"collective: must be one of {', '.join(sorted(COLLECTIVES))}, got {collective!r}")
    if found:
        return Verdict(program, tuple(found), warnings)
    first: Verdict | None = None
    for wanted, wanted_root in _candidates(program, collective, root):
        problems, notes = _execute(program, wanted)
        verdict = Verdict(program, problems, warnings + notes, True, wanted, wanted_root)
        if verdict.is_valid:
            return verdict
        first = first or verdict
    if first is not None and (collective or program.coll != "custom"):
        return first
    problems, notes = _execute(program, _anything(program), ignored=RESULT_RULES)
    return Verdict(program, problems, warnings + notes, executed=True)


def _candidates(program: Program, name: str | None, root: int | None) -> Iterator[tuple[Collective, int | None]]:
    """The collectives that the program may be meant as, the likeliest first."""
    title = name or program.coll.replace("reduce_scatter", "reducescatter")
    for each in sorted(COLLECTIVES) if title == "custom" else [title] if title in COLLECTIVES else []:
        if each in ROOTED:
            for rank in _roots(program, each) if root is None else [root]:
                yield _collective(program, each, rank), rank
        elif root is not None and title != "custom":
            raise InputError(f"root: must be left out, {each} has none; got {root}")
        else:
            yield _collective(program, each, None), None


def _collective(program: Program, name: str, root: int | None) -> Collective:
    """With as few chunks as the collective needs; the interpreter cuts them into those of the program."""
    if name == "allreduce":
        whole = ((0,),) * program.ngpus
        return Collective(name, program.ngpus, 1, whole, whole, reduces=True)
    if name == "sendrecv" and root is not None:
        surplus = _surplus(program)
        target = min((rank for rank in range(program.ngpus) if rank != root), key=surplus.__getitem__)
        return sendrecv(program.ngpus, 1, root, target)
    return collective_by_name(name, program.ngpus, 1, root)


def _surplus(program: Program) -> list[int]:
    """By rank, chunks sent less chunks received."""
    surplus = [0] * program.ngpus
    for gpu in program.gpus:
        for block in gpu.threadblocks:
            for step in block.steps:
                surplus[gpu.id] += step.cnt * ((step.type in SENDING) - (step.type in RECEIVING))
    return surplus


def _roots(program: Program, name: str) -> list[int]:
    """The ranks that may be the root: those that send out most, or take in most where it collects."""
    surplus = _surplus(program)
    most = min(surplus) if name in ("reduce", "gather") else max(surplus)
    return [rank for rank, count in enumerate(surplus) if count == most][:MOST_ROOTS]


def _anything(program: Program) -> Collective:
    """A collective with buffers of the right size, for programs whose result nobody knows."""
    own = tuple((rank,) for rank in range(program.ngpus))
    return Collective("custom", program.ngpus, 1, own, own)


def _execute(
    program: Program, collective: Collective, ignored: tuple[str, ...] = ()
) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """What is wrong with the execution for any number of messages in flight, and what is only worth a warning."""
    if program.coll == "custom" and program.inplace and not program.outofplace:
        # A custom program is called by its number: no runtime compares the call's buffers with what it claims.
        problems, notes = _execute_claimed(program, collective, ignored)
        apart, other_notes = _execute_claimed(replace(program, inplace=False, outofplace=True), collective, ignored)
        if problems and not apart:
            claim = f"claims to work in place and does only out of place: call it with two buffers ({problems[0]})"
            return (), (claim, *other_notes)
        return problems, notes
    return _execute_claimed(program, collective, ignored)


def _execute_claimed(
    program: Program, collective: Collective, ignored: tuple[str, ...]
) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """The same, in the placements that the program claims."""
    try:
        outcomes = [run(program, collective, slots=slots) for slots in SLOTS]
        if outcomes[0].is_deadlocked and not outcomes[1].is_deadlocked:
            found, notes = _at_capacity(program, collective, outcomes)
        else:
            found, notes = tuple(dict.fromkeys(each for outcome in outcomes for each in outcome.problems)), ()
    except InputError as error:
        return (Problem("chunk-count", str(error).removeprefix("taccl-ef: ")),), ()
    return tuple(each for each in found if each.rule not in ignored), notes


def _at_capacity(
    program: Program, collective: Collective, outcomes: list[Outcome]
) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """The verdict on a program that gets stuck with one message in flight and not with eight."""
    capacity = CAPACITY.get(program.proto, min(CAPACITY.values()))
    enough = next(slots for slots in range(2, SLOTS[1] + 1) if not run(program, collective, slots=slots).is_deadlocked)
    if enough <= capacity:
        note = f"needs {enough} messages in flight on a connection: {program.proto} holds {capacity}, no less will do"
        return outcomes[1].problems, (note,)
    reason = f"needs {enough} messages in flight on a connection, {program.proto} holds {capacity}"
    stuck = next(problem for problem in outcomes[0].problems if problem.rule == "deadlock")
    return (replace(stuck, message=f"{reason}: {stuck.message}"), *outcomes[1].problems), ()
