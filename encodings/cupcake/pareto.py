"""Exact label setting for any cost functions.

A label stands for a grouping of the first k gradients: the sum of its compression times, and the end of its
communication. What comes after depends on nothing else and rises with both, so a label is dominated by another of the
same k that is no worse in either. Labels that can't lead below the incumbent go too. There may be exponentially many
left in the worst case; past a cap, those with the least bounds are kept, and the answer says how good it can be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cupcake.bounds import Rest
from gapless.encodings.cupcake.fusion import Costs, Fusion
from gapless.options import Deadline

__all__ = ["Labelled", "solve_pareto"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Labelled:
    """The best fusion, the least end that any fusion can have, the labels that were kept and the most at one prefix."""

    fusion: Fusion
    bound_end_s: float
    labels: int
    most_labels: int


@dataclass
class _Labels:
    """All labels so far, in columns: k, sum of compression, end of communication, and the label each came from."""

    k: Ints
    compress_s: Floats
    sent_s: Floats
    parent: Ints
    count: int = 1

    @classmethod
    def start(cls) -> _Labels:
        size = 1024
        return cls(np.zeros(size, np.int64), np.zeros(size), np.zeros(size), np.full(size, -1, np.int64))

    def add(self, k: int, compress_s: Floats, sent_s: Floats, parent: Ints) -> None:
        while self.count + len(parent) > len(self.k):
            for title in ("k", "compress_s", "sent_s", "parent"):
                column = getattr(self, title)
                setattr(self, title, np.concatenate([column, np.zeros_like(column)]))
        rows = slice(self.count, self.count + len(parent))
        self.k[rows], self.compress_s[rows], self.sent_s[rows], self.parent[rows] = k, compress_s, sent_s, parent
        self.count += len(parent)

    def fusion(self, label: int) -> Fusion:
        ends = []
        while self.parent[label] >= 0:
            ends.append(int(self.k[label]))
            label = int(self.parent[label])
        return Fusion(tuple(reversed(ends)))


def solve_pareto(
    costs: Costs, rest: Rest, incumbent: Fusion, incumbent_end_s: float, deadline: Deadline, most: int
) -> Labelled:
    """The fusion with the least step time, or the best found and a bound where the deadline came first.

    `most`: labels that are kept at a cut; where there are more, the answer is the best found, with a bound, too.
    """
    labels = _Labels.start()
    best_end_s, fusion, bound_s, most_here = incumbent_end_s, incumbent, math.inf, 0
    for j in range(1, costs.count + 1):
        if deadline.over:
            # Every fusion that isn't covered yet goes through one of the labels that are there.
            bound_s = min(bound_s, float(_bounds(costs, rest, labels).min()))
            break
        compress_s, sent_s = _extended(costs, labels, j)
        ahead_s = rest.bound_s(costs, j, compress_s, sent_s)
        chosen = np.flatnonzero(ahead_s < best_end_s)
        chosen = chosen[_front(compress_s[chosen], sent_s[chosen])]
        if len(chosen) > most:
            ranked = chosen[np.argsort(ahead_s[chosen], kind="stable")]
            bound_s = min(bound_s, float(ahead_s[ranked[most]]))
            chosen = np.sort(ranked[:most])
        most_here = max(most_here, len(chosen))
        labels.add(j, compress_s[chosen], sent_s[chosen], chosen)
        if j == costs.count and len(chosen):
            first = labels.count - len(chosen) + int(sent_s[chosen].argmin())
            best_end_s, fusion = float(labels.sent_s[first]), labels.fusion(first)
    return Labelled(fusion, min(bound_s, best_end_s), labels.count - 1, most_here)


def _extended(costs: Costs, labels: _Labels, j: int) -> tuple[Floats, Floats]:
    """Every label with one more group, up to gradient j - 1: sum of compression, end of communication."""
    rows = slice(0, labels.count)
    sizes = costs.prefix_bytes[j] - costs.prefix_bytes[labels.k[rows]]
    compress_s = labels.compress_s[rows] + costs.compression(sizes)
    sending_s = np.maximum(labels.sent_s[rows], costs.ready_s[j] + compress_s)
    return compress_s, sending_s + costs.communication(sizes)


def _bounds(costs: Costs, rest: Rest, labels: _Labels) -> Floats:
    rows = slice(0, labels.count)
    return rest.bound_s(costs, labels.k[rows], labels.compress_s[rows], labels.sent_s[rows])


def _front(first: Floats, second: Floats) -> Ints:
    """The rows that no other beats in both: sorted by the first, each with less of the second than all before it."""
    order = np.lexsort((second, first))
    least = np.minimum.accumulate(second[order])
    better = np.ones(len(order), dtype=np.bool_)
    better[1:] = least[1:] < least[:-1]
    return np.asarray(order[better])
