"""Data races of a TACCL-EF program: accesses to one chunk, one of them a write, that nothing orders.

What orders steps: their order in a block, dependencies, and a message (its send comes before its receive). That a full
queue made a sender wait is no order: how much a queue holds differs from run to run. The runtimes' loop over slices
adds nothing: all three buffers are addressed by slice, so different slices touch different elements.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.io.taccl_ef.flat import Flat
from gapless.io.taccl_ef.program import READS_SOURCE, RECEIVING, SENDING, WRITES, Problem, Step

__all__ = ["race_problems"]

Bases = list[dict[str, int]]
"""For each GPU, where each buffer starts in its memory; buffers that are the same memory overlap."""


def race_problems(flat: Flat, trace: list[int], bases: Bases) -> list[Problem]:
    """Every pair of racing steps, once; `trace` is a complete run of the program."""
    # Nearly always the dependencies on the GPU itself order its accesses. Clocks over the blocks of the whole program,
    # carried along with the messages, cost far more and are only needed where those don't suffice.
    pairs = _Scan(flat, bases, is_global=False).pairs(trace)
    if pairs:
        pairs = _Scan(flat, bases, is_global=True).pairs(trace)
    return [
        Problem("race", f"{deed} while {flat.name(earlier)} may still use it: nothing orders them", *flat.where(later))
        for (earlier, later), deed in pairs.items()
    ]


@dataclass(frozen=True)
class _Access:
    """A chunk of one GPU's memory, and its name."""

    cell: int
    is_write: bool
    name: str


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
        self.last_write: list[dict[int, int]] = [{} for _ in bases]
        self.readers: list[dict[int, list[int]]] = [{} for _ in bases]
        self.found: dict[tuple[int, int], str] = {}

    def pairs(self, trace: list[int]) -> dict[tuple[int, int], str]:
        """(earlier, later) in this run, and what the later step does."""
        for number in trace:
            self.enter(number)
            for access in _accesses(self.flat.steps[number], self.bases[self.flat.where(number)[0]]):
                self.check(number, access)
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

    def check(self, number: int, access: _Access) -> None:
        gpu = self.flat.where(number)[0]
        last = self.last_write[gpu].get(access.cell, -1)
        if last >= 0 and not self.comes_before(last, number):
            self.note(last, number, access)
        if not access.is_write:
            self.readers[gpu].setdefault(access.cell, []).append(number)
            return
        for reader in self.readers[gpu].pop(access.cell, ()):
            if not self.comes_before(reader, number):
                self.note(reader, number, access)
        self.last_write[gpu][access.cell] = number

    def comes_before(self, earlier: int, later: int) -> bool:
        block, other = self.flat.owner[later], self.flat.owner[earlier]
        seen = self.clocks[block][other - self.offset[block]]
        return bool(seen > earlier - self.flat.first[other])

    def note(self, earlier: int, later: int, access: _Access) -> None:
        deed = "writes" if access.is_write else "reads"
        self.found.setdefault((earlier, later), f"{deed} {access.name}")


def _accesses(step: Step, base: dict[str, int]) -> list[_Access]:
    """The chunks that a step reads, then those that it writes."""
    source, target = base[step.srcbuf] + step.srcoff, base[step.dstbuf] + step.dstoff
    found: list[_Access] = []
    if step.type in READS_SOURCE:
        found += [_Access(source + k, False, f"{step.srcbuf}[{step.srcoff + k}]") for k in range(step.cnt)]
    if step.type == "cpy" and source == target:
        # In place, the own-chunk copy of an out-of-place program stores what is already there.
        return found
    if step.type in WRITES:
        found += [_Access(target + k, True, f"{step.dstbuf}[{step.dstoff + k}]") for k in range(step.cnt)]
    return found
