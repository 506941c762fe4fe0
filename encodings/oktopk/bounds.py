"""Bounds on the time of a step: what no plan of the question beats, whatever is cut, combined or routed.

Into a set of ranks S must come every selected entry to which a rank outside contributes; out of it, each that it
contributes to and that some rank outside must know. S is a rank, or a node: no more enters it a second than its links
carry. And all ranks together receive what `mean_words` says. One link's latency comes on top, where anything is sent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.lowering import ENTRY_BYTES
from gapless.encodings.oktopk.network import Network
from gapless.encodings.oktopk.words import WORDS, mean_words
from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = ["step_bound_s"]

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
