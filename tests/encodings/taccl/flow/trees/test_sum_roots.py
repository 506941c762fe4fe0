"""The roots of sums: where bandwidth wants them, and plans with them replay clean."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rival_networks import rival_networks
from shapes import SHAPES, even, line, ring
from spreading_lp import allgather_time_s
from tree_packings import packed_trees

from gapless.checker import check
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bandwidth.partitions import worst_partition
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.bounds.cuts import partitions_of
from gapless.encodings.taccl.flow.trees.sum_roots import plan_from_roots, root_shares, roots_at_once, with_roots
from gapless.encodings.taccl.parameters import Matching, Trees
from gapless.encodings.taccl.sketch.phases import turned_round
from gapless.encodings.taccl.symmetry.rotations import no_rotations
from gapless.errors import InputError
from gapless.ir.collective import allgather, allreduce
from gapless.options import SolveOptions

NETWORKS = {topology.name: topology for topology in rival_networks()}
COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=8, max_size=8)


def test_a_line_adds_up_at_its_ends() -> None:
    """Half of all chunks go each way, in both phases: as fast as links allow. With even roots the last link of the line
    carries 4 of 5 chunks.
    """
    topology = line(5, even)
    best = root_shares(topology, topology.beta_s_per_byte, SolveOptions())
    assert best is not None
    assert best.share == pytest.approx([0.5, 0, 0, 0, 0.5], abs=1e-5)
    assert best.time_s == pytest.approx(1e-10, rel=1e-5)
    large = bounds_of(Chunked(topology, allreduce(5), 10**9))
    assert large.even_roots_s == pytest.approx(5e9 * 2 * 0.8e-10, rel=1e-3)


@examples(24)
@given(shape=st.sampled_from(["line", "ring", "star"]), costs=COSTS)
def test_the_time_of_even_roots_is_that_of_an_allgather_each_way(shape: str, costs: list[tuple[int, int]]) -> None:
    """Each of which is a linear program with a flow to every rank."""
    topology = SHAPES[shape](5, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    bounds = bounds_of(Chunked(topology, allreduce(5), 10**6))
    rate_s = topology.beta_s_per_byte
    each_s = [allgather_time_s(network, rate_s) for network in (topology, turned_round(topology))]
    assert bounds.even_roots_s == pytest.approx(bounds.problem.chunk_bytes * sum(each_s), rel=1e-5)


@pytest.mark.parametrize("name", [pytest.param("one-way-6"), pytest.param("one-way-11", marks=pytest.mark.thorough)])
def test_at_once_roots_take_as_long_as_the_best_packing_of_trees_up_and_down(name: str) -> None:
    """The packing is found by column generation, tree by tree, and is no better than 1 % above its optimum."""
    topology = NETWORKS[name]
    rate_s = topology.beta_s_per_byte
    best, in_turn = (root_shares(topology, rate_s, SolveOptions(), at_once) for at_once in (True, False))
    assert best is not None
    assert in_turn is not None
    load_s = np.zeros(len(topology.links))
    for tree, share in packed_trees("allreduce", topology):
        np.add.at(load_s, [*tree.up, *tree.down], share)
    packed_s = float((load_s * rate_s).max())
    assert packed_s / 1.01 <= best.time_s <= packed_s * (1 + 1e-4)
    assert best.time_s <= in_turn.time_s * (1 + 1e-4)
    worst = worst_partition(topology, rate_s, no_rotations(topology), partitions_of(topology))
    assert worst.time_s * (1 - 1e-4) <= best.time_s


def test_roots_at_once_are_for_links_that_run_unlike_both_ways() -> None:
    two_ways, one_way = (
        Chunked(topology, allreduce(topology.device_count), 10**6, may_cut=True)
        for topology in (line(4, even), NETWORKS["one-way-6"])
    )
    assert not roots_at_once(bounds_of(two_ways), SolveOptions())
    bounds = bounds_of(one_way)
    assert roots_at_once(bounds, SolveOptions())
    assert not roots_at_once(bounds, SolveOptions(), limit_s=bounds.any_chunking_s)


@examples(24)
@given(shape=st.sampled_from(["line", "ring", "star"]), costs=COSTS)
def test_both_phases_take_at_most_twice_as_long_as_the_worst_partition(
    shape: str, costs: list[tuple[int, int]]
) -> None:
    topology = SHAPES[shape](5, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    rate_s = topology.beta_s_per_byte
    found = root_shares(topology, rate_s, SolveOptions())
    worst = worst_partition(topology, rate_s, no_rotations(topology), partitions_of(topology))
    assert found is not None
    assert worst.time_s * (1 - 1e-4) <= found.time_s <= 2 * worst.time_s * (1 + 1e-4)
    if shape == "line":
        assert found.time_s == pytest.approx(worst.time_s, rel=1e-4)


@examples(12)
@given(shape=st.sampled_from(sorted(SHAPES)), costs=COSTS)
def test_plans_replay_clean(shape: str, costs: list[tuple[int, int]]) -> None:
    topology = SHAPES[shape](4, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problems = [Chunked(topology, allreduce(4, parts), 100_000 // parts, may_cut=True) for parts in (1, 2)]
    bounds, little = bounds_of(problems[0]), Matching(sends=2_000)
    plan = plan_from_roots(problems, SolveOptions(), bounds, parameters=Trees(least_root_gain=1e-3), matching=little)
    if plan is not None:
        report = check(plan.schedule)
        assert report.valid, report.summary()
        assert bounds.any_chunking_s <= report.makespan_s * (1 + 1e-9)


def test_nothing_is_planned_where_ranks_are_alike_or_the_limit_is_near() -> None:
    problem = Chunked(ring(4, even), allreduce(4), 10**6, may_cut=True)
    assert plan_from_roots([problem], SolveOptions(), bounds_of(problem)) is None
    uneven = Chunked(line(4, even), allreduce(4), 10**6, may_cut=True)
    bounds = bounds_of(uneven)
    assert plan_from_roots([uneven], SolveOptions(), bounds) is not None
    assert plan_from_roots([uneven], SolveOptions(), bounds, limit_s=bounds.any_chunking_s) is None


def test_chunks_are_dealt_by_their_shares() -> None:
    rooted = with_roots(Chunked(line(3, even), allreduce(3, 2), 1000), np.array([0.5, 0.0, 0.5]))
    assert rooted.collective.roots == (0, 0, 0, 2, 2, 2)
    assert all(phase.problem.owners.tolist() == [0, 0, 0, 2, 2, 2] for phase in rooted.phases)


def test_roots_are_of_sums_alone() -> None:
    with pytest.raises(InputError, match="roots must be 3 ranks"):
        allgather(3).rooted((0, 1, 2))
    with pytest.raises(InputError, match="roots must be 3 ranks"):
        allreduce(3).rooted((0, 1))
