"""Words a rank receives, two an entry: other allreduces', Ok-Topk's bounds, and ours for what the sets overlap."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.baselines import even_cuts
from gapless.encodings.oktopk.loads import received_of, region_counts
from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = [
    "dissemination_entries",
    "least_words",
    "lower_bound_words",
    "mean_words",
    "plan_words",
    "upper_bound_words",
    "words_of_others",
]

Ints = NDArray[np.int64]

WORDS = 2
"""Of an entry: its value and its index."""


def upper_bound_words(count: float, ranks: int) -> float:
    """6 k (P - 1) / P: Ok-Topk's bound (equation 3), 2 k (P - 1) / P of phase 1 and 4 k (P - 1) / P of phase 2."""
    return 6 * count * (ranks - 1) / ranks


def lower_bound_words(count: float, ranks: int) -> float:
    """2 k (P - 1) / P: what some rank must receive of k entries that all must know (theorem 3.1)."""
    return 2 * count * (ranks - 1) / ranks


def dissemination_entries(count: int, stages: int, elements: int | None = None) -> int:
    """Entries sent in the last stage of a dissemination of disjoint sets, which double in each (section 1).

    >>> dissemination_entries(10**4, 7)
    640000
    """
    entries: int = count * 2 ** (stages - 1)
    return entries if elements is None else min(entries, elements)


def mean_words(sets: IndexSets, step: int, selected: Ints) -> float:
    """Words that a rank receives at least in the mean, with the overlaps that the sets of a step have.

    Every sum must be whole on some rank before all ranks can have it: an entry that c ranks selected takes c - 1
    messages until then, and one more for each of the other P - 1 ranks if it is selected.
    """
    first, union = sets.counts[step].sum(), len(sets.union(step))
    return WORDS * float(first - union + (sets.ranks - 1) * len(selected)) / sets.ranks


def least_words(sets: IndexSets, step: int, selected: Ints) -> float:
    """Words that some rank receives at least, with the overlaps that the sets of a step have.

    The mean; and a rank must receive whatever is selected unless it is its only contributor.
    """
    held = [sets.of(step, rank) for rank in range(sets.ranks)]
    entries, holders = np.unique(np.concatenate(held), return_counts=True)
    alone = np.intersect1d(entries[holders == 1], selected)
    only = min(np.intersect1d(own, alone, assume_unique=True).size for own in held)
    return max(mean_words(sets, step, selected), float(WORDS * (len(selected) - only)))


def plan_words(counts: Ints, owners: Ints, selected: Ints) -> Ints:
    """Words that each rank receives in both phases, int64 (P,): `counts` (ranks, regions), `selected` (regions,).

    Of a direct gather: balancing changes nothing in it, for what it brings a rank, or takes, need not be gathered
    again. A ring and recursive doubling bring the makers back what balancing took.
    """
    first = received_of(counts[None], owners)[0]
    received = np.empty(len(owners), dtype=np.int64)
    received[owners] = first + selected.sum() - selected
    return WORDS * received


def words_of_others(sets: IndexSets, step: int) -> dict[str, float]:
    """Words that the busiest rank receives, by name; all of the union is gathered where nothing is selected again.

    `topka`: all sets to all ranks (of Gaussiank too, for the sets that its threshold gives). `topkdsa`: even regions,
    then an allgather, dense where that is less (SparCML). `gtopk`: k entries up and down a tree. `dense ring`: every
    element.
    """
    ranks, counts = sets.ranks, sets.counts[step]
    cuts = even_cuts(sets.elements, ranks)
    region = region_counts(sets.part(steps=slice(step, step + 1)), cuts)
    union = np.diff(np.searchsorted(sets.union(step), cuts))
    dense = np.diff(cuts)
    first = WORDS * received_of(region, np.arange(ranks))[0]
    gathered = min(WORDS * int(union.sum()), sets.elements)
    own = WORDS * union if WORDS * int(union.sum()) <= sets.elements else dense
    return {
        "topka": float(WORDS * (counts.sum() - counts.min())),
        "topkdsa": float((first + gathered - own).max()),
        "gtopk": 4.0 * float(counts.max()) * math.ceil(math.log2(ranks)),
        "dense ring": 2.0 * sets.elements * (ranks - 1) / ranks,
    }
