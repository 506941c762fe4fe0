"""Boundaries: exact against brute force, one step or several; balancing; owners; bounds on sent and received."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest

from gapless.encodings.oktopk.allreduce.balancing import balancing_moves, even_share
from gapless.encodings.oktopk.cuts.boundaries import (
    averaged_cuts,
    even_cuts,
    exact_boundaries,
    matched_owners,
    owner_costs,
)
from gapless.encodings.oktopk.cuts.joint import joint_cost, joint_search
from gapless.encodings.oktopk.cuts.loads import Loads
from gapless.encodings.oktopk.cuts.milp import solve_milp
from gapless.options import Deadline, SolveOptions
from gapless.profiles.sparsity.index_sets import IndexSets, index_sets


def random_sets(seed: int) -> IndexSets:
    random = np.random.default_rng(seed)
    elements, ranks, steps = int(random.integers(2, 10)), int(random.integers(2, 5)), int(random.integers(1, 4))
    return index_sets(
        [
            [np.flatnonzero(random.random(elements) < random.uniform(0.1, 0.9)) for _ in range(ranks)]
            for _ in range(steps)
        ],
        elements,
    )


def all_cuts(sets: IndexSets) -> list[np.ndarray]:
    inner = combinations_with_replacement(range(sets.elements + 1), sets.ranks - 1)
    return [np.array([0, *cuts, sets.elements]) for cuts in inner]


def received_by_hand(sets: IndexSets, cuts: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Entries that each region's owner receives, counted one by one."""
    found = np.zeros((sets.steps, sets.ranks), dtype=int)
    for step in range(sets.steps):
        for rank in range(sets.ranks):
            for index in sets.of(step, rank).tolist():
                region = max(r for r in range(sets.ranks) if cuts[r] <= index < cuts[r + 1])
                found[step, region] += owners[region] != rank
    return found


@pytest.mark.parametrize("first", [0, pytest.param(50, marks=pytest.mark.thorough)])
def test_exact_boundaries_are_those_of_brute_force(first: int) -> None:
    """500 instances in the thorough run."""
    for seed in range(first, 50 if first == 0 else 500):
        sets, random = random_sets(seed), np.random.default_rng(seed)
        owners, loads = random.permutation(sets.ranks), Loads.of(sets)
        found = exact_boundaries(loads, owners)
        best = min(received_by_hand(sets, cuts, owners).max() for cuts in all_cuts(sets))
        assert found.cost == best == received_by_hand(sets, found.cuts, owners).max(), seed
        assert found.cuts[0] == 0
        assert found.cuts[-1] == sets.elements


def test_exact_on_unlike_links_is_that_of_brute_force() -> None:
    for seed in range(40):
        sets, random = random_sets(seed), np.random.default_rng(seed)
        owners, costs = random.permutation(sets.ranks), random.choice([0.3, 1.0, 2.5], sets.ranks)
        found = exact_boundaries(Loads.of(sets), owners, costs)
        best = min((received_by_hand(sets, cuts, owners) * costs[owners]).max() for cuts in all_cuts(sets))
        assert found.cost == pytest.approx(best, abs=1e-12), seed


def test_costs_far_below_one_end_the_search_too() -> None:
    sets = random_sets(11)
    loads, owners = Loads.of(sets), np.arange(sets.ranks)
    small = exact_boundaries(loads, owners, np.full(sets.ranks, 3e-10))
    assert small.cost == pytest.approx(3e-10 * exact_boundaries(loads, owners).cost)


def test_windows_add_up_the_loads_of_their_steps() -> None:
    sets = random_sets(7)
    cuts, owners = even_cuts(sets.elements, sets.ranks), np.arange(sets.ranks)
    together = Loads.of(sets, [range(sets.steps)])
    assert np.array_equal(together.received(cuts, owners)[0], received_by_hand(sets, cuts, owners).sum(axis=0))


def test_many_bins_give_the_same_as_few() -> None:
    random = np.random.default_rng(3)
    held = [np.sort(random.choice(200_000, 4000, replace=False)) for _ in range(8)]
    sets = index_sets([held], 200_000)
    loads, owners = Loads.of(sets), np.arange(8)
    assert len(loads.edges) > 100
    found = exact_boundaries(loads, owners)
    merged = np.sort(np.concatenate(held))
    for limit in (int(found.cost), int(found.cost) - 1):  # the pass by hand, entry by entry
        at, fits = 0, True
        for rank in range(8):
            others = np.sort(np.concatenate([held[other] for other in range(8) if other != rank]))
            begins = int(np.searchsorted(others, at))
            at = int(others[begins + limit]) if begins + limit < len(others) else 200_000
        fits = at > merged[-1]
        assert fits == (limit == int(found.cost))


def test_disjoint_own_regions_receive_nothing() -> None:
    """The special case of theorem 3.1."""
    sets = index_sets([[np.arange(rank * 10, rank * 10 + 5) for rank in range(4)]], 40)
    assert exact_boundaries(Loads.of(sets), np.arange(4)).cost == 0


def test_owners_find_their_own_regions_whatever_the_order() -> None:
    sets = index_sets([[np.arange(rank * 10, rank * 10 + 5) for rank in (2, 0, 3, 1)]], 40)
    counts = Loads.of(sets).counts(np.array([0, 10, 20, 30, 40]))
    owners = matched_owners(owner_costs(counts, np.ones(4)), np.arange(4))
    assert owners.tolist() == [1, 3, 0, 2]


def test_matched_owners_are_the_best_of_all() -> None:
    for seed in range(40):
        random = np.random.default_rng(seed)
        costs = random.integers(0, 9, (4, 4)).astype(float)
        found = matched_owners(costs, np.arange(4))
        best = min(max(costs[region, rank] for region, rank in enumerate(order)) for order in permutations(range(4)))
        assert costs[np.arange(4), found].max() == best
        assert sorted(found.tolist()) == [0, 1, 2, 3]


def test_all_in_one_region_is_balanced_by_cuts_inside_of_it() -> None:
    """Even regions leave all of it to rank 0: 2 k (P - 1) words (section 3.1.1)."""
    sets = index_sets([[np.arange(20)] * 4], 400)
    owners = np.arange(4)
    loads = Loads.of(sets)
    assert loads.received(even_cuts(400, 4), owners).tolist() == [[60, 0, 0, 0]]
    assert exact_boundaries(loads, owners).cost == 15  # k (P - 1) / P


def test_averaged_boundaries_are_means_of_quantiles() -> None:
    sets = index_sets([[[0, 1, 2, 3], [4, 5, 8, 9]]], 10)
    assert averaged_cuts(sets, 0).tolist() == [0, 5, 10]  # of 2 and 8


@pytest.mark.parametrize("first", [0, pytest.param(12, marks=pytest.mark.thorough)])
def test_the_joint_search_ends_between_its_start_and_the_best(first: int) -> None:
    for seed in range(first, 12 if first == 0 else 120):
        sets, random = random_sets(seed), np.random.default_rng(seed)
        loads = Loads.of(sets)
        receiving, sending = random.choice([0.5, 1.0, 2.0], sets.ranks), random.choice([0.5, 1.0], sets.ranks)
        best = min(
            joint_cost(loads.counts(cuts), np.array(order), receiving, sending).max()
            for cuts in all_cuts(sets) for order in permutations(range(sets.ranks))
        )  # fmt: skip
        start = exact_boundaries(loads, np.arange(sets.ranks), receiving)
        found = joint_search(loads, start, receiving, sending, 30, Deadline(SolveOptions()))
        before = joint_cost(loads.counts(start.cuts), start.owners, receiving, sending).max()
        assert best * (1 - 1e-9) <= found.cost <= before
        assert found.cost == joint_cost(loads.counts(found.cuts), found.owners, receiving, sending).max()


def test_the_milp_finds_the_best_of_all_cuts_and_owners() -> None:
    for seed in range(4):
        sets, random = random_sets(seed), np.random.default_rng(seed)
        loads = Loads.of(sets)
        receiving, sending = random.choice([0.5, 1.0, 2.0], sets.ranks), random.choice([0.5, 1.0], sets.ranks)
        best = min(
            joint_cost(loads.counts(cuts), np.array(order), receiving, sending).max()
            for cuts in all_cuts(sets) for order in permutations(range(sets.ranks))
        )  # fmt: skip
        start = exact_boundaries(loads, np.arange(sets.ranks), receiving)
        cost = joint_cost(loads.counts(start.cuts), start.owners, receiving, sending).max()
        start = replace(start, cost=float(cost))
        found = solve_milp(loads, start, receiving, sending, 24, SolveOptions(time_limit_s=60))
        assert found.boundaries.cost == pytest.approx(best, abs=1e-9), seed
        assert found.bound == pytest.approx(best, abs=1e-6)


def test_balancing_moves_the_surplus_and_no_more() -> None:
    for seed in range(60):
        random = np.random.default_rng(seed)
        ranks = int(random.integers(2, 9))
        held = random.integers(0, 30, ranks)
        nodes = random.integers(0, 3, ranks).tolist()
        share = even_share(int(held.sum()), ranks)
        for node_of in (None, nodes):
            left = held.copy()
            moves = balancing_moves(held.tolist(), node_of)
            for source, target, entries in moves:
                left[source] -= entries
                left[target] += entries
                assert entries > 0
            assert left.max() <= share
            assert sum(entries for _, _, entries in moves) == np.maximum(held - share, 0).sum()


def test_balancing_crosses_nodes_only_with_what_a_node_has_too_much_of() -> None:
    moves = balancing_moves([8, 0, 4, 0], [0, 0, 1, 1])
    crossing = sum(entries for source, target, entries in moves if source // 2 != target // 2)
    assert crossing == 2  # node 0 holds 8, its share is 6
