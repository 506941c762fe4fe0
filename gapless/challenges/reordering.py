"""From the plan as a start: its events in other orders, each as early as what it waits for allows.

Every event still happens, where and with what it did, and still waits for the events that made or freed what it uses.
What shares a link, an engine or a port may go in another order: the one by the plan's own starts, changed at random.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.checker import check
from gapless.checker.program import Program, read_program
from gapless.checker.report import Findings
from gapless.checker.timeline import logical_time
from gapless.ir.schedule import Schedule
from gapless.options import Deadline, SolveOptions

__all__ = ["reordered"]

_WIDTHS = (0.0, 0.02, 0.1, 0.5)
"""How far starts are changed, as a part of the makespan: the deviation of normal noise."""


def reordered(schedule: Schedule, options: SolveOptions, most_events: int) -> Schedule | None:
    """The shortest order that is found and replays clean, None where none does; `most_events`: put in order in all."""
    findings = Findings()
    program = read_program(schedule, findings)
    if findings.violations or not len(program.numbers) or len(program.numbers) < len(schedule):
        return None
    table, deadline = _Table.of(program), Deadline(options)
    chance = np.random.default_rng(options.seed)
    start_s = program.start_s
    best: Schedule | None = None
    best_s = np.inf
    for number in range(max(len(_WIDTHS), most_events // len(program.numbers))):
        if deadline.over:
            break
        length_s = float(program.end_s.max())
        wanted_s = start_s + chance.normal(0.0, 1.0, len(start_s)) * _WIDTHS[number % len(_WIDTHS)] * length_s
        begin_s = table.earliest(wanted_s.tolist())
        end_s = begin_s + program.least_s
        if float(end_s.max()) < best_s:
            made = replace(schedule, start_s=begin_s, end_s=end_s)
            if check(made).valid:
                best, best_s, start_s = made, float(end_s.max()), begin_s
    return best


@dataclass(frozen=True)
class _Table:
    """`before[e]`: how many events event e waits for, `after[e]`: those that wait for it, `holds[e]`: its resources."""

    before: list[int]
    after: list[list[int]]
    holds: list[list[int]]
    least_s: list[float]

    @classmethod
    def of(cls, program: Program) -> _Table:
        """What waits for what, in a plan whose own order is right."""
        count = len(program.numbers)
        pairs = {(first, second) for first, second in _waits(program) if first != second}
        after, before, holds = [list[int]() for _ in range(count)], [0] * count, [list[int]() for _ in range(count)]
        for first, second in sorted(pairs):
            after[first].append(second)
            before[second] += 1
        for event, resource in zip(program.holds.event.tolist(), program.holds.copy.tolist(), strict=True):
            holds[event].append(resource)
        return cls(before, after, holds, program.least_s.tolist())

    def earliest(self, wanted_s: list[float]) -> NDArray[np.float64]:
        """The start of each event, float of shape (n,): of those that may start, the one wanted first is placed."""
        left, begin_s, ready_s = list(self.before), [0.0] * len(wanted_s), [0.0] * len(wanted_s)
        free_s: dict[int, float] = {}
        heap = [(wanted_s[event], event) for event, count in enumerate(left) if not count]
        heapq.heapify(heap)
        while heap:
            _, event = heapq.heappop(heap)
            at_s = max([ready_s[event], *(free_s.get(held, 0.0) for held in self.holds[event])])
            over_s = at_s + self.least_s[event]
            begin_s[event] = at_s
            free_s.update(dict.fromkeys(self.holds[event], over_s))
            for other in self.after[event]:
                ready_s[other] = max(ready_s[other], over_s)
                left[other] -= 1
                if not left[other]:
                    heapq.heappush(heap, (wanted_s[other], other))
        return np.array(begin_s, dtype=np.float64)


def _waits(program: Program) -> Iterator[tuple[int, int]]:
    """Pairs of events of which the second waits for the first: a reader for a writer, who writes or frees for both."""
    timeline = logical_time(program.start_s, program.end_s, program.tolerance_s)
    looks = [
        (program.reads, timeline.start, False),
        (program.overwrites, timeline.start, True),
        (program.writes, timeline.end, True),
        (program.frees, timeline.free, True),
    ]
    rows = [
        (copy, int(position[event]), changes, event)
        for part, position, changes in looks
        for event, copy in zip(part.event.tolist(), part.copy.tolist(), strict=True)
    ]
    known, changed, readers = -1, -1, list[int]()
    for copy, _, changes, event in sorted(rows):
        if copy != known:
            known, changed, readers = copy, -1, []
        if changed >= 0:
            yield changed, event
        if changes:
            yield from ((reader, event) for reader in readers)
            changed, readers = event, []
        else:
            readers.append(event)
