"""Schedules of sparse allreduces: volumes, what the checker finds in broken ones, words, bounds, gathers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gapless
from gapless.checker import check
from gapless.encodings.oktopk.allreduce.bounds import (
    least_words,
    lower_bound_words,
    upper_bound_words,
)
from gapless.encodings.oktopk.allreduce.gathers import GATHERS
from gapless.encodings.oktopk.allreduce.lowering import StepSizes, in_turn, lower, received_words
from gapless.encodings.oktopk.allreduce.network import Network, flat_topology
from gapless.encodings.oktopk.allreduce.others import dense_ring, topka, topkdsa
from gapless.encodings.oktopk.comparison import words_of_others
from gapless.encodings.oktopk.cuts.loads import received_of
from gapless.ir.schedule import Schedule
from gapless.profiles.sparsity.index_file import find_index_sets
from gapless.profiles.sparsity.index_sets import IndexSets, index_sets
from gapless.topologies.files import load_topology

SETS = find_index_sets("clustered:elements=4000,steps=3", 4, 0.02)


def sizes(sets: IndexSets, step: int = 0) -> StepSizes:
    cuts = np.arange(sets.ranks + 1) * sets.elements // sets.ranks
    counts = np.diff(np.stack([np.searchsorted(sets.of(step, rank), cuts) for rank in range(sets.ranks)]))
    selected = sets.global_top(step, 80)
    return StepSizes(counts, np.diff(np.searchsorted(selected, cuts)))


def flat(ranks: int = 4) -> Network:
    return Network(flat_topology(ranks, 1e6, 0.0))


def direct_words(counts: np.ndarray, owners: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """Words that each rank receives in both phases, int64 (P,): `counts` (ranks, regions), `selected` (regions,).

    Of a direct gather: balancing changes nothing in it, for what it brings a rank, or takes, need not be gathered
    again. A ring and recursive doubling bring the makers back what balancing took.
    """
    first = received_of(counts[None], owners)[0]
    received = np.empty(len(owners), dtype=np.int64)
    received[owners] = first + selected.sum() - selected
    return 2 * received


def schedule(order: str = "rotation", gather: str = "direct", balances: bool = True) -> Schedule:
    found = lower(sizes(SETS), np.arange(4), flat(), order, gather, balances)
    assert found is not None
    return found


@pytest.mark.parametrize("gather", list(GATHERS))
@pytest.mark.parametrize("order", ["rotation", "largest"])
def test_every_order_and_gather_replays_clean(order: str, gather: str) -> None:
    for balances in (False, True):
        report = check(schedule(order, gather, balances))
        assert not report.violations
        least = direct_words(sizes(SETS).counts, np.arange(4), sizes(SETS).selected)
        assert report.makespan_s >= 4 * float(least.max()) / 1e6 * (1 - 1e-9)


@pytest.mark.parametrize("gather", list(GATHERS))
def test_received_words_are_those_of_the_sets(gather: str) -> None:
    least = direct_words(sizes(SETS).counts, np.arange(4), sizes(SETS).selected)
    for balances in (False, True):
        found = schedule(gather=gather, balances=balances)
        received = np.zeros(4)
        for event in found.events():
            if event.moves:
                received[found.topology.link_target[event.place]] += found.graph.size_bytes[list(event.moves)].sum()
        assert (received / 4).tolist() == received_words(found).tolist()
        assert received_words(found).tolist() == least.tolist()


def without(found: Schedule, number: int) -> Schedule:
    keep = np.delete(np.arange(len(found)), number)
    columns = ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces")
    ragged = ("moves", "freed_tensor", "freed_device")
    return replace(
        found, **{name: getattr(found, name)[keep] for name in columns},
        **{name: getattr(found, name).take(keep) for name in ragged},
    )  # fmt: skip


def rules(found: Schedule) -> set[str]:
    return {violation.rule.value for violation in check(found).violations}


def test_a_rank_that_never_gets_a_piece_misses_it() -> None:
    found = schedule()
    last = int(np.flatnonzero(found.is_transfer)[-1])
    assert rules(without(found, last)) == {"required-missing"}


def test_a_region_without_one_ranks_entries_is_not_the_sum() -> None:
    found = schedule()
    assert "input-missing" in rules(without(found, 0))
    op = found.graph.ops[0]
    ops = (replace(op, inputs=op.inputs[1:]), *found.graph.ops[1:])
    assert "required-missing" in rules(replace(found, graph=replace(found.graph, ops=ops)))


def test_a_contribution_that_is_added_twice_is_found() -> None:
    found = schedule()
    sets = list(found.graph.initial.contributions or ())
    initial = replace(found.graph.initial, contributions=(sets[1], *sets[1:]))
    first, second = found.graph.initial.tensors[:2].tolist()
    op = next(number for number, op in enumerate(found.graph.ops) if first in op.inputs)
    ops = list(found.graph.ops)
    ops[op] = replace(ops[op], inputs=(*ops[op].inputs, second))  # rank 0's entries of the next region too
    broken = replace(found, graph=replace(found.graph, ops=tuple(ops), initial=initial))
    assert {"double-reduction", "input-missing"} & rules(broken)
    counted_twice = replace(found.graph.initial, contributions=tuple(1 for _ in sets))
    assert "double-reduction" in rules(replace(found, graph=replace(found.graph, initial=counted_twice)))


def test_steps_in_turn_take_what_they_take_one_by_one() -> None:
    parts = [lower(sizes(SETS, step), np.arange(4), flat(), "rotation", "ring", True) for step in range(3)]
    alone = [part for part in parts if part is not None]
    together = check(in_turn(alone))
    assert not together.violations
    assert together.makespan_s == pytest.approx(sum(check(one).makespan_s for one in alone))


def test_routes_of_several_links_on_a_machine() -> None:
    sets = find_index_sets("clustered:elements=6000,steps=1", 16, 0.02)
    network = Network(load_topology("ndv2", 2))
    for gather in ("ring", "flood"):
        found = lower(sizes(sets), np.arange(16), network, "rotation", gather, True)
        assert found is not None
        assert not check(found).violations
    assert lower(sizes(sets), np.arange(16), network, "rotation", "direct", True) is None


def test_other_allreduces_replay_clean_with_their_words() -> None:
    words = words_of_others(SETS, 0)
    for found, name in ((topka(SETS, 0, flat(), "direct"), "topka"), (dense_ring(4000, flat()), "dense ring")):
        assert found is not None
        report = check(found)
        assert not report.violations
        assert report.makespan_s == pytest.approx(4 * words[name] / 1e6)
    split = topkdsa(SETS, 0, flat(), "ring")
    assert split is not None
    assert not check(split).violations


def test_the_bounds_of_the_paper_are_exact() -> None:
    assert upper_bound_words(80, 4) == 360
    assert lower_bound_words(80, 4) == 120


def test_disjoint_own_regions_attain_the_lower_bound() -> None:
    """The special case of theorem 3.1: nothing to reduce, k / P of the selected entries on each rank."""
    sets = index_sets([[np.arange(rank * 100, rank * 100 + 8) for rank in range(4)]], 400)
    selected = np.concatenate([np.arange(rank * 100, rank * 100 + 2) for rank in range(4)])  # k = 8 of them
    cuts = np.array([0, 100, 200, 300, 400])
    counts = np.diff(np.stack([np.searchsorted(sets.of(0, rank), cuts) for rank in range(4)]))
    chosen = np.diff(np.searchsorted(selected, cuts))
    assert direct_words(counts, np.arange(4), chosen).tolist() == [lower_bound_words(8, 4)] * 4
    assert least_words(sets, 0, selected) == lower_bound_words(8, 4) == 12


def test_all_in_one_region_loads_one_rank() -> None:
    """2 k (P - 1) words in phase 1 of even regions, while the others receive none (section 3.1.1)."""
    sets = index_sets([[np.arange(20)] * 4], 400)
    cuts = np.array([0, 100, 200, 300, 400])
    counts = np.diff(np.stack([np.searchsorted(sets.of(0, rank), cuts) for rank in range(4)]))
    assert direct_words(counts, np.arange(4), np.zeros(4, dtype=np.int64)).tolist() == [2 * 20 * 3, 0, 0, 0]


def test_no_plan_receives_less_than_the_overlaps_need() -> None:
    for seed in range(6):
        sets = find_index_sets(f"clustered:elements=4000,steps=1,seed={seed}", 8, 0.02)
        problem = gapless.oktopk.problem(sets)
        selected = problem.selected(sets, 0)
        cuts = np.linspace(0, 4000, 9).astype(np.int64)
        counts = np.diff(np.stack([np.searchsorted(sets.of(0, rank), cuts) for rank in range(8)]))
        chosen = np.diff(np.searchsorted(selected, cuts))
        received = direct_words(counts, np.arange(8), chosen)
        assert received.max() >= least_words(sets, 0, selected) >= lower_bound_words(len(selected), 8)
