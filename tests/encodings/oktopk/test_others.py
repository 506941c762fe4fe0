"""gTopk and TopkDSA as schedules: they replay clean, with the words that the papers' formulas give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gapless.checker import check
from gapless.encodings.oktopk.allreduce.lowering import received_words
from gapless.encodings.oktopk.allreduce.network import Network, flat_topology
from gapless.encodings.oktopk.allreduce.others import gtopk, topkdsa
from gapless.profiles.sparsity.index_sets import IndexSets, index_sets

ELEMENTS, COUNT = 400, 20


def drawn(ranks: int, count: int) -> IndexSets:
    random = np.random.default_rng(ranks)
    places = [np.sort(random.choice(ELEMENTS, count, replace=False)) for _ in range(ranks)]
    return index_sets([places], ELEMENTS, values=[[random.standard_normal(count) for _ in range(ranks)]])


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_gtopk_sends_k_entries_up_and_down_a_tree(ranks: int) -> None:
    schedule = gtopk(drawn(ranks, COUNT), 0, Network(flat_topology(ranks, 1e9, 1e-6)))
    report = check(schedule)
    assert report.valid, report.summary()
    words = received_words(schedule)
    assert words.sum() == 2 * 2 * COUNT * (ranks - 1)
    levels = math.ceil(math.log2(ranks))
    assert words[0] == 2 * COUNT * levels
    assert report.makespan_s >= 2 * levels * (1e-6 + 8 * COUNT / 1e9) * (1 - 1e-9)


@pytest.mark.parametrize(("count", "is_dense"), [(COUNT, False), (120, True)])
def test_topkdsa_gathers_without_indices_where_that_is_less(count: int, is_dense: bool) -> None:
    sets = drawn(4, count)
    schedule = topkdsa(sets, 0, Network(flat_topology(4, 1e9, 1e-6)), "direct")
    assert schedule is not None
    assert check(schedule).valid
    sums = ELEMENTS if is_dense else 2 * len(sets.union(0))
    first = [int((sets.of(0, rank) // 100 != rank).sum()) for rank in range(4)]
    assert received_words(schedule).sum() == 2 * sum(first) + 3 * sums
