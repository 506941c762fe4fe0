"""The buffers of all GPUs while a program is executed: what every step does to them, and which steps race.

They are filled so that whatever goes wrong shows in the result. A data race is two accesses to one chunk, one of them
a write, that nothing orders. What orders steps: their order in a block, dependencies, and a message (its send comes
before its receive). That a full queue made a sender wait is no order: how much a queue holds differs from run to run.
The runtimes' loop over slices adds nothing: all three buffers are addressed by slice, so different slices touch
different elements.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapless.io.taccl_ef.buffers import alias_start
from gapless.io.taccl_ef.flat import Columns, Flat, Numbers, runs
from gapless.io.taccl_ef.program import READS_SOURCE, RECEIVING, SENDING, WRITES, Problem, Step
from gapless.ir.collective import Collective

__all__ = ["ELEMENTS", "AccessLog", "Memory", "Values", "layout", "race_problems", "replay"]

T = TypeVar("T")

Values = NDArray[np.int64]
ELEMENTS = 4
"""Elements of a chunk: the first is the chunk's own number, for names; the others are random, so that sums of other
parts, or chunks at the wrong place, never look right."""
NAMED_CHUNKS = 64
"""Wrong chunks that are looked up one by one; the others are counted."""
RANDOM_BITS = 40
"""So that a sum over thousands of ranks still fits 63 bits."""


class Memory:
    """All GPUs' buffers: `cells[g]` holds the chunks of GPU g, `bases[g]` says where each buffer starts in it.

    `store` is the memory of all GPUs in one, in which that of GPU g starts at `starts[g]`.
    `sizes[g]`: chunks of GPU g's input, output and scratch buffer. `in_place`: whether input and output are one memory.
    """

    def __init__(self, sizes: Sequence[tuple[int, int, int]], in_place: bool) -> None:
        rng = np.random.default_rng(0)
        self.bases = [layout(rank, inputs, outputs, in_place) for rank, (inputs, outputs, _) in enumerate(sizes)]
        totals = [base["s"] + scratch for base, (_, _, scratch) in zip(self.bases, sizes, strict=True)]
        self.starts = np.cumsum([0, *totals])
        self.store: Values = np.zeros((self.starts[-1], ELEMENTS), dtype=np.int64)
        self.store_is_written: NDArray[np.bool_] = np.zeros(self.starts[-1], dtype=np.bool_)
        self.cells: list[Values] = np.split(self.store, self.starts[1:-1])
        self.is_written: list[NDArray[np.bool_]] = np.split(self.store_is_written, self.starts[1:-1])
        self.inputs: list[Values] = []
        start = 1
        for rank, (count, _, _) in enumerate(sizes):
            value = rng.integers(2**RANDOM_BITS, size=(count, ELEMENTS), dtype=np.int64)
            value[:, 0] = np.arange(start, start + count)
            start += count
            mine = slice(self.bases[rank]["i"], self.bases[rank]["i"] + count)
            self.inputs.append(value)
            self.cells[rank][mine] = value
            self.is_written[rank][mine] = True

    def wrong_chunks(self, collective: Collective, parts: int) -> list[Problem]:
        """Every output chunk that is not what the collective says; `parts`: chunks that each of its own is cut into."""
        expected = np.zeros((collective.chunk_count, parts, ELEMENTS), dtype=np.int64)
        for rank, buffer in enumerate(collective.inputs):
            np.add.at(expected, np.array(buffer, dtype=np.intp), self.inputs[rank].reshape(-1, parts, ELEMENTS))
        problems: list[Problem] = []
        unnamed = 0
        for rank, buffer in enumerate(collective.outputs):
            base = self.bases[rank]["o"]
            got = self.cells[rank][base : base + len(buffer) * parts]
            wrong = (got != expected[np.array(buffer, dtype=np.intp)].reshape(-1, ELEMENTS)).any(axis=1)
            for cell in np.flatnonzero(wrong).tolist():
                if len(problems) == NAMED_CHUNKS:
                    unnamed += 1
                    continue
                index, part = divmod(cell, parts)
                name = f"rank {rank} output chunk {index}" + (f" part {part} of {parts}" if parts > 1 else "")
                problems.append(self._wrong(rank, base + cell, name, _holders(collective, buffer[index]), parts))
        if unnamed:
            problems.append(Problem("wrong-chunk", f"{unnamed} more output chunks are wrong"))
        return problems

    def _wrong(self, rank: int, cell: int, name: str, holders: list[str], parts: int) -> Problem:
        wanted = holders[0] if len(holders) == 1 else f"the sum of {', '.join(holders)}"
        if not self.is_written[rank][cell]:
            return Problem("missing-chunk", f"{name}: expected {wanted}, but nothing was written there", rank)
        got = "something else (a mix, or a wrong sum)"
        for other, inputs in enumerate(self.inputs):
            same = np.flatnonzero((inputs == self.cells[rank][cell]).all(axis=1))
            if len(same):
                part = f" part {same[0] % parts}" if parts > 1 else ""
                got = f"rank {other}'s input {same[0] // parts}{part}"
        return Problem("wrong-chunk", f"{name}: expected {wanted}, got {got}", rank)


def _holders(collective: Collective, chunk: int) -> list[str]:
    """The inputs that a chunk is made of."""
    found = enumerate(collective.inputs)
    return [
        f"rank {rank}'s input {index}" for rank, buffer in found for index, each in enumerate(buffer) if each == chunk
    ]


def layout(rank: int, inputs: int, outputs: int, in_place: bool) -> dict[str, int]:
    """Where the buffers start in a GPU's memory, given the chunks of input and output."""
    if not in_place:
        return {"i": 0, "o": inputs, "s": inputs + outputs}
    return {**alias_start(rank, inputs, outputs), "s": max(inputs, outputs)}


def replay(flat: Flat, columns: Columns, rounds: Numbers, memory: Memory) -> list[Problem]:
    """Apply all steps to the memory, round after round; returns reads of nothing, and messages of another count.

    Steps of one round don't wait for each other, so that they may run together; if two of them touch one chunk, they
    race, which `race_problems` finds.
    """
    order = np.argsort(rounds, kind="stable")
    counts = columns.cnt[order]
    step = np.repeat(order, counts)
    k = runs(np.zeros(len(order), dtype=np.int64), counts)
    source, target = (first[step] + k for first in columns.places(memory.bases, memory.starts))
    first_message = np.cumsum(columns.cnt) - columns.cnt
    outgoing = first_message[step] + k
    sent_by = columns.sent_by[step]
    comes = columns.receives[step] & (k < columns.cnt[sent_by])
    incoming = first_message[sent_by] + k
    messages = np.zeros((int(columns.cnt.sum()), ELEMENTS), dtype=np.int64)
    ends = np.searchsorted(rounds[step], np.arange(1, int(rounds.max(initial=0)) + 2))
    reads, adds, writes, sends = (each[step] for each in (columns.reads, columns.adds, columns.writes, columns.sends))
    unwritten: list[tuple[Numbers, bool]] = []
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        value = np.zeros((end - begin, ELEMENTS), dtype=np.int64)
        here = begin + np.flatnonzero(comes[begin:end])
        value[here - begin] = messages[incoming[here]]
        for flags, cells, is_target in ((reads, source, False), (adds, target, True)):
            here = begin + np.flatnonzero(flags[begin:end])
            value[here - begin] += memory.store[cells[here]]
            unwritten.append((step[here[~memory.store_is_written[cells[here]]]], is_target))
        here = begin + np.flatnonzero(writes[begin:end])
        memory.store[target[here]] = value[here - begin]
        memory.store_is_written[target[here]] = True
        here = begin + np.flatnonzero(sends[begin:end])
        messages[outgoing[here]] = value[here - begin]
    problems = [
        _unwritten(flat, number, is_target) for numbers, is_target in unwritten for number in np.unique(numbers)
    ]
    return problems + _mismatches(flat, columns)


def _unwritten(flat: Flat, number: int, is_target: bool) -> Problem:
    step = flat.steps[number]
    name = f"{step.dstbuf}[{step.dstoff}]" if is_target else f"{step.srcbuf}[{step.srcoff}]"
    text = f"reads {step.cnt} chunks from {name} on, where nothing was written before"
    return Problem("unwritten-read", text, *flat.where(number))


def _mismatches(flat: Flat, columns: Columns) -> list[Problem]:
    is_other = columns.receives & (columns.cnt != columns.cnt[columns.sent_by])
    return [
        Problem(
            "cnt-mismatch",
            f"takes {columns.cnt[number]} chunks of a message of {columns.cnt[columns.sent_by[number]]}",
            *flat.where(number),
        )
        for number in np.flatnonzero(is_other).tolist()
    ]


Bases = list[dict[str, int]]
"""For each GPU, where each buffer starts in its memory; buffers that are the same memory overlap."""


def race_problems(flat: Flat, columns: Columns, trace: list[int], memory: Memory) -> list[Problem]:
    """Every pair of racing steps, once; `trace` is a complete run of the program."""
    # Nearly always a step itself waits for those that it must not race with, which arrays decide. Clocks carried along
    # the run are needed only where one doesn't, and clocks over the blocks of the whole program, carried along with the
    # messages, only where the dependencies on the GPU itself don't suffice.
    if _is_ordered_directly(flat, columns, trace, memory):
        return []
    pairs = _Scan(flat, memory.bases, is_global=False).pairs(trace)
    if pairs:
        pairs = _Scan(flat, memory.bases, is_global=True).pairs(trace)
    return [
        Problem("race", f"{deed} while {flat.name(earlier)} may still use it: nothing orders them", *flat.where(later))
        for (earlier, later), deed in pairs.items()
    ]


def _is_ordered_directly(flat: Flat, columns: Columns, trace: list[int], memory: Memory) -> bool:
    """Whether of two steps that use one chunk, one of them to write, the later is in the same block or waits itself,
    or the block did before, for the earlier or one after it in its block."""
    place = np.empty(len(trace), dtype=np.int64)
    place[trace] = np.arange(len(trace))
    source, target = columns.places(memory.bases, memory.starts)
    writes = columns.writes & ~(columns.copies & (source == target))
    reading, changing = np.flatnonzero(columns.reads), np.flatnonzero(writes)
    cell = np.concatenate([runs(source[reading], columns.cnt[reading]), runs(target[changing], columns.cnt[changing])])
    step = np.repeat(np.concatenate([reading, changing]), columns.cnt[np.concatenate([reading, changing])])
    writing = np.arange(len(step)) >= columns.cnt[reading].sum()
    order = np.lexsort((writing, place[step], cell))
    cell, step, writing = cell[order], step[order], writing[order]
    at = np.arange(len(cell))
    last = np.maximum.accumulate(np.where(writing, at, -1))
    before = np.concatenate([[-1], last[:-1]])[: len(at)]  # the write before each access, of this cell or another
    follows = (before >= 0) & (cell[before] == cell)
    later = np.minimum.accumulate(np.where(writing, at, len(at))[::-1])[::-1]  # the write that follows each read
    is_overwritten = ~writing & (later < len(at))
    is_overwritten[is_overwritten] = cell[later[is_overwritten]] == cell[is_overwritten]
    earlier_steps = np.concatenate([step[before[follows]], step[is_overwritten]])
    later_steps = np.concatenate([step[follows], step[later[is_overwritten]]])
    return _waits_directly(flat, columns, earlier_steps, later_steps)


def _waits_directly(flat: Flat, columns: Columns, earlier: Numbers, later: Numbers) -> bool:
    """Whether every later step, or one before it in its block, waits for the earlier one or one after that."""
    apart = columns.block[earlier] != columns.block[later]
    earlier, later = earlier[apart], later[apart]
    awaited = np.array(flat.awaited, dtype=np.int64)
    waiting = np.flatnonzero(awaited >= 0)
    blocks, count = len(flat.place), len(flat.steps) + 1

    def key(of: Numbers, upon: Numbers) -> Numbers:
        return columns.block[of] * blocks + columns.block[upon]

    # Sorted by (block, block that it waits for, step): the last step waited for so far is a running maximum, since flat
    # numbers grow from block to block.
    pair = key(waiting, awaited[waiting])
    order = np.lexsort((waiting, pair))
    pair, waiting = pair[order], waiting[order]
    group = np.cumsum(np.concatenate([[0], pair[1:] != pair[:-1]])) if len(pair) else pair
    most = np.maximum.accumulate(group * count + awaited[waiting]) - group * count
    known = np.searchsorted(pair, key(later, earlier))
    is_known = known < len(pair)
    is_known[is_known] = pair[known[is_known]] == key(later, earlier)[is_known]
    if not is_known.all():
        return False
    at = np.searchsorted(group * count + waiting, group[known] * count + later, side="right") - 1
    return bool(((at >= known) & (most[at] >= earlier)).all())


Cell = tuple[int, int] | tuple[int, str, int]
"""Of a GPU's memory: (rank, number), or (rank, buffer, number)."""


class AccessLog(Generic[T]):
    """Who wrote each cell last, in `writes`, and who has read it since."""

    def __init__(self) -> None:
        self.writes: dict[Cell, T] = {}
        self.reads: dict[Cell, list[T]] = {}

    def access(self, cell: Cell, who: T, is_write: bool) -> list[T]:
        """Note an access; returns those that it must come after: the last write, and before a write what read that."""
        before = [self.writes[cell]] if cell in self.writes else []
        if is_write:
            before += self.reads.pop(cell, ())
            self.writes[cell] = who
        else:
            self.reads.setdefault(cell, []).append(who)
        return before


class _Scan:
    """One pass over a run with vector clocks: entry b of a clock counts the steps of block b that came before."""

    def __init__(self, flat: Flat, bases: Bases, is_global: bool) -> None:
        self.flat, self.bases, self.is_global = flat, bases, is_global
        blocks = range(len(flat.place))
        self.offset = [0 if is_global else flat.first_block[flat.place[block][0]] for block in blocks]
        ends = [len(flat.place) if is_global else flat.first_block[flat.place[block][0] + 1] for block in blocks]
        self.clocks = [np.zeros(end - start, dtype=np.int32) for end, start in zip(ends, self.offset, strict=True)]
        self.users = Counter(target for target in flat.awaited if target >= 0)
        self.snapshots: dict[int, NDArray[np.int32]] = {}
        self.messages: list[deque[NDArray[np.int32]]] = [deque() for _ in flat.connections]
        self.log = AccessLog[int]()
        self.found: dict[tuple[int, int], str] = {}

    def pairs(self, trace: list[int]) -> dict[tuple[int, int], str]:
        """(earlier, later) in this run, and what the later step does."""
        for number in trace:
            self.enter(number)
            gpu = self.flat.where(number)[0]
            for cell, is_write, name in _accesses(self.flat.steps[number], self.bases[gpu]):
                for earlier in self.log.access((gpu, cell), number, is_write):
                    if not self.comes_before(earlier, number):
                        self.found.setdefault((earlier, number), f"{'writes' if is_write else 'reads'} {name}")
            self.leave(number)
        return self.found

    def enter(self, number: int) -> None:
        block = self.flat.owner[number]
        clock, target = self.clocks[block], self.flat.awaited[number]
        if target >= 0:
            np.maximum(clock, self.snapshots[target], out=clock)
            self.users[target] -= 1
            if not self.users[target]:
                del self.snapshots[target]
        if self.is_global and self.flat.steps[number].type in RECEIVING:
            np.maximum(clock, self.messages[self.flat.incoming[block]].popleft(), out=clock)
        clock[block - self.offset[block]] = number - self.flat.first[block] + 1

    def leave(self, number: int) -> None:
        block = self.flat.owner[number]
        if self.users[number]:
            self.snapshots[number] = self.clocks[block].copy()
        if self.is_global and self.flat.steps[number].type in SENDING:
            self.messages[self.flat.outgoing[block]].append(self.clocks[block].copy())

    def comes_before(self, earlier: int, later: int) -> bool:
        block, other = self.flat.owner[later], self.flat.owner[earlier]
        seen = self.clocks[block][other - self.offset[block]]
        return bool(seen > earlier - self.flat.first[other])


def _accesses(step: Step, base: dict[str, int]) -> list[tuple[int, bool, str]]:
    """(cell, whether it is written, its name) for the chunks that a step reads, then for those that it writes."""
    source, target = base[step.srcbuf] + step.srcoff, base[step.dstbuf] + step.dstoff
    found: list[tuple[int, bool, str]] = []
    if step.type in READS_SOURCE:
        found += [(source + k, False, f"{step.srcbuf}[{step.srcoff + k}]") for k in range(step.cnt)]
    if step.type == "cpy" and source == target:
        # In place, the own-chunk copy of an out-of-place program stores what is already there.
        return found
    if step.type in WRITES:
        found += [(target + k, True, f"{step.dstbuf}[{step.dstoff + k}]") for k in range(step.cnt)]
    return found
