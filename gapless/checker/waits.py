"""Why each event of a schedule starts when it does, and which chain of events the makespan is the length of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gapless.checker.program import Program, Rows

__all__ = ["Reason", "Waits", "waits"]


class Reason(IntEnum):
    """What an event waits for: nothing, as it starts at once; what it reads; what it holds; or the plan, which lets it
    start later than its inputs and its resources would.
    """

    NOTHING = 0
    INPUT = 1
    RESOURCE = 2
    PLAN = 3


@dataclass(frozen=True)
class Waits:
    """Of the n replayed events, in their order.

    `cause`: int64, shape (n,): the event whose end is the latest that the event had to wait for, -1 for none. `reason`:
    int8, shape (n,), of `Reason`. `idle_s`: how much later than that it starts. `is_critical`: bool, shape (n,): on the
    chain of causes of the event that ends last.
    """

    cause: NDArray[np.int64]
    reason: NDArray[np.int8]
    idle_s: NDArray[np.float64]
    is_critical: NDArray[np.bool_]


def waits(program: Program) -> Waits:
    """Look at every event of a program: at what it reads and what it holds."""
    start_s, end_s = program.start_s, program.end_s
    inputs, resources = _writer_before(program), _holder_before(program)
    none_s = np.append(end_s, -np.inf)  # -1 is the last entry
    is_input = none_s[inputs] >= none_s[resources]
    cause = np.where(is_input, inputs, resources)
    free_s = np.maximum(none_s[cause], 0.0)
    idle_s = np.where(start_s - free_s > program.tolerance_s, start_s - free_s, 0.0)
    reason = np.where(is_input, Reason.INPUT, Reason.RESOURCE)
    reason = np.where(cause < 0, Reason.NOTHING, reason)
    reason = np.where(idle_s > 0.0, Reason.PLAN, reason).astype(np.int8)
    if program.leader is not None:  # transfers of one operation of a switch wait together
        cause, reason, idle_s = cause[program.leader], reason[program.leader], idle_s[program.leader]
    return Waits(cause, reason, idle_s, _chain(cause, end_s))


def _chain(cause: NDArray[np.int64], end_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The event that ends last, its cause, and so on."""
    is_critical = np.zeros(len(cause), dtype=bool)
    event = int(end_s.argmax()) if len(end_s) else -1
    while event >= 0 and not is_critical[event]:
        is_critical[event] = True
        event = int(cause[event])
    return is_critical


def _writer_before(program: Program) -> NDArray[np.int64]:
    """For each event the one that was the last to write a copy that it reads, -1 for none."""
    written, read = program.writes, program.reads
    return _latest_before(
        program, Rows(written.event, written.copy), Rows(read.event, read.copy), program.start_s[read.event]
    )


def _holder_before(program: Program) -> NDArray[np.int64]:
    """For each event the last one that held a resource that it holds, -1 for none."""
    holds = program.holds
    return _latest_before(program, holds, holds, program.start_s[holds.event])


def _latest_before(
    program: Program, done: Rows, wanted: Rows, when_s: NDArray[np.float64]
) -> NDArray[np.int64]:  # fmt: skip
    """For each event the one among `done` with the latest end, among those of its `wanted` things that end by then."""
    count = len(program.start_s)
    found = np.full(count, -1)
    if not len(done.event) or not len(wanted.event):
        return found
    ends_s = program.end_s[done.event]
    # Times as ranks: a thing and a rank make one whole number, in which a search finds both at once.
    times, rank = np.unique(np.concatenate([ends_s, when_s + program.tolerance_s]), return_inverse=True)
    done_key = done.copy * len(times) + rank[: len(ends_s)]
    order = np.argsort(done_key, kind="stable")
    slot = np.searchsorted(done_key[order], wanted.copy * len(times) + rank[len(ends_s) :], side="right") - 1
    before = order[np.maximum(slot, 0)]
    fits = (slot >= 0) & (done.copy[before] == wanted.copy) & (done.event[before] != wanted.event)
    reader, writer = wanted.event[fits], done.event[before[fits]]
    latest = np.lexsort((program.end_s[writer], reader))  # the last of each reader wins
    found[reader[latest]] = writer[latest]
    return found
