"""Reordering: other orders of the same sends, from chance and from the best order so far.

Where many sends are equally urgent, a rule that breaks ties by their numbers sends all ranks to the same place at once;
an order by chance does not. And an order is pushed together from both ends: placed backwards in time, those that end
last first, then forwards, those that start first first. Neither direction makes it longer by much, and one of them
often finds a gap that the other left.

Where a send holds many things at once (the cables of a dragonfly), urgent is what holds those that have most to do yet.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.list_scheduling import Table, Timing, settle

__all__ = ["order_by_load", "reorderings"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

_POWER = 4
"""Of what a clock has left to do: the higher, the more the busiest decides alone."""

_WIDTHS = (0.02, 0.1, 0.5)
"""How far an order is shaken, as a part of its length: normal noise on the starts."""


class Timed(Protocol):
    """What has a start and an end for each row, float, and an end of the last."""

    @property
    def start_s(self) -> Floats: ...
    @property
    def end_s(self) -> Floats: ...
    @property
    def makespan_s(self) -> float: ...


Order = TypeVar("Order", bound=Timed)
Pass = Callable[[Floats], Order]
"""A greedy order by numbers that are given, one a row: of those that can go, the one with the smallest goes first."""


def reorderings(forwards: Pass[Order], backwards: Pass[Order], best: Order, seed: int) -> Iterator[Order]:
    """Orders without end: the best one pushed together, then shaken, and orders by chance.

    `backwards` places the ends of the ways first, those with the largest number, and mirrors the time.
    """
    chance = np.random.default_rng(seed)
    pushed = yield from _pushed(forwards, backwards, best)
    best = min(best, pushed, key=_length_s)
    while True:
        for width in (None, *_WIDTHS):
            if width is None:
                given_s = chance.uniform(size=len(best.start_s))
            else:
                given_s = best.start_s + chance.normal(0.0, width * best.makespan_s, len(best.start_s))
            made = forwards(given_s)
            yield made
            pushed = yield from _pushed(forwards, backwards, made)
            best = min(best, made, pushed, key=_length_s)


def _pushed(forwards: Pass[Order], backwards: Pass[Order], best: Order) -> Generator[Order, None, Order]:
    """The order backwards from its end, then forwards again."""
    late = backwards(best.end_s)
    yield late
    early = forwards(late.start_s)
    yield early
    return min(late, early, key=_length_s)


def _length_s(order: Timed) -> float:
    return order.makespan_s


def order_by_load(table: Table) -> Timing:
    """Every send by itself; of those that can start, the one first whose clocks have most left to do."""
    lengths = [len(clocks) for clocks in table.clocks]
    numbers = np.unique(np.concatenate([np.array(clocks) for clocks in table.clocks]), return_inverse=True)[1]
    nothing = int(numbers.max()) + 1
    clocks = np.full((len(table), max(lengths)), nothing)
    clocks[
        np.repeat(np.arange(len(table)), lengths), np.arange(len(numbers)) - np.repeat(_starts(lengths), lengths)
    ] = numbers
    duration_s = table.duration_s
    left_s = np.zeros(nothing + 1)
    np.add.at(left_s, clocks, duration_s[:, None])
    left_s[nothing] = 0.0
    free_s, ready_s = np.zeros(nothing + 1), np.where([bool(rows) for rows in table.needs], np.inf, 0.0)
    waits_for, got_s = [len(rows) for rows in table.needs], np.zeros(len(table))
    children: list[list[int]] = [[] for _ in range(len(table))]
    for row, rows in enumerate(table.needs):
        for first in rows:
            children[first].append(row)
    start_s, todo, now_s = np.zeros(len(table)), np.arange(len(table)), 0.0
    while len(todo):
        rest = todo[(ready_s[todo] <= now_s) & (free_s[clocks[todo]] <= now_s).all(axis=1)]
        heat = ((left_s / left_s.max()) ** _POWER)[clocks[rest]].sum(axis=1)
        started = []
        for row in rest[np.argsort(-heat, kind="stable")].tolist():
            its = clocks[row, : lengths[row]]
            if (free_s[its] <= now_s).all():
                started.append(row)
                start_s[row] = now_s
                free_s[its] = now_s + duration_s[row]
                left_s[its] -= duration_s[row]
                for child in children[row]:
                    waits_for[child] -= 1
                    got_s[child] = max(got_s[child], now_s + duration_s[row])
                    if not waits_for[child]:
                        ready_s[child] = got_s[child]
        left_s = np.maximum(left_s, 0.0)
        todo = np.setdiff1d(todo, np.array(started, dtype=np.int64), assume_unique=True)
        later = np.concatenate([free_s[free_s > now_s], ready_s[todo][ready_s[todo] > now_s]])
        now_s = float(later.min(initial=np.inf))
    place = np.zeros(len(table), dtype=np.int64)
    return settle(table, Timing(start_s, start_s + duration_s, place, "most left to do"))


def _starts(lengths: list[int]) -> Ids:
    return np.append(0, np.cumsum(lengths)[:-1])
