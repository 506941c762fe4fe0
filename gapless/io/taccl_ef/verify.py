"""Check a TACCL-EF program against the rules of the runtimes, without running it.

The runtimes' parsers check little, and differ in what: many of these mistakes load and then hang, crash or give wrong
data. `verify` finds everything that can be seen from the elements, the dependencies and the order of sends and
receives; `run` (interpret.py) finds wrong data, races, and what hangs for want of buffer slots.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gapless.errors import InputError
from gapless.io.taccl_ef.columns import columns_of, rounds_of
from gapless.io.taccl_ef.flat import Flat, flatten
from gapless.io.taccl_ef.program import MAX_DEPENDENCY_BLOCK, Problem, Program, Step
from gapless.io.taccl_ef.runtimes import MAX_SCRATCH_BYTES, RUNTIMES, allocation_problems
from gapless.io.taccl_ef.structure import SHAPELESS, structure_problems

__all__ = ["examine", "verify"]

SHOWN = 8
"""Steps of a cycle that a message names."""


def verify(
    program: Program, runtime: str = "both", sm_count: int | None = None, max_scratch_bytes: int = MAX_SCRATCH_BYTES
) -> list[Problem]:
    """Every broken rule, or an empty list.

    `runtime`: `executor`, `original` or `both` (the narrower of each limit). `sm_count`: multiprocessors of the GPU, if
    known: more blocks than that can't run at the same time, and the program hangs. `max_scratch_bytes`: what a runtime
    may allocate on a GPU. Where numbers, types, peers or offsets are wrong, only those are reported, because the rest
    has no meaning without them.

    Raises `InputError` for an unknown runtime.
    """
    return examine(program, runtime, sm_count, max_scratch_bytes)[0]


def examine(
    program: Program, runtime: str, sm_count: int | None, max_scratch_bytes: int
) -> tuple[list[Problem], Flat | None]:
    """What `verify` finds, and the flat form of a program that has one."""
    if runtime not in RUNTIMES:
        raise InputError(f"runtime: must be one of {', '.join(RUNTIMES)}, got {runtime!r}")
    problems = list(structure_problems(program, RUNTIMES[runtime]))
    problems += allocation_problems(program, RUNTIMES[runtime], max_scratch_bytes)
    for gpu in program.gpus:
        if sm_count is not None and len(gpu.threadblocks) > sm_count:
            message = f"all thread blocks must run at once on {sm_count} multiprocessors, got {len(gpu.threadblocks)}"
            problems.append(Problem("co-residency", message, gpu.id))
    if any(problem.rule in SHAPELESS for problem in problems):
        return problems, None
    flat, found = flatten(program)
    problems += found
    problems += _connections(flat)
    problems += _dependencies(flat)
    problems += _nops(flat)
    problems += _fusions(flat)
    problems += _cycle(flat)
    return problems, flat


def _connections(flat: Flat) -> Iterator[Problem]:
    """Both sides of a connection exist, and the k-th send meets a k-th receive of the same cnt."""
    for number, (source, target, channel) in enumerate(flat.connections):
        triple = f"(sender {source}, receiver {target}, chan {channel})"
        if flat.receiver[number] < 0:
            yield Problem("peer-side", f"no block of gpu {target} receives {triple}", *flat.place[flat.sender[number]])
            continue
        if flat.sender[number] < 0:
            yield Problem("peer-side", f"no block of gpu {source} sends {triple}", *flat.place[flat.receiver[number]])
            continue
        sent, received = flat.transfers(number)
        for k, (one, other) in enumerate(zip(sent, received, strict=False)):
            if flat.steps[one].cnt != flat.steps[other].cnt:
                counts = f"cnt {flat.steps[other].cnt}, its send at {flat.name(one)} {flat.steps[one].cnt}"
                yield Problem("cnt-mismatch", f"receive {k} of {triple} has {counts}", *flat.where(other))
        if len(sent) != len(received):
            message = f"{triple} has {len(sent)} sends and {len(received)} receives"
            longer = sent if len(sent) > len(received) else received
            yield Problem("send-receive", message, *flat.where(longer[min(len(sent), len(received))]))


def _dependencies(flat: Flat) -> Iterator[Problem]:
    """A dependency names a real step of another block below the int8 limit, and that step says hasdep."""
    for number, target in enumerate(flat.awaited):
        if target < 0:
            continue
        where, block = flat.where(number), flat.place[flat.owner[target]][1]
        if flat.owner[number] == flat.owner[target]:
            yield Problem("dep-own-block", f"must not depend on its own block, got {flat.name(target)}", *where)
            continue
        if flat.steps[target].type == "nop":
            yield Problem("dep-nop", f"must not depend on a nop, got {flat.name(target)}", *where)
        elif not flat.steps[target].hasdep:
            yield Problem("dep-hasdep", f"hasdep must be 1, {flat.name(number)} waits for it", *flat.where(target))
        if block > MAX_DEPENDENCY_BLOCK:
            yield Problem("dep-limit", f"depid must be at most {MAX_DEPENDENCY_BLOCK} (int8), got {block}", *where)


def _nops(flat: Flat) -> Iterator[Problem]:
    """A nop carries a dependency, and a real step with a dependency of its own ends each chain of them.

    The parser hands the dependencies of nops to the next real step and refuses one that has none itself. The device
    counts the dependencies to number the steps: a nop without one shifts all later numbers.
    """
    before = -1
    for number, step in enumerate(flat.steps):
        where, block = flat.where(number), flat.owner[number]
        chained = before >= 0 and flat.owner[before] == block and flat.steps[before].type == "nop"
        if step.type == "nop":
            if step.depid < 0:
                yield Problem("nop-dep", "a nop must carry a dependency", *where)
            if number + 1 == flat.first[block + 1]:
                yield Problem("nop-chain", "a nop must not end a block: no step takes over its dependency", *where)
        elif chained and step.depid < 0:
            yield Problem("nop-chain", "the step after nops must carry a dependency itself", *where)
        before = number


def _fusions(flat: Flat) -> Iterator[Problem]:
    """Consecutive `re` steps that the parser fuses into one have one cnt: it keeps only the last."""
    for number, step in enumerate(flat.steps):
        head = flat.steps[number - 1]
        if number > flat.first[flat.owner[number]] and _fuses(head, step) and step.cnt != head.cnt:
            message = f"is fused with the re before it, cnt must be {head.cnt}, got {step.cnt}"
            yield Problem("re-fusion", message, *flat.where(number))


def _fuses(head: Step, step: Step) -> bool:
    places = (head.dstbuf, head.dstoff, head.srcbuf) == (step.dstbuf, step.dstoff, step.srcbuf)
    return head.type == step.type == "re" and places and step.depid == -1 and not head.hasdep


def _cycle(flat: Flat) -> Iterator[Problem]:
    """Program order, dependencies and messages have no cycle; one that stays in a GPU is named `dep-cycle`."""
    columns = columns_of(flat)
    stuck = set(np.flatnonzero(rounds_of(flat, columns) == 0).tolist())
    if not stuck:
        return
    waits: dict[int, list[int]] = {}
    for number in stuck:
        before = number - 1 if number > flat.first[flat.owner[number]] else -1
        waits[number] = [each for each in (before, flat.awaited[number], int(columns.sent_by[number])) if each >= 0]
    # Each stuck step waits for another stuck one, so following them must come round.
    path: dict[int, int] = {}
    at = min(stuck)
    while at not in path:
        path[at] = len(path)
        at = next(other for other in waits[at] if other in stuck)
    cycle = list(path)[path[at] :]
    turns = [number for k, number in enumerate(cycle) if flat.owner[number] != flat.owner[cycle[k - 1]]]
    names = [flat.name(number) for number in turns[:SHOWN]] + ["..."] * (len(turns) > SHOWN)
    rule = "dep-cycle" if len({flat.where(number)[0] for number in cycle}) == 1 else "order-cycle"
    message = f"{len(stuck)} steps can never run; they wait for each other: {' <- '.join(names)}"
    yield Problem(rule, message, *flat.where(cycle[0]))
