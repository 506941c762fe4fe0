"""Exact label setting for any cost functions and modes.

A label stands for a fusion of the first k gradients: the sum of its compression times, the end of its communication,
and the end of its decoding. What comes after depends on nothing else and rises with all three, so a label is dominated
by another of the same k that is no worse in any. Labels that can't lead below the incumbent go too. There may be
exponentially many left in the worst case; past a cap, those with the least bounds are kept, and the answer says how
good it can be. A label is extended in every mode. Where cores are counted, so is a label's work, and it must be no more
either.

The end of decoding matters only where decoding is behind: the next group is decoded after its own collective, so that
an end before the end of the least next collective is as good as any other. Where that holds for all labels of a cut, it
is two numbers that are compared.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.options import Deadline
from gapless.profiles.gradients.fusion import Costs, Fusion

__all__ = ["Bounded", "Bounds", "Ends", "solve_pareto"]


@dataclass(frozen=True)
class Ends:
    """Where fusions of the first gradients have come to, one row each, in seconds after the backward pass begins.

    `compress_s`: the sum of compression times. `sent_s`, `decoded_s`: the network is free, decoding is over. `work_s`:
    the sum of the groups' processor seconds.
    """

    compress_s: Floats
    sent_s: Floats
    decoded_s: Floats
    work_s: Floats

    @classmethod
    def start(cls) -> Ends:
        """Nothing is done yet."""
        return cls(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))

    def take(self, rows: Ints | slice) -> Ends:
        """Some of the rows."""
        return Ends(self.compress_s[rows], self.sent_s[rows], self.decoded_s[rows], self.work_s[rows])

    def end_s(self, costs: Costs) -> Floats:
        """When the step is over that has come to this with its last gradient."""
        return np.maximum(self.decoded_s, costs.worked_s(self.work_s))


class Bounds(Protocol):
    """What a search asks before it keeps labels."""

    def bound_s(self, costs: Costs, k: int, ends: Ends) -> Floats:
        """The least end of a step whose first k gradients have come to `ends`."""


@dataclass(frozen=True)
class Bounded:
    """The best fusion, the least end that any fusion can have, and what was counted, by name."""

    fusion: Fusion
    bound_end_s: float
    counts: Mapping[str, int]

    @classmethod
    def by_labels(cls, fusion: Fusion, bound_end_s: float, labels: int = 0, most_labels: int = 0) -> Bounded:
        """With the labels that were kept, and the most at one cut."""
        return cls(fusion, bound_end_s, {"labels": labels, "most_labels": most_labels})


@dataclass
class _Labels:
    """All labels so far, in columns: k, where they have come to, the label each came from, its last group's mode."""

    k: Ints
    compress_s: Floats
    sent_s: Floats
    decoded_s: Floats
    work_s: Floats
    parent: Ints
    mode: Ints
    count: int = 1

    @classmethod
    def start(cls) -> _Labels:
        size = 1024
        k, mode, parent = np.zeros(size, np.int64), np.zeros(size, np.int64), np.full(size, -1, np.int64)
        compress_s, sent_s, decoded_s, work_s = np.zeros((4, size))
        return cls(k, compress_s, sent_s, decoded_s, work_s, parent, mode)

    def add(self, k: int, ends: Ends, parent: Ints, mode: Ints) -> None:
        while self.count + len(parent) > len(self.k):
            for title in ("k", "compress_s", "sent_s", "decoded_s", "work_s", "parent", "mode"):
                column = getattr(self, title)
                setattr(self, title, np.concatenate([column, np.zeros_like(column)]))
        rows = slice(self.count, self.count + len(parent))
        self.k[rows], self.parent[rows], self.mode[rows] = k, parent, mode
        for title in ("compress_s", "sent_s", "decoded_s", "work_s"):
            getattr(self, title)[rows] = getattr(ends, title)
        self.count += len(parent)

    def ends(self, rows: slice) -> Ends:
        return Ends(self.compress_s[rows], self.sent_s[rows], self.decoded_s[rows], self.work_s[rows])

    def fusion(self, label: int, names: tuple[str, ...]) -> Fusion:
        ends, modes = [], []
        while self.parent[label] >= 0:
            ends.append(int(self.k[label]))
            modes.append(names[self.mode[label]])
            label = int(self.parent[label])
        return Fusion(tuple(ends[::-1]), tuple(modes[::-1]))


def solve_pareto(
    costs: Costs,
    rest: Bounds,
    incumbent: Fusion,
    incumbent_end_s: float,
    deadline: Deadline,
    most: int,
    most_extensions: float = math.inf,
) -> Bounded:
    """The fusion with the least step time, or the best found and a bound where the deadline came first.

    `most`: labels that are kept at a cut; where there are more, the answer is the best found, with a bound, too.
    `most_extensions`: times that a label gets one more group, in each mode; with more of them to do the search ends, as
    out of time.
    """
    labels, extensions = _Labels.start(), 0
    best_end_s, fusion, bound_s, most_here = incumbent_end_s, incumbent, math.inf, 0
    for j in range(1, costs.count + 1):
        extensions += labels.count * len(costs.modes)
        if deadline.over or extensions > most_extensions:
            # Every fusion that isn't covered yet goes through one of the labels that are there.
            bound_s = min(bound_s, _least_bound_s(costs, rest, labels))
            break
        before, ends = labels.count, _extended(costs, labels, j)
        ahead_s = rest.bound_s(costs, j, ends)
        chosen = np.flatnonzero(ahead_s < best_end_s)
        chosen = chosen[_front(costs, ends.take(chosen), costs.least_send_s[j])]
        if len(chosen) > most:
            ranked = chosen[np.argsort(ahead_s[chosen], kind="stable")]
            bound_s = min(bound_s, float(ahead_s[ranked[most]]))
            chosen = np.sort(ranked[:most])
        most_here = max(most_here, len(chosen))
        labels.add(j, ends.take(chosen), chosen % before, chosen // before)
        if j == costs.count and len(chosen):
            end_s = ends.take(chosen).end_s(costs)
            first = int(end_s.argmin())
            best_end_s = float(end_s[first])
            fusion = labels.fusion(labels.count - len(chosen) + first, costs.names)
    return Bounded.by_labels(fusion, min(bound_s, best_end_s), labels.count - 1, most_here)


def _extended(costs: Costs, labels: _Labels, j: int) -> Ends:
    """Every label with one more group, up to gradient j - 1: all labels in the first mode, then all in the next."""
    rows = slice(0, labels.count)
    starts, before = labels.k[rows], labels.ends(rows)
    columns: list[tuple[Floats, ...]] = []
    for mode in costs.modes:
        compress_s = before.compress_s + mode.compress_s(starts, j)
        sent_s = np.maximum(before.sent_s, costs.ready_s[j] + compress_s) + mode.send_s(starts, j)
        decoded_s = np.maximum(before.decoded_s, sent_s)
        if mode.decodes_after:
            decoded_s += mode.decode_s(starts, j)
        work_s = before.work_s + mode.work_s(starts, j) if costs.cores else before.work_s
        columns.append((compress_s, sent_s, decoded_s, work_s))
    return Ends(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _least_bound_s(costs: Costs, rest: Bounds, labels: _Labels) -> float:
    cuts, starts = np.unique(labels.k[: labels.count], return_index=True)  # labels stand in the order of their cuts
    blocks = zip(cuts.tolist(), starts.tolist(), [*starts[1:].tolist(), labels.count], strict=True)
    return min(float(rest.bound_s(costs, k, labels.ends(slice(first, end))).min()) for k, first, end in blocks)


def _front(costs: Costs, ends: Ends, least_send_s: float) -> Ints:
    """The rows that no other beats in all that counts, sorted by the sum of compression."""
    decoded_s = np.maximum(ends.decoded_s, ends.sent_s + least_send_s)
    is_behind = bool((decoded_s > ends.sent_s + least_send_s).any())
    if is_behind and costs.cores:
        return _front_of_four(ends.compress_s, ends.sent_s, decoded_s, ends.work_s)
    if is_behind or costs.cores:
        return _front_of_three(ends.compress_s, ends.sent_s, decoded_s if is_behind else ends.work_s)
    return _front_of_two(ends.compress_s, ends.sent_s)


_AT_ONCE = 256
"""Rows that are compared with all that are kept at once."""


def _front_of_four(*columns: Floats) -> Ints:
    """The rows that no other beats in all four, sorted by the first: each block against those kept, then in itself."""
    order = np.lexsort(columns[::-1])
    rows = np.stack(columns[1:], axis=1)[order]  # a row is beaten by none that comes later
    kept, at = np.zeros((0, rows.shape[1])), list[Ints]()
    for first in range(0, len(rows), _AT_ONCE):
        block = rows[first : first + _AT_ONCE]
        earlier = np.tri(len(block), k=-1, dtype=np.bool_)
        among = np.all(block[np.newaxis] <= block[:, np.newaxis], axis=2) & earlier
        beaten = np.any(np.all(kept[np.newaxis] <= block[:, np.newaxis], axis=2), axis=1) | np.any(among, axis=1)
        kept = np.concatenate([kept, block[~beaten]])
        at.append(first + np.flatnonzero(~beaten))
    return np.asarray(order[np.concatenate([np.zeros(0, np.int64), *at])])


def _front_of_three(first: Floats, second: Floats, third: Floats) -> Ints:
    """The rows that no other beats in all three, sorted by the first."""
    order = np.lexsort((third, second, first))
    # The staircase of those before, which all have less of the first: seconds that rise, thirds that fall.
    seconds, thirds, kept = [-math.inf], [math.inf], []
    columns = (order.tolist(), second[order].tolist(), third[order].tolist())
    for row, second_at, third_at in zip(*columns, strict=True):
        if thirds[bisect_right(seconds, second_at) - 1] <= third_at:
            continue
        kept.append(row)
        begin = end = bisect_left(seconds, second_at)
        while end < len(seconds) and thirds[end] >= third_at:
            end += 1
        seconds[begin:end], thirds[begin:end] = [second_at], [third_at]
    return np.array(kept, dtype=np.int64)


def _front_of_two(first: Floats, second: Floats) -> Ints:
    """The rows that no other beats in both: sorted by the first, each with less of the second than all before it."""
    order = np.lexsort((second, first))
    least = np.minimum.accumulate(second[order])
    better = np.ones(len(order), dtype=np.bool_)
    better[1:] = least[1:] < least[:-1]
    return np.asarray(order[better])
