"""Spanning trees: an ALLREDUCE along packed trees replays clean, and comes near the bound that phases in turn miss."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from shapes import SHAPES, even, line, ring, star

from gapless.checker import check
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.flow.trees.spanning_trees import doubled_chunks, plan_on_trees
from gapless.encodings.taccl.methods import may_pack_trees
from gapless.encodings.taccl.parameters import Parameters, Trees
from gapless.encodings.taccl.problem import problem
from gapless.encodings.taccl.solve import solve
from gapless.ir.collective import allreduce, reducescatter
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Link, Topology

COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=8, max_size=8)


def planned(name: str, size: int, parameters: Trees = Trees()) -> Candidate:  # noqa: B008
    asked = problem(name, collective="allreduce", size=size)
    numbers = doubled_chunks(asked.coarsest, parameters)
    plan = plan_on_trees(
        map(asked.in_chunks, numbers), SolveOptions(), bounds_of(asked.coarsest), parameters=parameters
    )
    assert plan is not None
    return plan


@examples(32)
@given(shape=st.sampled_from(sorted(SHAPES)), costs=COSTS, parts=st.integers(1, 3))
def test_uneven_links_replay_clean(shape: str, costs: list[tuple[int, int]], parts: int) -> None:
    topology = SHAPES[shape](4, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    chunked = Chunked(topology, allreduce(4, parts), 100_000)
    plan = plan_on_trees([chunked], SolveOptions(), bounds_of(chunked), parameters=Trees(rows=500, looks=10_000))
    assert plan is not None
    report = check(plan.schedule)
    assert report.valid, report.summary()
    assert bounds_of(chunked).any_grouping_s <= report.makespan_s * (1 + 1e-9)


@pytest.mark.thorough("fat-tree")
@pytest.mark.parametrize("name", ["dgx2", "fat-tree:k=4"])
def test_links_that_share_ports_replay_clean(name: str) -> None:
    assert check(planned(name, 64 * 10**6, Trees(rows=2_000)).schedule).valid


@pytest.mark.thorough("mesh")
@pytest.mark.parametrize("name", ["line:5", "hub-and-spoke:5", "mesh:2x3"])
def test_without_latencies_trees_come_near_the_bound(name: str) -> None:
    """With roots on all ranks alike, a rank at the end takes (n - 1) / n of all bytes in each of two phases: 1.3 to 1.6
    times the bound.
    """
    plan = planned(f"{name},alpha_us=0,beta_us_per_mb=46", 64 * 10**6, Trees(rows=10_000))
    assert plan.end_s <= 1.1 * plan.bound_s


@pytest.mark.thorough
def test_the_portfolio_takes_trees_where_they_are_fastest() -> None:
    asked = problem("line:5", collective="allreduce", size=64 * 10**6)
    plan = solve(asked, SolveOptions(), Parameters().with_share(0.05))
    assert plan.details["provenance"]["method"] == "trees"
    assert check(plan.schedule).valid


def test_the_same_seed_gives_the_same_plan() -> None:
    first, second = (planned("mesh:2x3", 10**6, Trees(rows=2_000)) for _ in range(2))
    assert np.array_equal(first.schedule.place, second.schedule.place)
    assert np.array_equal(first.schedule.start_s, second.schedule.start_s)


def test_more_chunks_than_there_is_work_for_are_left_out() -> None:
    asked = problem("mesh:2x3", collective="allreduce", size=10**6)
    assert list(doubled_chunks(asked.coarsest, Trees(rows=1))) == [1]
    assert list(doubled_chunks(asked.coarsest, Trees(rows=300))) == [1, 2, 4]
    assert (
        plan_on_trees([asked.coarsest], SolveOptions(), bounds_of(asked.coarsest), parameters=Trees(looks=10)) is None
    )


def test_what_promises_to_be_slower_than_the_best_is_not_put_in_order() -> None:
    asked = problem("mesh:2x3", collective="allreduce", size=10**6)
    bounds = bounds_of(asked.coarsest)
    assert plan_on_trees([asked.coarsest], SolveOptions(), bounds, limit_s=bounds.asked_s) is None


def test_links_that_run_one_way_join_nobody() -> None:
    one_way = Topology("one way", (0,) * 3, tuple(Link(k, (k + 1) % 3, 1e-6, 1e-9) for k in range(3)))
    chunked = Chunked(one_way, allreduce(3), 1000)
    assert plan_on_trees([chunked], SolveOptions(), bounds_of(chunked)) is None


def test_it_is_for_allreduce_of_all_ranks_on_all_links() -> None:
    topology = load_topology("ndv2", 2, None)
    assert may_pack_trees(Chunked(line(4, even), allreduce(4), 1000))
    assert not may_pack_trees(Chunked(ring(4, even), reducescatter(4), 1000))
    assert not may_pack_trees(Chunked(star(4, even), allreduce(4), 1000, path_slack=0.5))
    assert not may_pack_trees(Chunked(topology, allreduce(16), 1000, load_sketch("ndv2-sk-1")))
    assert not may_pack_trees(problem("ndv2", nodes=2, ranks="0-7", collective="allreduce", size=1000).coarsest)
