"""Exact label setting for any cost functions.

A label stands for a grouping of the first k gradients: the sum of its compression times, and the end of its
communication. What comes after depends on nothing else and rises with both, so a label is dominated by another of the
same k that is no worse in either. Labels that can't lead below the incumbent go too. There may be exponentially many
left in the worst case; past a cap, those with the least bounds are kept, and the answer says how good it can be.
Where groups may be sent plain, each has two modes, and a label is extended in both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cupcake.fusion import Costs, Fusion
from gapless.options import Deadline

__all__ = ["Bounds", "Labelled", "solve_pareto"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Bounds(Protocol):
    """What a search asks before it keeps labels."""

    def bound_s(self, costs: Costs, k: int, compress_s: Floats, sent_s: Floats) -> Floats:
        """The least end of a step whose first k gradients were compressed in `compress_s` and sent at `sent_s`."""


@dataclass(frozen=True)
class Labelled:
    """The best fusion, the least end that any fusion can have, the labels that were kept and the most at one prefix."""

    fusion: Fusion
    bound_end_s: float
    labels: int
    most_labels: int


@dataclass
class _Labels:
    """All labels so far, in columns: k, sum of compression, end of communication, the label each came from, and whether
    its last group is sent plain."""

    k: Ints
    compress_s: Floats
    sent_s: Floats
    parent: Ints
    is_plain: Bools
    count: int = 1

    @classmethod
    def start(cls) -> _Labels:
        size = 1024
        parent = np.full(size, -1, np.int64)
        return cls(np.zeros(size, np.int64), np.zeros(size), np.zeros(size), parent, np.zeros(size, np.bool_))

    def add(self, k: int, compress_s: Floats, sent_s: Floats, parent: Ints, is_plain: Bools) -> None:
        while self.count + len(parent) > len(self.k):
            for title in ("k", "compress_s", "sent_s", "parent", "is_plain"):
                column = getattr(self, title)
                setattr(self, title, np.concatenate([column, np.zeros_like(column)]))
        rows = slice(self.count, self.count + len(parent))
        self.k[rows], self.compress_s[rows], self.sent_s[rows] = k, compress_s, sent_s
        self.parent[rows], self.is_plain[rows] = parent, is_plain
        self.count += len(parent)

    def fusion(self, label: int) -> Fusion:
        groups = []
        while self.parent[label] >= 0:
            groups.append((int(self.k[label]), bool(self.is_plain[label])))
            label = int(self.parent[label])
        return Fusion.of(groups[::-1])


def solve_pareto(
    costs: Costs,
    rest: Bounds,
    incumbent: Fusion,
    incumbent_end_s: float,
    deadline: Deadline,
    most: int,
    most_extensions: float = math.inf,
) -> Labelled:
    """The fusion with the least step time, or the best found and a bound where the deadline came first.

    `most`: labels that are kept at a cut; where there are more, the answer is the best found, with a bound, too.
    `most_extensions`: times that a label gets one more group; with more of them to do the search ends, as out of time.
    """
    labels, extensions = _Labels.start(), 0
    best_end_s, fusion, bound_s, most_here = incumbent_end_s, incumbent, math.inf, 0
    for j in range(1, costs.count + 1):
        extensions += labels.count
        if deadline.over or extensions > most_extensions:
            # Every fusion that isn't covered yet goes through one of the labels that are there.
            bound_s = min(bound_s, _least_bound_s(costs, rest, labels))
            break
        before, (compress_s, sent_s) = labels.count, _extended(costs, labels, j)
        ahead_s = rest.bound_s(costs, j, compress_s, sent_s)
        chosen = np.flatnonzero(ahead_s < best_end_s)
        chosen = chosen[_front(compress_s[chosen], sent_s[chosen])]
        if len(chosen) > most:
            ranked = chosen[np.argsort(ahead_s[chosen], kind="stable")]
            bound_s = min(bound_s, float(ahead_s[ranked[most]]))
            chosen = np.sort(ranked[:most])
        most_here = max(most_here, len(chosen))
        labels.add(j, compress_s[chosen], sent_s[chosen], chosen % before, chosen >= before)
        if j == costs.count and len(chosen):
            first = labels.count - len(chosen) + int(sent_s[chosen].argmin())
            best_end_s, fusion = float(labels.sent_s[first]), labels.fusion(first)
    return Labelled(fusion, min(bound_s, best_end_s), labels.count - 1, most_here)


def _extended(costs: Costs, labels: _Labels, j: int) -> tuple[Floats, Floats]:
    """Every label with one more group, up to gradient j - 1: sum of compression, end of communication.

    Where groups may be sent plain, all labels with one that is compressed, then all with one that is plain.
    """
    rows = slice(0, labels.count)
    sizes = costs.prefix_bytes[j] - costs.prefix_bytes[labels.k[rows]]
    before_s, sent_s = labels.compress_s[rows], labels.sent_s[rows]
    compress_s = before_s + costs.compression(sizes)
    sent_after_s = np.maximum(sent_s, costs.ready_s[j] + compress_s) + costs.communication(sizes)
    if costs.plain is None:
        return compress_s, sent_after_s
    plain_after_s = np.maximum(sent_s, costs.ready_s[j] + before_s) + costs.plain(sizes)
    return np.concatenate([compress_s, before_s]), np.concatenate([sent_after_s, plain_after_s])


def _least_bound_s(costs: Costs, rest: Bounds, labels: _Labels) -> float:
    cuts, starts = np.unique(labels.k[: labels.count], return_index=True)  # labels stand in the order of their cuts
    blocks = zip(cuts.tolist(), starts.tolist(), [*starts[1:].tolist(), labels.count], strict=True)
    return min(
        float(rest.bound_s(costs, k, labels.compress_s[first:end], labels.sent_s[first:end]).min())
        for k, first, end in blocks
    )


def _front(first: Floats, second: Floats) -> Ints:
    """The rows that no other beats in both: sorted by the first, each with less of the second than all before it."""
    order = np.lexsort((second, first))
    least = np.minimum.accumulate(second[order])
    better = np.ones(len(order), dtype=np.bool_)
    better[1:] = least[1:] < least[:-1]
    return np.asarray(order[better])
