"""Dispatch: the sends of a board put in order and grouped, whoever is ready and most urgent first.

As stage 2 does, for tables too long for it: a send waits at one of the clocks that it needs, and is looked at again
only when that one is free. What may be grouped leaves with others that wait for the same link: fewer latencies, but the
first of a group arrives with its last, so that how many may go together is worth trying out.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rule", "Table", "Timing", "dispatch", "settle"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """`most`: chunks that may travel together. `backwards`: place the ends of the ways first and mirror the time.

    `longest_first`: whether the longest way from now on decides what is urgent, or else the order that was given.
    """

    most: int
    backwards: bool
    longest_first: bool

    @property
    def name(self) -> str:
        """For people: `longest from now, reversed, groups of 4`."""
        first = "longest from now" if self.longest_first else "as matched"
        return f"{first}{', reversed' if self.backwards else ''}, groups of {self.most}"


@dataclass(frozen=True)
class Table:
    """Sends to be put in order, one a row, what a row needs before it.

    `needs[i]`: the rows that bring the chunk, or the parts of its sum; none at its owner. `link[i]`: where row i
    travels; `clocks[i]`: all that it holds exclusively, a clock of the link among it. `alpha_s`, `beta_s`: float,
    latency and chunk time. `may_join[i]`: whether the row may be grouped with others on its link.
    """

    needs: list[tuple[int, ...]]
    link: list[int]
    clocks: list[tuple[int, ...]]
    alpha_s: Floats
    beta_s: Floats
    may_join: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.needs)

    @property
    def duration_s(self) -> Floats:
        """Seconds for each row's chunk alone, float."""
        return np.asarray(self.alpha_s + self.beta_s)


@dataclass(frozen=True)
class Timing:
    """When each row of a table starts and ends, float, and its `place` in its transfer: 0 for the first chunk.

    `most`: chunks that were allowed to travel together.
    """

    start_s: Floats
    end_s: Floats
    place: Ids
    variant: str
    most: int = 1

    @property
    def makespan_s(self) -> float:
        """The end of the last."""
        return float(self.end_s.max(initial=0.0))


def dispatch(table: Table, given_s: Floats, rule: Rule) -> Timing:
    """Order and group the rows; `given_s`: start times of a plan to follow, float, shape (rows,)."""
    before: list[list[int]] = [list(rows) for rows in table.needs]
    if rule.backwards:
        before = [[] for _ in table.needs]
        for row, firsts in enumerate(table.needs):
            for first in firsts:
                before[first].append(row)
    urgency = -_way_s(table, before) if rule.longest_first else (-given_s if rule.backwards else given_s)
    run = _Run(table, before, urgency.tolist(), rule.most)
    run.work()
    start_s, end_s = np.array(run.start_s), np.array(run.end_s)
    if rule.backwards:
        start_s, end_s = end_s.max(initial=0.0) - end_s, end_s.max(initial=0.0) - start_s
    return settle(table, Timing(start_s, end_s, np.array(run.place, dtype=np.int64), rule.name, rule.most))


def settle(table: Table, timing: Timing) -> Timing:
    """The same order and grouping, each transfer as early as possible."""
    start_s, end_s = [0.0] * len(table), [0.0] * len(table)
    alpha_s, beta_s = table.alpha_s.tolist(), table.beta_s.tolist()
    free_s: dict[int, float] = {}
    for rows in _transfers(table, timing):
        ready_s = [end_s[first] for row in rows for first in table.needs[row]]
        clocks = {clock for row in rows for clock in table.clocks[row]}
        at_s = max([*ready_s, *(free_s.get(clock, 0.0) for clock in clocks)])
        over_s = at_s + (alpha_s[rows[0]] + beta_s[rows[0]] * len(rows))
        for row in rows:
            start_s[row], end_s[row] = at_s, over_s
        free_s.update(dict.fromkeys(clocks, over_s))
    return Timing(np.array(start_s), np.array(end_s), timing.place, timing.variant, timing.most)


def _transfers(table: Table, timing: Timing) -> list[list[int]]:
    """The rows of each transfer, transfers in order of their starts."""
    order = np.lexsort((timing.place, np.array(table.link), timing.start_s)).tolist()
    place = timing.place.tolist()
    transfers: list[list[int]] = []
    for row in order:
        if place[row] > 0:
            transfers[-1].append(row)
        else:
            transfers.append([row])
    return transfers


def _way_s(table: Table, before: list[list[int]]) -> Floats:
    """The longest way from the start of each row to the end of all that waits for it."""
    duration_s, count = table.duration_s.tolist(), len(table)
    way_s = list(duration_s)
    forwards = all(first < row for row, rows in enumerate(before) for first in rows)
    for row in range(count - 1, -1, -1) if forwards else range(count):
        for first in before[row]:
            way_s[first] = max(way_s[first], duration_s[first] + way_s[row])
    return np.array(way_s)


class _Run:
    """Event by event: which rows wait for which clock, and which are ready for a link.

    `latest_s[row]`: when the last of what must go before it is over. `ready[link]`: rows that wait to leave by it.
    """

    def __init__(self, table: Table, before: list[list[int]], urgency: list[float], most: int) -> None:
        count = len(table)
        self.table, self.urgency, self.most = table, urgency, most
        self.alpha_s, self.beta_s = table.alpha_s.tolist(), table.beta_s.tolist()
        self.may_join = table.may_join.tolist()
        self.left = [len(rows) for rows in before]
        self.after: list[list[int]] = [[] for _ in range(count)]
        for row, rows in enumerate(before):
            for first in rows:
                self.after[first].append(row)
        self.start_s, self.end_s, self.place = [-1.0] * count, [0.0] * count, [0] * count
        self.free_s: dict[int, float] = {}
        self.waiting: dict[int, list[tuple[float, int]]] = {}
        self.ready: dict[int, list[tuple[float, int]]] = {}
        self.arrivals: list[tuple[float, int]] = []
        self.freed: list[tuple[float, int]] = []

    def work(self) -> None:
        """Place every row."""
        doors = {self._offer(row) for row, left in enumerate(self.left) if not left}
        now_s = 0.0
        while True:
            for door in sorted(doors):
                self._serve(door, now_s)
            if not self.arrivals and not self.freed:
                return
            now_s = min(events[0][0] for events in (self.arrivals, self.freed) if events)
            doors = set()
            while self.arrivals and self.arrivals[0][0] <= now_s:
                for row in self.after[heapq.heappop(self.arrivals)[1]]:
                    self.left[row] -= 1
                    if not self.left[row]:
                        doors.add(self._offer(row))
            while self.freed and self.freed[0][0] <= now_s:
                doors.add(heapq.heappop(self.freed)[1])

    def _offer(self, row: int) -> int:
        """A row is ready: it waits for its last clock, which is returned, and may join others on its link."""
        door = self.table.clocks[row][-1]
        heapq.heappush(self.waiting.setdefault(door, []), (self.urgency[row], row))
        if self.may_join[row]:
            heapq.heappush(self.ready.setdefault(self.table.link[row], []), (self.urgency[row], row))
        return door

    def _serve(self, door: int, now_s: float) -> None:
        queue = self.waiting.get(door, [])
        while queue and self.free_s.get(door, 0.0) <= now_s:
            row = heapq.heappop(queue)[1]
            if self.start_s[row] >= 0:
                continue
            latest = max(self.table.clocks[row], key=lambda clock: self.free_s.get(clock, 0.0))
            if self.free_s.get(latest, 0.0) > now_s:
                heapq.heappush(self.waiting.setdefault(latest, []), (self.urgency[row], row))
            else:
                self._start(row, now_s)

    def _start(self, row: int, now_s: float) -> None:
        """Send a row and what may go with it."""
        rows = [row]
        others = self.ready.get(self.table.link[row], []) if self.may_join[row] else []
        held_up = []
        while others and len(rows) < self.most:
            entry = heapq.heappop(others)
            if self.start_s[entry[1]] >= 0 or entry[1] == row:
                continue
            if any(self.free_s.get(clock, 0.0) > now_s for clock in self.table.clocks[entry[1]]):
                held_up.append(entry)
            else:
                rows.append(entry[1])
        for entry in held_up:
            heapq.heappush(others, entry)
        end_s = now_s + self.alpha_s[row] + self.beta_s[row] * len(rows)
        for place, joined in enumerate(rows):
            self.start_s[joined], self.end_s[joined], self.place[joined] = now_s, end_s, place
            heapq.heappush(self.arrivals, (end_s, joined))
        for clock in sorted({clock for joined in rows for clock in self.table.clocks[joined]}):
            self.free_s[clock] = end_s
            heapq.heappush(self.freed, (end_s, clock))
