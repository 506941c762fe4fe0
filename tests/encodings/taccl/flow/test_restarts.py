"""Matching with restarts: every plan replays clean, the same seed gives the same plan, and known optima are reached."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from irregular_networks import mixed_bandwidths, regular_graph, with_slow_nic
from rails import rails
from shapes import SHAPES, even, line, pairs_of_nodes, ring, star

from gapless.checker import check
from gapless.encodings.taccl import Chunked, Sketch, load_sketch
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.flow.restarts import matched_plan
from gapless.encodings.taccl.parameters import Matching
from gapless.encodings.taccl.sketch.format import InterNode
from gapless.errors import InputError
from gapless.ir.collective import COLLECTIVES, Collective, allgather, collective_by_name
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Link, Topology

FEW = Matching(sends=4_000)
COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=8, max_size=8)


@pytest.mark.thorough(but=("ring", "pair"))
@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize(
    "topology",
    [rails(3, 2), pairs_of_nodes(3, even), ring(5, even), line(4, even), star(4, even)],
    ids=lambda t: t.name,
)
def test_every_collective_replays_clean(topology: Topology, collective: str) -> None:
    problem = Chunked(topology, collective_by_name(collective, topology.device_count), 100_000)
    plan = matched_plan(problem, SolveOptions(), FEW, bounds_of(problem))
    assert plan is not None
    report = check(plan.schedule)
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(plan.end_s, rel=1e-9)
    assert plan.proven_s <= report.makespan_s * (1 + 1e-9)


@examples(32)
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    costs=COSTS,
    parts=st.integers(1, 3),
    collective=st.sampled_from(["allgather", "allreduce"]),
)
def test_uneven_links_replay_clean(shape: str, costs: list[tuple[int, int]], parts: int, collective: str) -> None:
    topology = SHAPES[shape](4, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked(topology, collective_by_name(collective, 4, parts), 100_000)
    plan = matched_plan(problem, SolveOptions(), Matching(sends=1_000), bounds_of(problem))
    assert plan is not None
    assert check(plan.schedule).valid


def test_the_same_seed_gives_the_same_plan() -> None:
    problem = Chunked(mixed_bandwidths(8, 0), allgather(8, 2), 10**6)
    first, second = (matched_plan(problem, SolveOptions(seed=3), FEW) for _ in range(2))
    assert first is not None
    assert second is not None
    assert np.array_equal(first.schedule.place, second.schedule.place)
    assert np.array_equal(first.schedule.start_s, second.schedule.start_s)


def test_more_work_is_no_worse() -> None:
    problem = Chunked(mixed_bandwidths(8, 1), allgather(8, 2), 10**5)
    few, many = (matched_plan(problem, SolveOptions(), Matching(sends=sends)) for sends in (1, 20_000))
    assert few is None  # a single try takes more
    once = matched_plan(problem, SolveOptions(), Matching(sends=16 * 7))
    assert once is not None
    assert many is not None
    assert many.account["tries"] > once.account["tries"]
    assert many.end_s <= once.end_s


def test_groups_that_wait_beat_the_best_plan_of_single_chunks() -> None:
    costs = [(2, 1), (3, 2), (3, 1), (2, 1), (1, 3), (5, 2), (0, 2), (0, 2), (3, 1), (3, 1)]  # us, us for each MB
    ends = [end for rank in range(5) for end in ((rank, (rank + 1) % 5), ((rank + 1) % 5, rank))]
    links = tuple(Link(*pair, a * 1e-6, b * 1e-12) for pair, (a, b) in zip(ends, costs, strict=True))
    problem = Chunked(Topology("ring", (0,) * 5, links), allgather(5), 10**6)
    alone = matched_plan(problem, SolveOptions(), Matching(groups=(1,)))
    grouped = matched_plan(problem, SolveOptions(), Matching())
    assert alone is not None
    assert grouped is not None
    assert alone.end_s == pytest.approx(12e-6)  # which is optimal for single chunks
    assert grouped.end_s == pytest.approx(11e-6)


def test_a_switch_is_planned_as_well_as_can_be() -> None:
    problem = Chunked(rails(1), allgather(8), 10**8)
    plan = matched_plan(problem, SolveOptions(), FEW)
    assert plan is not None
    assert plan.end_s == pytest.approx(7 * (0.7e-6 + 1e8 / 450e9))


def test_a_regular_graph_is_near_its_bandwidth() -> None:
    problem = Chunked(regular_graph(12, 3, 0), allgather(12, 4), 10**7)
    bounds = bounds_of(problem)
    plan = matched_plan(problem, SolveOptions(), Matching(sends=20_000), bounds)
    assert plan is not None
    assert plan.end_s <= 1.1 * bounds.any_chunking_s


@pytest.mark.parametrize(("rank", "factor"), [(3, 2.0), pytest.param(0, 4.0, marks=pytest.mark.thorough)])
def test_a_slow_nic_holds_up_no_other(rank: int, factor: float) -> None:
    problem = Chunked(with_slow_nic(rank, factor), allgather(24, 11), 64 * 10**6 // 11)
    plan = matched_plan(problem, SolveOptions(), Matching(sends=40_000))
    assert plan is not None
    assert plan.end_s <= 1.07 * bounds_of(problem).any_chunking_s


def test_without_bounds_the_claim_is_that_of_the_shortest_paths() -> None:
    problem = Chunked(line(4, even), allgather(4), 10**6)
    plan = matched_plan(problem, SolveOptions(), FEW)
    assert plan is not None
    assert set(plan.bounds_s) == {"latency"}
    assert plan.proven_s == pytest.approx(3 * (1e-6 + 1e-4))


def test_a_line_is_proven_optimal_with_bounds() -> None:
    problem = Chunked(line(4, even), allgather(4), 10**6)
    plan = matched_plan(problem, SolveOptions(), FEW, bounds_of(problem))
    assert plan is not None
    assert plan.gap == pytest.approx(0, abs=1e-6)


def test_sums_begin_to_spread_before_all_are_complete() -> None:
    problem = Chunked(mixed_bandwidths(8, 2), collective_by_name("allreduce", 8, 2), 10**6)
    plan = matched_plan(problem, SolveOptions(), FEW)
    assert plan is not None
    schedule = plan.schedule
    assert schedule.start_s[~schedule.reduces].min() < schedule.end_s[schedule.reduces].max()


def test_sums_of_some_ranks_may_pass_the_others() -> None:
    whole = collective_by_name("reduce", 4, 2)
    some = replace(whole, inputs=(whole.inputs[0], (), *whole.inputs[2:]))
    plan = matched_plan(Chunked(line(4, even), some, 1000), SolveOptions(), FEW)
    assert plan is not None
    assert check(plan.schedule).valid


@pytest.mark.parametrize("collective", ["allgather", "alltoall"])
def test_a_sketch_is_not_ignored(collective: str) -> None:
    problem = Chunked.of(load_topology("ndv2", 2), collective, 10**6, load_sketch("ndv2-sk-1"))
    plan = matched_plan(problem, SolveOptions(), Matching(sends=20_000))
    assert plan is not None
    schedule = plan.schedule
    assert problem.logical.allowed[schedule.moves.values, schedule.place[schedule.moves.owner]].all()


def test_what_it_cannot_plan_is_left_out() -> None:
    elsewhere = Collective("sum for others", 4, 1, ((0,), (0,), (), ()), ((), (), (0,), (0,)), reduces=True)
    assert matched_plan(Chunked(ring(4, even), elsewhere, 1000), SolveOptions(), FEW) is None
    inter_node = InterNode({0: (1,)}, relay_rule=(8, 0), enforce_ordering=True)
    ordered = Chunked.of(load_topology("ndv2", 2), "allgather", 10**6, Sketch("ordered", inter_node=inter_node))
    assert matched_plan(ordered, SolveOptions(), FEW) is None


def test_parameters_check_themselves() -> None:
    with pytest.raises(InputError, match="restart_share must be at most 1"):
        Matching(restart_share=1.5)
