"""Bags through lookahead, costs, partitions and plans, against sets and loops in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

import gapless
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.parameters import Bound, Parameters, Search
from gapless.encodings.bagpipe.partition.batch import Batch, Sharing, cost_matrix
from gapless.encodings.bagpipe.partition.methods import partition
from gapless.encodings.bagpipe.problem import Planning
from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.trace import TABLE_SHIFT, trace_of_array

QUICK = Parameters(Search(rounds=8), Bound(rounds=4))


def some_bags(examples: int, tables: int = 3, rows: int = 30, seed: int = 0, most: int = 4) -> Bags:
    chance = np.random.default_rng(seed)
    lengths = chance.integers(0, most, (examples, tables))
    return Bags(chance.integers(0, rows, int(lengths.sum())), lengths)


def sets_of(bags: Bags) -> list[set[int]]:
    """The global ids of each example."""
    whole = bags.values + (bags.table.astype(np.int64) << TABLE_SHIFT)
    return [set(whole[bags.example == example].tolist()) for example in range(len(bags))]


def test_bags_of_one_id_are_planned_as_an_array() -> None:
    ids = np.random.default_rng(1).integers(0, 40, (60, 3))
    planning = Planning(3, 12, lookahead=2, objective="fetches")
    bags = trace_of_array(Bags(ids.reshape(-1), np.ones(ids.shape, dtype=np.int64)))
    for one, other in zip(
        batch_plans(bags, planning, QUICK), batch_plans(trace_of_array(ids), planning, QUICK), strict=True
    ):
        assert one.partition.value == other.partition.value
        assert one.partition.bound == other.partition.bound
        for name in ("trainer", "owner_after", "users", "sync_now", "sync_later", "is_private"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(one.step.ids, other.step.ids)
        assert isinstance(one.index, Bags)
        np.testing.assert_array_equal(one.index.values.reshape(-1, 3), other.index)


def test_an_example_costs_the_distinct_rows_of_others() -> None:
    bags, chance = some_bags(20), np.random.default_rng(2)
    ids = sorted(set().union(*sets_of(bags)))
    owner = chance.integers(-1, 4, len(ids))
    place = np.searchsorted(ids, bags.values + (bags.table.astype(np.int64) << TABLE_SHIFT))
    found = cost_matrix(Batch(Bags(place, bags.lengths).once(), owner, 4))
    for example, used in enumerate(sets_of(bags)):
        owners = [int(owner[ids.index(id_)]) for id_ in used]
        assert found[example].tolist() == [sum(each not in (-1, trainer) for each in owners) for trainer in range(4)]


@pytest.mark.parametrize("objective", ["paper", "fetches", "max-load"])
def test_plans_count_what_the_examples_use(objective: str) -> None:
    bags = some_bags(50)
    plans = list(batch_plans(trace_of_array(bags), Planning(3, 12, lookahead=2, objective=objective), QUICK))
    sets, first = sets_of(bags), 0
    for plan in plans:
        used = sets[first : first + plan.step.examples]
        assert plan.step.ids.tolist() == sorted(set().union(*used))
        for trainer in range(3):
            own = set().union(*(each for each, on in zip(used, plan.trainer, strict=True) if on == trainer))
            assert set(plan.step.ids[plan.users[:, trainer]].tolist()) == own
        first += plan.step.examples
    assert first == 50


@pytest.mark.parametrize("objective", ["fetches", "max-load"])
def test_bound_is_below_the_exact_optimum_and_the_search_above(objective: str) -> None:
    chance = np.random.default_rng(3)
    batch = Batch(some_bags(9, rows=8).once(), chance.integers(-1, 2, 8), 2)
    exact, found = (partition(batch, objective=objective, method=method) for method in ("milp", "search"))
    assert exact is not None
    assert found is not None
    assert found.bound is not None
    assert found.bound <= exact.value <= found.value
    traffic = Sharing.of(batch).traffic(found.trainer)
    assert found.value == (traffic.fetches if objective == "fetches" else traffic.max_load)


def test_a_run_of_bags_replays_and_is_read_back(tmp_path: object) -> None:
    plan = gapless.bagpipe.solve(some_bags(60), trainers=3, batch_size=12, lookahead=2)
    assert plan.report.valid
    plan.save(f"{tmp_path}/run.npz")
    again = gapless.load(f"{tmp_path}/run.npz")
    assert again.report.valid
    assert again.report.makespan_s == plan.report.makespan_s


def test_batch_without_an_id_is_refused() -> None:
    empty = Bags(np.empty(0, dtype=np.int64), np.zeros((4, 2), dtype=np.int64))
    with pytest.raises(InputError, match="batch 0 must look up at least one id, all its bags are empty"):
        next(batch_plans(trace_of_array(empty), Planning(2, 4, lookahead=1)))
