"""Messages as multipliers: their bound in whole numbers is a sweep's, and never above the cheapest plan."""

from __future__ import annotations

import numpy as np
import pytest
from sharding_instances import cheapest, random_instance

from gapless.encodings.sharding.bounds.chains import prices, proven
from gapless.encodings.sharding.instances.drawn import instance_of_words
from gapless.encodings.sharding.methods import ShardingSearch
from gapless.encodings.sharding.parameters import Parameters
from gapless.encodings.sharding.presolve.reduced import Reduced, reduced
from gapless.encodings.sharding.search.arrays import arrays_of
from gapless.encodings.sharding.search.messages import Tuning, tuning_of
from gapless.encodings.sharding.search.moves import Moves
from gapless.options import Deadline, SolveOptions


def searched(left: Reduced) -> ShardingSearch:
    options = SolveOptions(threads=1)
    return ShardingSearch(left, options, Parameters(price_rounds=60), Deadline(options), lambda *_: None)


def tuned(left: Reduced, rounds: int) -> Tuning:
    moves = Moves(arrays_of(left), 1000, np.random.default_rng(0), lambda: False)
    tuning = tuning_of(moves, np.zeros(left.node_count, dtype=np.int64), np.zeros(len(left.points.room)))
    direction = np.zeros(len(left.points.room))
    for _ in range(rounds):
        direction = tuning.round(direction)
    return tuning


@pytest.mark.parametrize("rounds", [1, 30])
def test_the_bound_in_whole_numbers_is_that_of_the_sweep_or_better(rounds: int) -> None:
    left = reduced(instance_of_words("drawn:nodes=200,choices=5,seed=2,tightness=80"))
    assert left is not None
    tuning = tuned(left, rounds)
    assert proven(left, tuning) >= left.offset + tuning.bound - 1e-6 * abs(tuning.bound)


@pytest.mark.parametrize("seed", range(8))
def test_no_bound_is_above_the_cheapest_plan(seed: int) -> None:
    instance = random_instance(seed, nodes=7, tightness=0.2, forbidden=0.2)
    left, known = reduced(instance), cheapest(instance)
    if left is None or known is None or not left.node_count:
        pytest.skip("nothing is left, or there is no plan")
    found = [each.bound for each in prices(searched(left)) if each.bound is not None]
    assert found
    assert max(found) <= known[0]
