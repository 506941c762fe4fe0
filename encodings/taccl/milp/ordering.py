"""Stage 2, ordering: in which order the chunks go over each link and switch side (TACCL, section 5.5.2).

A greedy schedule, chunk by chunk. A send that can start sooner goes first, since otherwise a link would idle for the
sake of a rule; among those that can start at once the thesis's two rules decide, in either order: the longest path from
now on, and the shortest path until now. Each is also run backwards in time (the thesis: in the opposite order of the
paths), which places the ends of the paths first. From the best of these on it goes by the order itself (reordering.py):
`in_order` and `from_the_end` follow numbers that are given.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.list_scheduling import Rule, Table, dispatch
from gapless.encodings.taccl.sends import Sends

__all__ = [
    "PHASED",
    "PHASED_VARIANTS",
    "SHAKEN",
    "VARIANTS",
    "Ordering",
    "Variant",
    "from_the_end",
    "grouped",
    "in_groups",
    "in_order",
    "order",
]


@dataclass(frozen=True)
class Variant:
    """One way to order: which rule decides first, and whether time runs backwards.

    With `phased` every send of a phase comes after all sends of the phase before it.
    """

    name: str
    longest_first: bool
    backwards: bool
    phased: bool = False


VARIANTS = (
    Variant("longest from now", longest_first=True, backwards=False),
    Variant("shortest until now", longest_first=False, backwards=False),
    Variant("longest from now, reversed", longest_first=True, backwards=True),
    Variant("shortest until now, reversed", longest_first=False, backwards=True),
)
SHAKEN = "shaken"
"""What an ordering is called that was made from another by chance."""
PHASED = ", phased"
PHASED_VARIANTS = tuple(replace(variant, name=variant.name + PHASED, phased=True) for variant in VARIANTS)
"""For more than one phase: concatenated, not overlapped."""


@dataclass(frozen=True, eq=False)
class Ordering:
    """A start time for each row of `sends`; no link or side carries two chunks at once.

    `start_s`: float, shape (rows,). `place[i]`: int64, 0 for the first chunk of a transfer, 1 for the one that joins
    it, and so on; they share their start. The greedy joins none, stage 3 does. `makespan_s`: the end of the last.
    """

    sends: Sends
    start_s: NDArray[np.float64]
    place: NDArray[np.int64]
    makespan_s: float
    variant: str

    @property
    def end_s(self) -> NDArray[np.float64]:
        """When each row is through where no rows share a latency, float; later in a group, in the same order."""
        return np.asarray(self.start_s + self.sends.duration_s)


def order(sends: Sends, variant: Variant) -> Ordering:
    """Order the rows by one variant."""
    start_s = _phase_by_phase(sends, variant) if variant.phased else _start_s(sends, variant)
    return _ordering(sends, start_s, variant.name)


def in_order(sends: Sends, given_s: NDArray[np.float64]) -> Ordering:
    """Order the rows from the first on, those with smaller numbers first."""
    start_s = np.array(_greedy(sends, _before(sends), [(at_s, 0.0) for at_s in given_s.tolist()]))
    return _ordering(sends, start_s, SHAKEN)


def from_the_end(sends: Sends, given_s: NDArray[np.float64]) -> Ordering:
    """Order the rows from the last on, those with larger numbers first, and mirror the time."""
    mirrored_s = np.array(_greedy(sends, _following(sends), [(-at_s, 0.0) for at_s in given_s.tolist()]))
    end_s = mirrored_s + sends.duration_s
    return _ordering(sends, end_s.max(initial=0.0) - end_s, SHAKEN)


def grouped(sends: Sends, most: int, backwards: bool) -> Ordering:
    """Order the rows by the longest path from now on, at most `most` together on their link."""
    return _in_groups(sends, Rule(most, backwards, longest_first=True), np.zeros(len(sends)))


def in_groups(sends: Sends, most: int, given_s: NDArray[np.float64], backwards: bool = False) -> Ordering:
    """Order the rows by numbers that are given, from the first on or from the last, at most `most` together."""
    return _in_groups(sends, Rule(most, backwards, longest_first=False), given_s)


def _in_groups(sends: Sends, rule: Rule, given_s: NDArray[np.float64]) -> Ordering:
    """By the dispatch; rows of different phases are on different links to it, as they can't travel together."""
    phases = int(sends.phase.max(initial=0)) + 1
    links = [phases * link + phase for link, phase in zip(sends.link, sends.phase.tolist(), strict=True)]
    needs = [tuple(rows) for rows in _before(sends)]
    table = Table(needs, links, list(sends.groups), sends.alpha_s, sends.beta_s, sends.may_join)
    timing = dispatch(table, given_s, rule)
    return Ordering(sends, timing.start_s, timing.place, timing.makespan_s, timing.variant)


def _ordering(sends: Sends, start_s: NDArray[np.float64], variant: str) -> Ordering:
    makespan_s = float((start_s + sends.duration_s).max(initial=0.0))
    return Ordering(sends, start_s, np.zeros(len(sends), dtype=np.int64), makespan_s, variant)


def _start_s(sends: Sends, variant: Variant) -> NDArray[np.float64]:
    return np.array(_backwards(sends, variant) if variant.backwards else _forwards(sends, variant))


def _phase_by_phase(sends: Sends, variant: Variant) -> NDArray[np.float64]:
    start_s, from_s = np.zeros(len(sends)), 0.0
    for phase in np.unique(sends.phase):
        rows = np.flatnonzero(sends.phase == phase)
        start_s[rows] = from_s + _start_s(sends.part(rows), variant)
        from_s = float((start_s + sends.duration_s)[rows].max())
    return start_s


def _forwards(sends: Sends, variant: Variant) -> list[float]:
    """Greedy in the order of the paths: a row is ready once what it needs and what must go before it are placed."""
    until, onward = _path_times(sends)
    return _greedy(sends, _before(sends), _priority(onward, until, variant))


def _backwards(sends: Sends, variant: Variant) -> list[float]:
    """Greedy from the ends of the paths: a row is ready once all that follows it is placed; then time is mirrored."""
    until, onward = _path_times(sends)
    duration = sends.duration_s.tolist()
    mirrored_until = [far - own for far, own in zip(onward, duration, strict=True)]
    mirrored_onward = [near + own for near, own in zip(until, duration, strict=True)]
    start = _greedy(sends, _following(sends), _priority(mirrored_onward, mirrored_until, variant))
    end = max((at + own for at, own in zip(start, duration, strict=True)), default=0.0)
    return [end - at - own for at, own in zip(start, duration, strict=True)]


def _before(sends: Sends) -> list[list[int]]:
    """The rows that must be over before each row starts."""
    return [[*after, *needs] for needs, after in zip(sends.needs, sends.after, strict=True)]


def _following(sends: Sends) -> list[list[int]]:
    """The rows that wait for each row."""
    follow: list[list[int]] = [[] for _ in sends.needs]
    for row, firsts in enumerate(_before(sends)):
        for first in firsts:
            follow[first].append(row)
    return follow


def _path_times(sends: Sends) -> tuple[list[float], list[float]]:
    """For each row, the time of its path before it, and from its start to the farthest end."""
    duration, count = sends.duration_s.tolist(), len(sends)
    until, onward = [0.0] * count, list(duration)
    for row, needs in enumerate(sends.needs):
        for first in needs:
            until[row] = max(until[row], until[first] + duration[first])
    for row in range(count - 1, -1, -1):  # what a row needs stands before it
        for first in sends.needs[row]:
            onward[first] = max(onward[first], duration[first] + onward[row])
    return until, onward


def _priority(onward: list[float], until: list[float], variant: Variant) -> list[tuple[float, float]]:
    """The smaller goes first."""
    if variant.longest_first:
        return [(-far, near) for far, near in zip(onward, until, strict=True)]
    return [(near, -far) for far, near in zip(onward, until, strict=True)]


def _greedy(sends: Sends, before: list[list[int]], priority: list[tuple[float, float]]) -> list[float]:
    """Place the ready row that can start first, again and again.

    A row that finds a link or side taken waits there; of those that wait, the one that goes first stands in the heap
    for all, or every transfer over a busy NIC would move all that wait for it.
    """
    duration, count = sends.duration_s.tolist(), len(sends)
    waiting = [len(rows) for rows in before]
    follow: list[list[int]] = [[] for _ in range(count)]
    for row, rows in enumerate(before):
        for first in rows:
            follow[first].append(row)
    ready_at, start = [0.0] * count, [0.0] * count
    free: dict[int, float] = {}
    queues: dict[int, _Queue] = {}
    waits_at = [-1] * count
    heap = [(0.0, priority[row], row) for row in range(count) if not waiting[row]]
    heapq.heapify(heap)
    while heap:
        at, key, row = heapq.heappop(heap)
        if waits_at[row] >= 0 and (called := queues[waits_at[row]].leave(row)) is not None:
            heapq.heappush(heap, (free[waits_at[row]], *called))
        busiest = max(sends.groups[row], key=lambda group: free.get(group, 0.0))
        now = max(ready_at[row], free.get(busiest, 0.0))
        if now > at:
            waits_at[row] = busiest
            if queues.setdefault(busiest, _Queue()).enter(key, row):
                heapq.heappush(heap, (now, key, row))
            continue
        start[row], end = now, now + duration[row]
        for group in sends.groups[row]:
            free[group] = end
        for child in follow[row]:
            waiting[child] -= 1
            ready_at[child] = max(ready_at[child], end)
            if not waiting[child]:
                heapq.heappush(heap, (ready_at[child], priority[child], child))
    return start


class _Queue:
    """The rows that wait for one link or side, and which of them are called: those that nobody before them outranks."""

    def __init__(self) -> None:
        self._called: dict[int, tuple[float, float]] = {}
        self._others: list[tuple[tuple[float, float], int]] = []

    def enter(self, key: tuple[float, float], row: int) -> bool:
        """Whether the row is called at once."""
        if self._called and (key, row) > min((its, other) for other, its in self._called.items()):
            heapq.heappush(self._others, (key, row))
            return False
        self._called[row] = key
        return True

    def leave(self, row: int) -> tuple[tuple[float, float], int] | None:
        """The row that is called when a called one leaves and nobody else is called."""
        del self._called[row]
        if self._called or not self._others:
            return None
        key, other = heapq.heappop(self._others)
        self._called[other] = key
        return key, other
