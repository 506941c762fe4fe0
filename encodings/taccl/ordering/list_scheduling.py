"""List scheduling: sends put in order and grouped, whoever is ready and most urgent first.

Event by event: a send waits at one of the clocks (links, ports, sums) that it holds, and is looked at again only when
that one is free. What may be grouped leaves with others that wait for the same link: fewer latencies, but the first of
a group arrives with its last, so that how many may go together is worth trying out. Backwards, the ends of the paths
are placed first, and the time is mirrored.

From a good order on it goes by perturbation. Where many sends are equally urgent, a rule that breaks ties by their
numbers sends all ranks to the same place at once; an order by chance does not. And an order is pushed together from
both ends: placed backwards in time, those that end last first, then forwards, those that start first first. Neither
direction makes it longer by much, and one of them often finds a gap that the other left.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gapless.array_types import Floats, Mask
from gapless.encodings.taccl.ordering.sends import Times
from gapless.encodings.taccl.parameters import ANY_SIZE

__all__ = ["RULES", "Order", "Rule", "Table", "better_orders", "list_schedule", "orders_near", "path_times"]

First = Literal["longest from now", "shortest until now", "as given", "most left to do"]

_POWER = 4
"""Of what a clock has left to do: the higher, the more the busiest decides alone."""
_WIDTHS = (0.02, 0.1, 0.5)
"""How far an order is perturbed, as a part of its length: normal noise on the starts."""


@dataclass(frozen=True)
class Rule:
    """`first`: what is urgent: the longest path from now on, the shortest until now, starts that are given, or what
    holds the clocks that have most to do yet. `most`: chunks that may travel together.
    """

    first: First
    backwards: bool = False
    most: int = 1

    @property
    def name(self) -> str:
        """For people: `longest from now, reversed, groups of 4`."""
        size = "any size" if self.most >= ANY_SIZE else f"{self.most}"
        groups = f", groups of {size}" if self.most > 1 else ""
        return f"{self.first}{', reversed' if self.backwards else ''}{groups}"


RULES = tuple(Rule(first, backwards) for backwards in (False, True) for first in
              ("longest from now", "shortest until now"))  # fmt: skip
"""The thesis's two heuristics (section 5.5.2), along the paths and from their ends."""


@dataclass(frozen=True)
class Table:
    """Sends to be put in order, one a row, or a row for all sends of an orbit.

    `needs[i]`: the rows that bring the chunk, or the parts of its sum; none at its owner. `link[i]`: where row i
    travels, apart from what can't be grouped with it; `clocks[i]`: all that it holds exclusively. `alpha_s`, `beta_s`:
    float, latency and chunk time. `may_join[i]`: whether the row may be grouped with others on its link. `after[i]`:
    rows that must go before for another reason.
    """

    needs: Sequence[tuple[int, ...]]
    link: list[int]
    clocks: list[tuple[int, ...]]
    alpha_s: Floats
    beta_s: Floats
    may_join: Mask
    after: Sequence[Sequence[int]] = ()

    def __len__(self) -> int:
        return len(self.needs)

    @property
    def duration_s(self) -> Floats:
        """Seconds for each row's chunk alone, float."""
        return np.asarray(self.alpha_s + self.beta_s)

    def before(self, backwards: bool) -> list[list[int]]:
        """The rows that must be over before each row starts, or backwards in time the rows that wait for it."""
        after = self.after or [()] * len(self)
        rows = [[*others, *needs] for needs, others in zip(self.needs, after, strict=True)]
        return _turned(rows) if backwards else rows


@dataclass(frozen=True)
class Order(Times):
    """Times of the rows of a table, and the rule that they come from, with what was done to them since."""

    table: Table
    rule: Rule
    note: str = ""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.rule.name}{self.note}"


def list_schedule(table: Table, rule: Rule, given_s: Floats | None = None) -> Order:
    """Order and group the rows by a rule; `given_s`: the starts to follow, where the rule goes by these."""
    before = table.before(rule.backwards)
    run = _Run(table, before, _urgency(table, before, rule, given_s), rule)
    run.work()
    start_s, end_s = np.array(run.start_s), np.array(run.end_s)
    if rule.backwards:
        last_s = end_s.max(initial=0.0)
        start_s, end_s = last_s - end_s, last_s - start_s
    return _settled(Order(start_s, end_s, np.array(run.place, dtype=np.int64), table, rule))


def orders_near(best: Order, seed: int) -> Iterator[Order]:
    """Orders without end: the best one pushed together, then perturbed, and orders by chance; groups stay as large."""
    chance = np.random.default_rng(seed)
    forwards = Rule("as given", most=best.rule.most)

    def placed(rule: Rule, given_s: Floats) -> Order:
        return replace(list_schedule(best.table, rule, given_s), rule=best.rule, note=", perturbed")

    def pushed(order: Order) -> Iterator[Order]:
        late = placed(replace(forwards, backwards=True), order.end_s)
        yield late
        yield placed(forwards, late.start_s)

    def length_s(order: Order) -> float:
        return order.makespan_s

    made = list(pushed(best))
    yield from made
    best = min([best, *made], key=length_s)
    while True:
        for width in (None, *_WIDTHS):
            if width is None:
                given_s = chance.uniform(size=len(best.start_s))
            else:
                given_s = best.start_s + chance.normal(0.0, width * best.makespan_s, len(best.start_s))
            made = [placed(forwards, given_s)]
            yield made[0]
            for order in pushed(made[0]):
                made.append(order)
                yield order
            best = min([best, *made], key=length_s)


def better_orders(
    best: Order, seed: int, patience: int, is_over: Callable[[float], bool], least_gain: float = 1e-9
) -> Iterator[Order]:
    """Ever shorter orders near the best, until `patience` in a row are without improvement.

    `is_over`, given the length so far, ends it. An improvement is one by the share `least_gain`.
    """
    best_s, without = best.makespan_s, 0
    others = orders_near(best, seed)
    while without < patience and not is_over(best_s):
        other = next(others)
        without += 1
        if other.makespan_s < best_s * (1 - least_gain):
            best_s, without = other.makespan_s, 0
            yield other


def _settled(order: Order) -> Order:
    """The same order and grouping, each transfer as early as possible."""
    table = order.table
    start_s, end_s = [0.0] * len(table), [0.0] * len(table)
    alpha_s, beta_s = table.alpha_s.tolist(), table.beta_s.tolist()
    free_s: dict[int, float] = {}
    for rows in _transfers(order):
        at_s = max((end_s[first] for row in rows for first in table.needs[row]), default=0.0)
        clocks = {clock for row in rows for clock in table.clocks[row]}
        at_s = max(at_s, *(free_s.get(clock, 0.0) for clock in clocks))
        over_s = at_s + (alpha_s[rows[0]] + beta_s[rows[0]] * len(rows))
        for row in rows:
            start_s[row], end_s[row] = at_s, over_s
        free_s.update(dict.fromkeys(clocks, over_s))
    return replace(order, start_s=np.array(start_s), end_s=np.array(end_s))


def _transfers(order: Order) -> list[list[int]]:
    """The rows of each transfer, transfers in order of their starts."""
    transfers: list[list[int]] = []
    place = order.place.tolist()
    for row in np.lexsort((order.place, np.array(order.table.link), order.start_s)).tolist():
        if place[row] > 0:
            transfers[-1].append(row)
        else:
            transfers.append([row])
    return transfers


def _turned(before: list[list[int]]) -> list[list[int]]:
    """The rows that wait for each row, from those that each row waits for; and the other way round."""
    after: list[list[int]] = [[] for _ in before]
    for row, rows in enumerate(before):
        for first in rows:
            after[first].append(row)
    return after


def _urgency(table: Table, before: list[list[int]], rule: Rule, given_s: Floats | None) -> Floats:
    """The smaller goes first."""
    if given_s is not None:
        return -given_s if rule.backwards else given_s
    until_s, onward_s = path_times(table.duration_s.tolist(), before, rule.backwards)
    keys = (until_s, -onward_s) if rule.first == "longest from now" else (-onward_s, until_s)
    rank = np.empty(len(table))
    rank[np.lexsort(keys)] = np.arange(len(table))
    return rank


def path_times(
    duration_s: list[float], before: Sequence[Sequence[int]], backwards: bool = False
) -> tuple[Floats, Floats]:
    """For each row, the time of the longest path before it, and from its start to the end of all that waits for it."""
    until_s, onward_s = [0.0] * len(before), list(duration_s)
    rows = range(len(before) - 1, -1, -1) if backwards else range(len(before))  # what goes before comes first
    for row in rows:
        for first in before[row]:
            until_s[row] = max(until_s[row], until_s[first] + duration_s[first])
    for row in reversed(rows):
        for first in before[row]:
            onward_s[first] = max(onward_s[first], duration_s[first] + onward_s[row])
    return np.array(until_s), np.array(onward_s)


class _Run:
    """Which rows wait at which clock, and which are ready to join others on their link.

    `left[row]`: how many rows must still end before it. `waiting[clock]`, `ready[link]`: heaps of (urgency, row).
    """

    def __init__(self, table: Table, before: list[list[int]], urgency: Floats, rule: Rule) -> None:
        count = len(table)
        self.table, self.urgency, self.rule = table, urgency.tolist(), rule
        self.alpha_s, self.beta_s = table.alpha_s.tolist(), table.beta_s.tolist()
        self.may_join = table.may_join.tolist() if rule.most > 1 else [False] * count
        self.left, self.after = [len(rows) for rows in before], _turned(before)
        self.start_s, self.end_s, self.place = [-1.0] * count, [0.0] * count, [0] * count
        self.free_s = dict.fromkeys((clock for clocks in table.clocks for clock in clocks), 0.0)
        self.waiting: dict[int, list[tuple[float, int]]] = {clock: [] for clock in self.free_s}
        self.ready: dict[int, list[tuple[float, int]]] = {link: [] for link in table.link}
        self.arrivals: list[tuple[float, int]] = []
        self.freed: list[tuple[float, int]] = []
        self.load_s = dict.fromkeys(self.free_s, 0.0)
        if rule.first == "most left to do":
            for clocks, duration_s in zip(table.clocks, table.duration_s.tolist(), strict=True):
                for clock in clocks:
                    self.load_s[clock] += duration_s

    def work(self) -> None:
        """Place every row."""
        clocks = {self._offer(row) for row, left in enumerate(self.left) if not left}
        now_s = 0.0
        while True:
            self._serve(clocks, now_s)
            if not self.arrivals and not self.freed:
                return
            now_s = min(events[0][0] for events in (self.arrivals, self.freed) if events)
            clocks = set()
            while self.arrivals and self.arrivals[0][0] <= now_s:
                for row in self.after[heapq.heappop(self.arrivals)[1]]:
                    self.left[row] -= 1
                    if not self.left[row]:
                        clocks.add(self._offer(row))
            while self.freed and self.freed[0][0] <= now_s:
                clocks.add(heapq.heappop(self.freed)[1])

    def _offer(self, row: int) -> int:
        """A row is ready: it waits at its last clock, which is returned, and may join others on its link."""
        clock = self.table.clocks[row][-1]
        heapq.heappush(self.waiting[clock], (self.urgency[row], row))
        if self.may_join[row]:
            heapq.heappush(self.ready[self.table.link[row]], (self.urgency[row], row))
        return clock

    def _serve(self, clocks: set[int], now_s: float) -> None:
        """Start what waits at some clocks, the most urgent first; what another clock holds up waits for that one."""
        fronts: list[tuple[float, int, int]] = []
        by_load = self.rule.first == "most left to do"
        for clock in clocks:
            self._call(clock, now_s, fronts, by_load)
        while fronts:
            _, row, clock = heapq.heappop(fronts)
            if self.start_s[row] < 0:
                latest = max(self.table.clocks[row], key=self.free_s.__getitem__)
                if self.free_s[latest] > now_s:
                    heapq.heappush(self.waiting[latest], (self.urgency[row], row))
                else:
                    self._start(row, now_s)
            if not by_load:
                self._call(clock, now_s, fronts, by_load)

    def _call(self, clock: int, now_s: float, fronts: list[tuple[float, int, int]], every: bool) -> None:
        """The most urgent row that waits at a free clock comes to the front; every row where it goes by the load."""
        queue = self.waiting[clock]
        while queue and self.free_s[clock] <= now_s:
            urgency, row = heapq.heappop(queue)
            if self.start_s[row] < 0:
                if every:
                    urgency = -sum(max(self.load_s[held], 0.0) ** _POWER for held in self.table.clocks[row])
                heapq.heappush(fronts, (urgency, row, clock))
                if not every:
                    return

    def _start(self, row: int, now_s: float) -> None:
        """Send a row and what may go with it."""
        rows = [row]
        others = self.ready[self.table.link[row]] if self.may_join[row] else []
        held_up = []
        while others and len(rows) < self.rule.most:
            entry = heapq.heappop(others)
            if self.start_s[entry[1]] >= 0 or entry[1] == row:
                continue
            if any(self.free_s[clock] > now_s for clock in self.table.clocks[entry[1]]):
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
            self.load_s[clock] -= end_s - now_s
            heapq.heappush(self.freed, (end_s, clock))
