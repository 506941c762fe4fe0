"""Replay of a run, window by window, so that memory doesn't grow with its batches.

A window is a stretch of time that begins with a prefetch or a forward pass. Of the batches that have events in it, rows
are grouped by what the replay knows of them at its start, and by what happens to them in it (`phases.py`). A batch is
needed twice: for its prefetch, when only the rows count that are fetched, and L batches later for all else. Rooted rows
are sent to it while the two batches before it are synchronised, by whoever holds them then: `Settled` goes past the
batches that have been trained.

Rows that trainers exchange have a history each, if it is long: who used a row, who uses it next. So where there are
such rows, owned or rooted, windows are short, and begin with backward passes' ends too: then the users' copies are
gone, and the next ones' aren't there yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.checker import Report
from gapless.checker.windowed.windows import Window, WindowedReplay
from gapless.encodings.bagpipe.designs.pipeline import Spans, Times
from gapless.encodings.bagpipe.ids.distinct import distinct
from gapless.encodings.bagpipe.lowering.actions import BY_USERS, Actions, RowGroups
from gapless.encodings.bagpipe.lowering.machine import Machine
from gapless.encodings.bagpipe.lowering.phases import actions_in
from gapless.encodings.bagpipe.lowering.schedule import Stretch, lowered
from gapless.ir.schedule_builder import no_collection

__all__ = ["MOST_ROWS", "Batches", "Settled", "replay_run"]

MOST_ROWS = 2**19
"""Of all batches of a window together, about: 7 batches of 16,384 x 26 on a click log."""


class Batches(Protocol):
    """What the trainers do, batch by batch. `rows`: int64, how many rows each batch has."""

    @property
    def rows(self) -> Ints:
        """Int64, how many rows each batch has."""

    def actions(self, number: int) -> Actions:
        """Those of a batch."""


class Settled:
    """Who holds each row after the first batches of a run, of which a stretch needs no more than that.

    Rows that were written back are forgotten: memory grows with the cache.
    """

    def __init__(self) -> None:
        self._ids = np.empty(0, dtype=np.int64)  # ascending
        self._root = np.empty(0, dtype=np.int64)

    def of(self, ids: Ints) -> Ints:
        """The holder of each row, -1 for nobody."""
        place, is_there = self._places(ids)
        root = np.full(len(ids), -1)
        root[is_there] = self._root[place[is_there]]
        return root

    def add(self, batch: Actions) -> None:
        """Go past the next batch."""
        rooted = batch.fetched_by <= BY_USERS
        place, is_there = self._places(batch.ids[rooted])
        stays = np.ones(len(self._ids), dtype=np.bool_)
        stays[place[is_there]] = False
        held = rooted & (batch.evicted == 0)
        ids = np.concatenate([self._ids[stays], batch.ids[held]])
        order = np.argsort(ids, kind="stable")  # two runs to merge
        self._ids, self._root = ids[order], np.concatenate([self._root[stays], batch.private_to[held]])[order]

    def _places(self, ids: Ints) -> tuple[Ints, Mask]:
        place = np.searchsorted(self._ids, ids)
        is_there = place < len(self._ids)
        is_there[is_there] = self._ids[place[is_there]] == ids[is_there]
        return place, is_there


@dataclass(frozen=True)
class _Extent:
    """From when on and until when each batch has events: of its prefetch, and of all else; shape (batches,)."""

    fetch: Spans
    use: Spans

    @classmethod
    def of(cls, times: Times, is_rooted: bool) -> _Extent:
        fetch = times.prefetch
        others = [getattr(times, name) for name in vars(times) if isinstance(getattr(times, name), Spans)]
        others = [span for span in others if span is not fetch]
        # What a partitioned cache exchanges starts once the prefetch and the batch before it allow it.
        trained_s = np.append(0.0, times.sync_now.end_s[:-1])
        starts = [np.maximum(trained_s, fetch.end_s), *(span.start_s for span in others)]
        if is_rooted:
            sent = ((1, times.sync_now), (2, times.sync_later))
            starts += [np.append([np.inf] * after, span.start_s)[: len(trained_s)] for after, span in sent]
        start_s = np.minimum.reduce(starts)
        return cls(fetch, Spans(start_s, np.maximum.reduce([span.end_s for span in others])))


@no_collection()
def replay_run(
    batches: Batches, times: Times, machine: Machine, most_rows: int = MOST_ROWS,
    on_progress: Callable[[float], None] = lambda share: None,
) -> Report:  # fmt: skip
    """What the checker finds, with `most_rows` in a window, but at least a batch. `on_progress`: is called with the
    share of the batches that are over.
    """
    first = batches.actions(0)
    is_rooted = bool(first.is_rooted.any())  # nobody holds the first batch's rows before it
    exchanges = is_rooted or bool(first.is_owned.any())
    extent = _Extent.of(times, is_rooted)
    makespan_s = float(max(extent.use.end_s.max(), extent.fetch.end_s.max()))
    replay, at_hand = WindowedReplay(machine.topology(), makespan_s), dict[int, Actions]()
    bits: dict[int, int] = {}
    settled, past = Settled(), 0
    borders = [-np.inf, *_borders(batches.rows, times, most_rows, exchanges), np.inf]
    for from_s, until_s in pairwise(borders):
        fetching = (extent.fetch.start_s < until_s) & (extent.fetch.end_s >= from_s)
        using = (extent.use.start_s < until_s) & (extent.use.end_s >= from_s)
        numbers = np.flatnonzero(fetching | using).tolist()
        used = frozenset(np.flatnonzero(using).tolist())
        while is_rooted and past < len(batches.rows) and times.is_trained(past, from_s):
            settled.add(at_hand.get(past) or batches.actions(past))
            past += 1
        at_hand = {number: at_hand.get(number) or batches.actions(number) for number in numbers}
        bits = _numbered(bits, sorted(used), replay.contributions)
        lasts = extent.use.end_s >= until_s
        lasting = sum(1 << bit for number, bit in bits.items() if lasts[number])
        stretch = Stretch(numbers, used, bits, from_s, until_s, held=1)
        replay.add(_window(replay, stretch, at_hand, settled, times, machine, lasting))
        on_progress(float((extent.use.end_s < until_s).mean()))
    return replay.report()


def _numbered(before: dict[int, int], numbers: list[int], taken: int) -> dict[int, int]:
    """A contribution for each batch: the one it had, or one that nothing else has."""
    bits = {number: before[number] for number in numbers if number in before}
    taken |= 1 | sum(1 << bit for bit in bits.values())
    free = (bit for bit in range(taken.bit_length() + len(numbers)) if not taken >> bit & 1)
    for number in numbers:
        if number not in bits:
            bits[number] = next(free)
    return bits


def _window(
    replay: WindowedReplay, stretch: Stretch, at_hand: dict[int, Actions], settled: Settled, times: Times,
    machine: Machine, lasting: int,
) -> Window:  # fmt: skip
    """The schedule of a stretch, with rows in groups that have one state for the replay."""
    parts = {
        number: actions
        for number in stretch.numbers
        if (actions := actions_in(stretch, number, at_hand[number], times)) is not None
    }
    stretch = replace(stretch, numbers=list(parts))
    devices = machine.cluster.trainers + 1
    atoms = distinct(np.concatenate([replay.open_atoms(), *(actions.ids for actions in parts.values())]))
    root_of, label_of = settled.of(atoms), replay.labels(atoms)
    of_atoms = (label_of * devices + root_of + 1) * devices + machine.device_of(atoms)
    groups = RowGroups.of(list(parts.values()), atoms, of_atoms)
    root = np.full(len(groups.rows), -1)
    root[groups.part] = root_of
    label = np.zeros(len(groups.rows), dtype=np.int64)
    label[groups.part] = label_of
    needed = replay.needed(label)
    seen = [held if known else stretch.held for held, known in zip(needed, label.tolist(), strict=True)]
    schedule = lowered(groups, seen, stretch, times, machine, replay.open_names(), root.tolist())
    is_last = stretch.until_s == np.inf
    return Window(schedule, groups.ids, groups.part, lasting, is_last, stretch.until_s)


def _borders(rows: Ints, times: Times, most_rows: int, exchanges: bool) -> list[float]:
    """When windows begin, so that prefetches and passes of each have about so many rows; where trainers exchange rows,
    so that passes have an eighth of that.
    """
    starts, weights = [times.prefetch.start_s, times.forward.start_s], [rows, rows]
    if exchanges:
        starts.append(times.backward.end_s)
        weights = [rows, *[8 * rows] * 2]
    start_s, weight = np.concatenate(starts), np.concatenate(weights)
    order = np.argsort(start_s, kind="stable")
    number = np.cumsum(weight[order]) // max(most_rows, 1)
    firsts = np.flatnonzero(np.diff(number)) + 1
    return sorted({float(time_s) for time_s in start_s[order][firsts]} - {float(start_s.min())})
