"""Bounds on a step: on its time, which no plan of the question beats, and on the words that a rank receives.

Into a set of ranks S must come every selected entry to which a rank outside contributes; out of it, each that it
contributes to and that some rank outside must know. S is a rank, or a node: no more enters it a second than its links
carry. And all ranks together receive what `mean_words` says, and add as many entries as have a sum to go to. One link's
latency comes on top, where anything is sent.

Words, two an entry: Ok-Topk's bounds, and ours for what the sets overlap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.allreduce.network import ENTRY_BYTES, Network
from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = [
    "WORDS", "Overhead", "least_words", "lower_bound_words", "mean_words", "step_bound_s", "table_1",
    "upper_bound_words",
]  # fmt: skip

Ints = NDArray[np.int64]


def step_bound_s(sets: IndexSets, step: int, selected: Ints, network: Network) -> float:
    """Seconds that a step takes at least; `selected`: the entries that all ranks must end with, ascending."""
    topology, ranks = network.topology, sets.ranks
    held = [_known(sets.of(step, rank), selected) for rank in range(ranks)]
    place, whose = np.concatenate(held), np.repeat(np.arange(ranks), [len(each) for each in held])
    least_s = [0.0, *_crossing_s(place, whose, len(selected), network.rates_of_ranks)]
    if 1 < topology.node_count < ranks:
        node, each = np.array(topology.node_of_device)[whose], topology.node_count
        place_and_node = np.unique(place * each + node)  # once, whoever of a node holds it
        least_s += _crossing_s(place_and_node // each, place_and_node % each, len(selected), network.rates_of_nodes)
    rates = 1 / network.receiving_s_per_byte
    total_bytes = mean_words(sets, step, selected) / WORDS * ENTRY_BYTES * ranks
    least_s.append(total_bytes / float(rates.sum()))
    added = int(sets.counts[step].sum()) - len(sets.union(step))  # an entry of c contributors is added c - 1 times
    least_s.append(network.adding.entry_s * added / ranks)
    return max(least_s) + (float(topology.alpha_s.min()) if max(least_s) > 0 else 0.0)


def _crossing_s(place: Ints, whose: Ints, selected: int, rates: list[tuple[float, float]]) -> list[float]:
    """What the entries take that enter each group, a rank or a node, and those that leave it; those that it holds are
    `place`, none twice in a group.
    """
    holders = np.bincount(place, minlength=selected)
    alone = np.bincount(whose[holders[place] == 1], minlength=len(rates))
    leaves = np.bincount(whose, minlength=len(rates))
    enters = int((holders > 0).sum()) - alone
    found = []
    for group, (into, out) in enumerate(rates):
        found += [ENTRY_BYTES * int(enters[group]) / into, ENTRY_BYTES * int(leaves[group]) / out]
    return found


def _known(held: NDArray[np.int32], selected: Ints) -> Ints:
    """The places among the selected entries of those that are held."""
    place = np.searchsorted(selected, held)
    place[place == len(selected)] = 0
    return np.asarray(place[selected[place] == held] if len(selected) else place[:0])


WORDS = 2
"""Of an entry: its value and its index."""


def upper_bound_words(count: float, ranks: int) -> float:
    """6 k (P - 1) / P: Ok-Topk's bound (equation 3), 2 k (P - 1) / P of phase 1 and 4 k (P - 1) / P of phase 2."""
    return 6 * count * (ranks - 1) / ranks


def lower_bound_words(count: float, ranks: int) -> float:
    """2 k (P - 1) / P: what some rank must receive of k entries that all must know (theorem 3.1)."""
    return 2 * count * (ranks - 1) / ranks


@dataclass(frozen=True)
class Overhead:
    """What Table 1 of the paper says of an allreduce: words that a rank receives, and latencies in turn at most."""

    words_least: float
    words_most: float
    latencies: float


def table_1(name: str, elements: int, count: int, ranks: int) -> Overhead:
    """Of one of the dense, TopkA, Gaussiank, TopkDSA, gTopk; of any other, Ok-Topk's.

    A ring has the words of the paper's dense allreduce (Rabenseifner's), but 2 (P - 1) latencies for 2 log P.
    """
    levels, share = math.ceil(math.log2(ranks)), (ranks - 1) / ranks
    gathered, everything = 2.0 * count * (ranks - 1), 2.0 * elements * (ranks - 1) / ranks
    known = {
        "dense": Overhead(everything, everything, 2 * (ranks - 1)),
        "TopkA": Overhead(gathered, gathered, levels),
        "Gaussiank": Overhead(0, gathered, levels),
        "TopkDSA": Overhead(4 * count * share, (2 * count + elements) * share, ranks + 2 * levels),
        "gTopk": Overhead(4.0 * count * levels, 4.0 * count * levels, 2 * levels),
    }  # fmt: skip
    own = Overhead(lower_bound_words(count, ranks), upper_bound_words(count, ranks), 2 * ranks + 2 * levels)
    return known.get(name.partition(",")[0], own)


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
