"""Copies: which tensor is where, since when, in which version; reads, kills and overlaps checked by exact positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gapless.checker.program import Program
from gapless.checker.report import Findings, Rule, Violation
from gapless.checker.timeline import Timeline

__all__ = ["Carried", "CopyLog", "check_access", "check_reads", "copy_log"]

# What happens to a copy, in the order in which one event does it at one position.
READ, OVERWRITE, BEGIN, END, FREE = range(5)
ACTION_BITS = 3

BLOCK = 2**18
"""Entries of a log that are worked on at once: their arrays stay in the cache and in memory that is used again."""


@dataclass(frozen=True)
class CopyLog:
    """All that happens to copies, sorted by copy, then position, then action; m entries.

    `entry`: int64, shape (m,), copy, position and action packed into one number; with `position_bits` they unpack.
    `action`: int8, shape (m,): READ, OVERWRITE, BEGIN, END or FREE. `version`: int64, shape (m,): the entry that wrote
    the version that is there after each entry, -1 where there is none. `order`: int64, shape (m,): the row that each
    entry was; rows are the initial copies, reads, overwrites, write starts, write ends, frees and what is carried over
    from earlier windows, and `rows` says where each group begins. `judged`: the positions, from..to, that rules look
    at; what lies before was judged in an earlier window, what lies behind will be in a later one.
    """

    entry: NDArray[np.int64]
    action: NDArray[np.int8]
    position_bits: int
    version: NDArray[np.int64]
    order: NDArray[np.int64]
    rows: tuple[int, ...]
    judged: tuple[int, int]

    def are_judged(self, entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which entries rules look at."""
        position, (low, high) = self.position_of(entries), self.judged
        return np.asarray((low <= position) & (position <= high))

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """The entry that each row became, int64, shape (m,)."""
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(rank))
        return rank

    def blocks(self) -> Iterator[slice]:
        """The log in pieces of about `BLOCK` entries that hold all entries of their copies."""
        cuts = np.arange(BLOCK, len(self.entry), BLOCK)
        lower, _ = self.bounds(self.copy_of(cuts))
        bounds = np.unique([0, *lower.tolist(), len(self.entry)]).tolist()
        return (slice(begin, stop) for begin, stop in pairwise(bounds))

    def copy_of(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The copy of some entries."""
        return np.asarray(self.entry[entries] >> (ACTION_BITS + self.position_bits))

    def position_of(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The position of some entries."""
        return np.asarray((self.entry[entries] >> ACTION_BITS) & ((1 << self.position_bits) - 1))

    def bounds(self, copies: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the entries of each copy begin and end in the log."""
        shift = ACTION_BITS + self.position_bits
        return np.searchsorted(self.entry, copies << shift), np.searchsorted(self.entry, (copies + 1) << shift)

    def version_after(self, copies: NDArray[np.int64], position: int) -> NDArray[np.int64]:
        """The entry that wrote what each copy holds after a position, -1 where it is not there."""
        if not len(self.entry):
            return np.full(len(copies), -1)
        packed = ((copies << self.position_bits) | position) + 1
        entry = np.searchsorted(self.entry, packed << ACTION_BITS) - 1
        found = (entry >= 0) & (self.copy_of(entry) == copies)
        return np.where(found, self.version[entry], -1)


@dataclass(frozen=True)
class Carried:
    """What events of earlier windows still do to copies, int64 each: `action[k]` by `event[k]` to `copy[k]`."""

    copy: NDArray[np.int64]
    event: NDArray[np.int64]
    action: NDArray[np.int64]


_NONE = Carried(*(np.empty(0, dtype=np.int64) for _ in range(3)))


def copy_log(
    program: Program, timeline: Timeline, initial: NDArray[np.int64], carried: Carried = _NONE,
    judged: tuple[int, int] | None = None,
) -> CopyLog:  # fmt: skip
    """Sorts all reads, writes, overwrites and frees into one log, and finds the version at each entry.

    `initial`: the copies that are there before the first event, at position 0. `judged`: as in the log, all if None.
    """
    reads, writes = program.reads, program.writes
    groups: list[tuple[NDArray[np.int64], NDArray[np.int64], int | NDArray[np.int64]]] = [
        (initial, np.zeros(len(initial), dtype=np.int64), END),
        (reads.copy, timeline.start[reads.event], READ),
        (program.overwrites.copy, timeline.start[program.overwrites.event], OVERWRITE),
        (writes.copy, timeline.start[writes.event], BEGIN),
        (writes.copy, timeline.end[writes.event], END),
        (program.frees.copy, timeline.free[program.frees.event], FREE),
        (carried.copy, _moments(timeline, carried), carried.action),
    ]
    bits = len(timeline.event_at).bit_length()
    rows = np.cumsum([0, *(len(copies) for copies, _, _ in groups)]).tolist()
    entry = np.empty(rows[-1], dtype=np.int64)
    for (begin, stop), (copies, position, code) in zip(pairwise(rows), groups, strict=True):
        entry[begin:stop] = (((copies << bits) | position) << ACTION_BITS) | code
    # Stable: of initial copies listed twice, the last counts.
    order = np.argsort(entry, kind="stable")
    entry = entry[order]
    action = (entry & ((1 << ACTION_BITS) - 1)).astype(np.int8)
    judged = judged or (0, len(timeline.event_at))
    log = CopyLog(entry, action, bits, np.empty_like(entry), order, tuple(rows[:-1]), judged)
    for block in log.blocks():
        log.version[block] = _versions(entry[block] >> (ACTION_BITS + bits), action[block], block.start)
    return log


def _moments(timeline: Timeline, carried: Carried) -> NDArray[np.int64]:
    """The positions at which events of earlier windows do what they do."""
    positions = np.stack([timeline.start, timeline.start, timeline.start, timeline.end, timeline.free])
    return np.asarray(positions[carried.action, carried.event])


def _versions(copy: NDArray[np.int64], action: NDArray[np.int8], start: int) -> NDArray[np.int64]:
    """The entry that wrote what is there after each entry of a block that starts at entry `start`, or -1."""
    index = np.arange(start, start + len(copy))
    first = np.append(True, copy[1:] != copy[:-1])
    # A version is there if it was written after the last kill; what lies before a copy's first entry is another copy's.
    version = np.maximum.accumulate(np.where(action == END, index, -1))
    barrier = np.where((action == OVERWRITE) | (action == FREE), index, np.where(first, index - 1, -1))
    return np.where(version > np.maximum.accumulate(barrier), version, -1)


def check_reads(program: Program, timeline: Timeline, log: CopyLog, findings: Findings) -> None:
    """Every copy that is read, freed or overwritten is there, and was there when the event started."""
    action = log.action
    bad = np.flatnonzero((action == READ) & (log.version < 0))
    bad = bad[log.are_judged(bad)]
    event = timeline.event_at[log.position_of(bad)]
    lower, upper = log.bounds(log.copy_of(bad))
    # With no write before the read, one by another event at any later time makes the read late, not baseless. Writes by
    # the reader itself all end together: one of the first and the last write is another's, or none is.
    ends = np.flatnonzero(action == END)
    first, last = np.searchsorted(ends, lower), np.searchsorted(ends, upper) - 1
    late = (first <= last) & (np.searchsorted(ends, bad) == first)
    by_others = np.zeros(len(bad), dtype=np.bool_)
    for write in (first, last):
        by_others[late] |= timeline.event_at[log.position_of(ends[write[late]])] != event[late]
    late &= by_others
    _report(program, log, findings, Rule.INPUT_LATE, bad[late], event[late], "reads {}, which is not there yet")
    _report(program, log, findings, Rule.INPUT_MISSING, bad[~late], event[~late], "reads {}, which is not there")

    # An overwritten copy is also read, and reported there.
    freed = np.flatnonzero(action == FREE)
    freed = freed[log.are_judged(freed)]
    before = np.where(freed > 0, log.version[freed - 1], -1)
    there = (before >= 0) & (log.copy_of(np.maximum(before, 0)) == log.copy_of(freed))
    absent = freed[~there]
    event = timeline.event_at[log.position_of(absent)]
    _report(program, log, findings, Rule.INPUT_MISSING, absent, event, "frees {}, which is not there")


def _report(
    program: Program,
    log: CopyLog,
    findings: Findings,
    rule: Rule,
    entries: NDArray[np.int64],
    events: NDArray[np.int64],
    text: str,
) -> None:
    def explain(k: int) -> Violation:
        copy = int(log.copy_of(entries[k : k + 1])[0])
        return program.violation(rule, int(events[k]), copy, text.format(program.copy_name(copy)))

    findings.add(rule, len(entries), explain)


def check_access(program: Program, timeline: Timeline, log: CopyLog, findings: Findings) -> None:
    """No copy is written, freed or overwritten while another event still reads or writes it."""
    mask = (1 << log.position_bits) - 1
    # How long an event uses its copies from its start on; at its other positions it starts nothing.
    span = np.zeros(len(timeline.event_at), dtype=np.int64)
    span[timeline.start] = timeline.end - timeline.start
    found = []
    for block in log.blocks():
        moment = log.entry[block] >> ACTION_BITS
        bad, until = _overlaps(moment, moment + span[moment & mask], log.action[block], log.version[block] >= 0)
        found.append((block.start + bad, timeline.event_at[until & mask]))
    if not found:
        return
    entries, others = (np.concatenate(parts) for parts in zip(*found, strict=True))
    judged = log.are_judged(entries)
    entries, others = entries[judged], others[judged]
    events = timeline.event_at[log.position_of(entries)]
    words = {READ: "reads", OVERWRITE: "overwrites", BEGIN: "writes", FREE: "frees"}

    def explain(k: int) -> Violation:
        copy, other = int(log.copy_of(entries[k : k + 1])[0]), program.number(int(others[k]))
        text = f"{words[int(log.action[entries[k]])]} {program.copy_name(copy)} while event {other} still uses it"
        return program.violation(Rule.NOT_FREE, int(events[k]), copy, text)

    findings.add(Rule.NOT_FREE, len(entries), explain)


def _overlaps(
    moment: NDArray[np.int64], lasts: NDArray[np.int64], action: NDArray[np.int8], there: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The entries of a block that change a copy in use, or read one in change; and until when it is.

    `moment`: copy and position of each entry, packed; `lasts`: until when its event uses the copy, packed likewise;
    `there`: whether the copy is there (a read of one that is not breaks another rule).
    """
    # Entries of one moment belong to one event: it is compared with what was in use before that moment.
    first = np.append(True, moment[1:] != moment[:-1])
    begins = np.maximum.accumulate(np.where(first, np.arange(len(moment)), 0))
    used = np.append(0, np.maximum.accumulate(lasts))[begins]
    written = np.append(0, np.maximum.accumulate(np.where(action == BEGIN, lasts, 0)))[begins]
    changing = (action == BEGIN) | (action == OVERWRITE) | (action == FREE)
    until = np.where(changing, used, np.where((action == READ) & there, written, 0))
    bad = np.flatnonzero(until > moment)
    return bad, until[bad]
