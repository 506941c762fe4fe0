"""Label setting for any cost functions and modes, from either end, exact or relaxed.

A label stands for a fusion of the gradients before a cut: their backward passes and compression have come to an end, so
has their communication, and their decoding. What comes after depends on nothing else and rises with all three, so a
label is dominated by another of the same cut that is no worse in any. Where cores are counted, so is a label's work,
and it must be no more either.

Read backwards it is the same question with decoding first. A label then stands for a fusion of what is behind a cut:
how long before the end of the step its decoding must begin, its collectives, its computing. A label in front and one
behind make a step that ends with the largest of three sums. So the labels of one direction bound those of the other,
and say which groups can be in a better fusion at all.

Where a cut has too many labels, a *relaxed* sweep merges neighbours into labels that are no worse than either in any
column: it bounds all fusions. The other kind keeps those with the least bounds: it finds a fusion. Either is exact
where no cut had too many.

The third column matters only where decoding is behind: the next group is decoded after its own collective, so that an
end before the end of the least next collective is as good as any other. Where that holds for all labels of a cut, it is
two numbers that are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gapless.array_types import Floats, Ints, Mask
from gapless.encodings.cupcake.methods.fronts import front_of_four, front_of_three, front_of_two
from gapless.options import Deadline
from gapless.profiles.gradients.fusion import Costs, Fusion

__all__ = ["START", "Bounded", "Bounds", "Labels", "Sweep", "Work", "all_arcs", "sweep"]

START: Floats = np.zeros((4, 1))
"""Where nothing is done yet; the rows are as in `Labels.ends_s`."""

_MIRRORED = [2, 1, 0, 3]
"""The rows of `Labels.ends_s` as the other direction has them."""


class Bounds(Protocol):
    """What a sweep asks before it keeps labels."""

    def bound_s(self, costs: Costs, k: int, ends_s: Floats) -> Floats:
        """The least end of a step, shape (labels,), whose gradients on one side of cut k have come to `ends_s`."""


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
class Work:
    """What is left: `extensions` of labels by one more group, and time."""

    deadline: Deadline
    extensions: float

    @property
    def is_over(self) -> bool:
        """Whether a search ends."""
        return self.extensions < 0 or self.deadline.over


@dataclass(frozen=True)
class Labels:
    """Of one cut, n of them.

    `ends_s`: float, shape (4, n): when computing, communication and decoding are over, seconds after the backward pass
    begins (before the end of the step, where decoding stands first, in a sweep from the end); and processor seconds.
    `cut`, `row`, `mode`: int, shape (n,): the label each came from, and the mode of its last group, by number.
    """

    ends_s: Floats
    cut: Ints
    row: Ints
    mode: Ints

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.ends_s.shape[1])


@dataclass(frozen=True)
class Sweep:
    """What labels from one end have come to.

    `labels`: of each cut, None where none is left. `arcs`: bool, shape (modes, N + 1, N + 1): groups, by their first
    and last cut, that can be in a better fusion. `bound_end_s`: no better fusion ends sooner, inf where there is none.
    Both are true of a sweep that is relaxed or exact. `fusion`: what the best label at the end stands for, None where
    there is none. `is_exact`: no cut had too many labels.
    """

    labels: tuple[Labels | None, ...]
    arcs: Mask
    bound_end_s: float
    fusion: Fusion | None
    is_exact: bool

    @property
    def counts(self) -> tuple[int, int]:
        """Labels in all, but for the start, and the most at a cut."""
        counts = [0 if labels is None else labels.count for labels in self.labels]
        return sum(counts) - 1, max(counts)

    def bound_s(self, costs: Costs, k: int, ends_s: Floats) -> Floats:
        """Of labels of the other direction: the least end that one here makes with each; inf where there is none.

        Of each two of the three sums the least maximum is found apart from the third.
        """
        here = self.labels[k]
        if here is None:
            return np.full(ends_s.shape[1], np.inf)
        there_s = here.ends_s[_MIRRORED]
        pairs = [_least_of_two(ends_s[[a, b]], there_s[[a, b]]) for a, b in ((0, 1), (1, 2), (0, 2))]
        return np.asarray(np.maximum(np.max(pairs, axis=0), costs.worked_s(ends_s[3] + there_s[3].min())))


def _least_of_two(ends_s: Floats, there_s: Floats) -> Floats:
    """For each column of the one the least, over those of the other, of the larger of the two sums of rows."""
    stairs = there_s[:, front_of_two(*there_s)]
    cross = np.searchsorted(stairs[0] - stairs[1], ends_s[1] - ends_s[0])
    rising_s = ends_s[0] + np.append(stairs[0], np.inf)[cross]
    falling_s = ends_s[1] + np.append(np.inf, stairs[1])[cross]
    return np.asarray(np.minimum(rising_s, falling_s))


_START = Labels(START, *np.full((3, 1), -1))


def all_arcs(costs: Costs) -> Mask:
    """Every group in every mode."""
    size = costs.count + 1
    return np.repeat(np.triu(np.ones((1, size, size), dtype=np.bool_), 1), len(costs.modes), axis=0)


@dataclass(frozen=True)
class _Extended:
    """Labels with one more group: `ends_s` as in `Labels`; of each group the cut on its other side, its mode, and the
    column of its first label; and the direction."""

    forwards: bool
    ends_s: Floats
    cut: Ints
    mode: Ints
    first: Ints

    def taken(self, columns: Ints) -> Labels:
        """Some of them."""
        group = np.searchsorted(self.first, columns, side="right") - 1
        return Labels(self.ends_s[:, columns], self.cut[group], columns - self.first[group], self.mode[group])


def sweep(
    costs: Costs, arcs: Mask, rest: Bounds, below_s: float, most: int, work: Work,
    forwards: bool = True, is_relaxed: bool = False,
) -> Sweep | None:  # fmt: skip
    """Labels of the fusions of `arcs` that can end before `below_s`, by what `rest` says of the other side of a cut.

    `most`: labels at a cut; of more the best are kept, or neighbours merged in a relaxed sweep. None where work came to
    its end first.
    """
    first, last = (0, costs.count) if forwards else (costs.count, 0)
    labels: list[Labels | None] = [None] * (costs.count + 1)
    labels[first] = _START
    alive, across_s, is_exact = np.zeros_like(arcs), np.full(costs.count + 1, np.inf), True
    for at in range(1, last + 1) if forwards else range(first - 1, -1, -1):
        extended = _extended(costs, arcs[:, :, at] if forwards else arcs[:, at, :], labels, at, forwards)
        if extended is None:
            continue
        work.extensions -= extended.ends_s.shape[1]
        if work.is_over:
            return None
        bound_s = _end_s(costs, extended.ends_s) if at == last else rest.bound_s(costs, at, extended.ends_s)
        least_s = np.minimum.reduceat(bound_s, extended.first)
        alive[extended.mode, extended.cut, at] = least_s < below_s
        _note_across(across_s, extended.cut, at, least_s)
        chosen = np.flatnonzero(bound_s < below_s)
        if not len(chosen):
            continue
        if at == last:
            chosen = chosen[[bound_s[chosen].argmin()]]
        send_s = costs.least_send_s[at] if forwards else costs.least_send_to_s[at]
        labels[at], is_all = _kept(costs, extended, chosen, bound_s, send_s, most, is_relaxed)
        is_exact &= is_all
    across_s = across_s[:-1] if forwards else across_s[1:]
    arcs = alive if forwards else alive.transpose(0, 2, 1)
    return Sweep(tuple(labels), arcs, float(across_s.max()), _fusion(costs, labels, last), is_exact)


def _end_s(costs: Costs, ends_s: Floats) -> Floats:
    """When steps are over whose gradients have all come to this."""
    return np.asarray(np.maximum(ends_s[:3].max(axis=0), costs.worked_s(ends_s[3])))


def _extended(costs: Costs, arcs: Mask, labels: list[Labels | None], at: int, forwards: bool) -> _Extended | None:
    """All labels with one more group up to cut `at`, mode by mode; `arcs`: bool, shape (modes, N + 1), of that cut."""
    columns, cuts, modes, sizes = list[Floats](), list[Ints](), list[Ints](), list[Ints]()
    for number, mode in enumerate(costs.modes):
        there = np.array([k for k in np.flatnonzero(arcs[number]).tolist() if labels[k] is not None], dtype=np.int64)
        if not len(there):
            continue
        blocks = [each.ends_s for k in there.tolist() if (each := labels[k]) is not None]
        counts = np.array([block.shape[1] for block in blocks])
        start, end = (there, at) if forwards else (at, there)
        compute_s = costs.ready_s[end] - costs.ready_s[start] + mode.compress_s(start, end)
        steps_s = [compute_s, mode.send_s(start, end), mode.decode_s(start, end)]
        steps_s = steps_s if forwards else steps_s[::-1]
        group = np.repeat(np.arange(len(there)), counts)
        ends_s = np.concatenate(blocks, axis=1)
        ends_s[0] += steps_s[0][group]
        ends_s[1] = np.maximum(ends_s[1], ends_s[0]) + steps_s[1][group]
        ends_s[2] = np.maximum(ends_s[2], ends_s[1]) + steps_s[2][group]
        if costs.cores:
            ends_s[3] += mode.work_s(start, end)[group]
        columns.append(ends_s)
        cuts.append(there)
        modes.append(np.full(len(there), number))
        sizes.append(counts)
    if not columns:
        return None
    size = np.concatenate(sizes)
    return _Extended(
        forwards, np.concatenate(columns, axis=1), np.concatenate(cuts), np.concatenate(modes), np.cumsum(size) - size
    )


def _note_across(across_s: Floats, cuts: Ints, at: int, least_s: Floats) -> None:
    """Lowers, for every place between a cut and `at`, the least end of a step with a group across it.

    Every fusion has a group across each place, so that the largest of these is a bound.
    """
    by_cut = np.full(len(across_s), np.inf)
    np.minimum.at(by_cut, cuts, least_s)
    if cuts[0] < at:
        across_s[:at] = np.minimum(across_s[:at], np.minimum.accumulate(by_cut[:at]))
    else:
        across_s[at + 1 :] = np.minimum(across_s[at + 1 :], np.minimum.accumulate(by_cut[:at:-1])[::-1])


def _kept(
    costs: Costs, extended: _Extended, chosen: Ints, bound_s: Floats, least_send_s: float, most: int, is_relaxed: bool
) -> tuple[Labels, bool]:
    """At most so many labels for those chosen, and whether no other could lead to anything better.

    Many are compared by computing and communication alone. A relaxed sweep then gives a label the least of the others,
    and of those that it beats.
    """
    first, send_s, third, work_s = extended.ends_s[:, chosen]
    third = np.maximum(third, send_s + least_send_s)
    compute_s, decode_s = (first, third) if extended.forwards else (third, first)
    more = [work_s] if costs.cores else []
    if (decode_s > (send_s + least_send_s if extended.forwards else decode_s.min())).any():
        more.append(decode_s)
    if len(chosen) <= _COMPARED or not more:
        chosen = chosen[_front(compute_s, send_s, more)]
        if len(chosen) <= most:
            return extended.taken(chosen), True
        parts = np.arange(len(chosen))
    else:
        order = np.lexsort((send_s, compute_s))
        chosen, parts = chosen[order], _stairs(send_s[order])
    if is_relaxed:
        return _merged(extended, chosen, parts, bound_s, most), False
    chosen = chosen[parts]
    return extended.taken(np.sort(chosen[np.argsort(bound_s[chosen], kind="stable")[:most]])), False


_COMPARED = 4096
"""Labels of a cut that are compared in more than two rows, which takes a thousand times as long for each."""


def _stairs(second: Floats) -> Ints:
    """Where less comes than all before."""
    least = np.minimum.accumulate(second)
    return np.append(0, 1 + np.flatnonzero(least[1:] < least[:-1]))


def _front(compute_s: Floats, send_s: Floats, more: list[Floats]) -> Ints:
    """The columns that no other beats in all that counts, sorted by the first row."""
    if len(more) == 2:
        return front_of_four(compute_s, send_s, *more)
    return front_of_three(compute_s, send_s, *more) if more else front_of_two(compute_s, send_s)


def _merged(extended: _Extended, chosen: Ints, parts: Ints, bound_s: Floats, most: int) -> Labels:
    """At most so many labels: each stands for a stretch of those chosen, is no worse than any of them, and came from
    the one with the least bound. `parts`: where stretches begin at least; of those the ones that differ most stay."""
    ends_s, bound_s = extended.ends_s[:, chosen], bound_s[chosen]
    if len(parts) > most:
        apart_s = np.abs(np.diff(ends_s[[0 if extended.forwards else 2, 1]][:, parts])).sum(axis=0)
        parts = np.append(0, parts[1 + np.sort(np.argsort(apart_s, kind="stable")[len(parts) - most :])])
    part = np.searchsorted(parts, np.arange(len(chosen)), side="right")
    best = extended.taken(chosen[np.lexsort((bound_s, part))[parts]])
    return Labels(np.minimum.reduceat(ends_s, parts, axis=1), best.cut, best.row, best.mode)


def _fusion(costs: Costs, labels: list[Labels | None], last: int) -> Fusion | None:
    """What the label at the last cut came from."""
    groups, at, row = list[tuple[int, str]](), last, 0
    while (here := labels[at]) is not None and here.mode[row] >= 0:
        before = int(here.cut[row])
        groups.append((max(at, before), costs.names[here.mode[row]]))
        at, row = before, int(here.row[row])
    if not groups:
        return None
    ends, modes = zip(*sorted(groups), strict=True)
    return Fusion(ends, modes)
