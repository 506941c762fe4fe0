"""What is replaced, split or absorbed leaves the least cost as it was, on instances of trees and hubs too."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from examples import share
from sharding_instances import cheapest, random_instance

from gapless.encodings.sharding.instances.instance import Instance
from gapless.encodings.sharding.presolve.reduced import Reduced, reduced


def least_left(left: Reduced) -> int | None:
    """The least cost of a plan of what is left, each that fits held against the instance."""
    limit, best = left.factors.instance.usage_limit, None
    for choices in product(*map(range, left.sizes.tolist())):
        taken = np.array(choices, dtype=np.int64)
        known, real = left.evaluate(taken), left.factors.instance.evaluate(left.expand(taken))
        if known.forbidden or known.peak > limit:
            continue
        assert (real.cost, real.forbidden) == (known.cost, "")
        assert real.peak <= limit
        best = known.cost if best is None else min(best, known.cost)
    return best


@pytest.mark.parametrize("tightness", [0.2, 0.8])
@pytest.mark.parametrize("seed", range(share(25)))
def test_sparse_graphs_keep_their_least_cost(seed, tightness):
    """Few edges: leaves, and nodes without neighbours."""
    instance = random_instance(
        seed, nodes=7, edges=5, choices=4, tightness=tightness, forbidden=0.1, alike=0.0, most_cost=6
    )
    left, known = reduced(instance), cheapest(instance)
    assert (None if left is None else least_left(left)) == (None if known is None else known[0])


def of(costs, usages, edges, tables, limit, intervals=None) -> Instance:
    spans = np.tile([0, 1], (len(costs), 1)) if intervals is None else np.array(intervals)
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    rows = [tuple(np.array(row, dtype=np.int64) for row in each) for each in (costs, usages, tables)]
    return Instance("made", spans, rows[0], rows[1], pairs, rows[2], limit)


def test_a_leaf_that_needs_no_memory_goes_with_its_best_choices():
    """The leaf wants 0 beside 0 and 1 beside 1; the two others share too little memory for what is cheap."""
    instance = of(
        [[0, 9], [0, 9], [0, 0]], [[5, 0], [5, 0], [0, 0]], [[0, 2], [0, 1]], [[[1, 3], [4, 2]], [[0, 3], [3, 0]]], 5
    )
    left = reduced(instance)
    assert left is not None
    assert left.node_count == 2
    assert [left.expand(np.array(plan)).tolist() for plan in ([0, 1], [1, 0])] == [[0, 1, 0], [1, 0, 1]]


def test_nodes_of_a_table_that_is_a_sum_are_neighbours_no_more():
    instance = of([[0, 9], [0, 7]], [[5, 0], [5, 0]], [[0, 1]], [[[1, 3], [2, 4]]], 5)
    left = reduced(instance)
    assert left is not None
    assert (left.node_count, len(left.ends)) == (2, 0)
    assert least_left(left) == cheapest(instance)[0]


def test_a_dearer_choice_that_saves_memory_stays():
    instance = of([[0, 4, 5], [0, 4, 5]], [[9, 3, 3], [9, 3, 3]], [], [], 12)
    left = reduced(instance)
    assert left is not None
    assert left.sizes.tolist() == [2, 2]
    assert least_left(left) == 4
