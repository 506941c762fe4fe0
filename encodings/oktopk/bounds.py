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
    groups = [[rank] for rank in range(ranks)]
    if 1 < topology.node_count < ranks:
        groups += [topology.ranks_of_node(node) for node in range(topology.node_count)]
    held = np.concatenate([np.searchsorted(selected, _known(sets.of(step, rank), selected)) for rank in range(ranks)])
    whose = np.repeat(np.arange(ranks), [len(_known(sets.of(step, rank), selected)) for rank in range(ranks)])
    everywhere = np.bincount(held, minlength=len(selected))
    least_s = [0.0]
    for group in groups:
        inside = np.isin(np.arange(ranks), group)
        here = np.bincount(held[inside[whose]], minlength=len(selected))
        enters, leaves = int((everywhere > here).sum()), int((here > 0).sum())
        least_s.append(ENTRY_BYTES * enters / network.rate(inside, into=True))
        least_s.append(ENTRY_BYTES * leaves / network.rate(inside, into=False))
    rates = 1 / network.receiving_s_per_byte
    total_bytes = mean_words(sets, step, selected) / WORDS * ENTRY_BYTES * ranks
    least_s.append(total_bytes / float(rates.sum()))
    return max(least_s) + (float(topology.alpha_s.min()) if max(least_s) > 0 else 0.0)


def _known(held: NDArray[np.int32], selected: Ints) -> Ints:
    return np.intersect1d(held, selected, assume_unique=True).astype(np.int64)
