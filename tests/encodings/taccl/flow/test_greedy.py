"""The greedy: every plan replays clean, no bound is beaten, and good plans are found where they are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rails import rails
from shapes import SHAPES, even, line, pairs_of_nodes, ring, star, two_way

from gapless.checker import check
from gapless.encodings.taccl import Chunked, Sketch, load_sketch
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.encodings.taccl.parameters import Greedy
from gapless.encodings.taccl.sketch.format import InterNode
from gapless.errors import InputError
from gapless.ir.collective import COLLECTIVES, Collective, allgather, collective_by_name
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

QUICK, FEW = SolveOptions(gap=0.01), Greedy(rows=20_000)
COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=8, max_size=8)


@pytest.mark.thorough(but=("ring", "star"))
@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize(
    "topology",
    [rails(3, 2), pairs_of_nodes(3, even), ring(5, even), line(4, even), star(4, even)],
    ids=lambda t: t.name,
)
def test_every_collective_replays_clean(topology: Topology, collective: str) -> None:
    problem = Chunked(topology, collective_by_name(collective, topology.device_count), 100_000)
    plan = plan_greedy(problem, QUICK, FEW)
    report = check(plan.schedule)
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(plan.end_s, rel=1e-9)
    assert plan.proven_s <= report.makespan_s * (1 + 1e-9)


@examples(40)
@given(shape=st.sampled_from(sorted(SHAPES)), costs=COSTS, parts=st.integers(1, 3))
def test_uneven_links_replay_clean(shape: str, costs: list[tuple[int, int]], parts: int) -> None:
    topology = SHAPES[shape](4, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked(topology, allgather(4, parts), 100_000)
    plan = plan_greedy(problem, QUICK, FEW)
    report = check(plan.schedule)
    assert report.valid
    assert bounds_of(problem).chunk_by_chunk_s <= report.makespan_s * (1 + 1e-9)
    assert plan.proven_s <= report.makespan_s * (1 + 1e-9)


def test_one_switch_is_planned_as_well_as_can_be() -> None:
    plan = plan_greedy(Chunked(rails(1), allgather(8), 10**6), QUICK, FEW)
    assert plan.gap == pytest.approx(0, abs=1e-6)
    assert plan.end_s == pytest.approx(7 * (0.7e-6 + 1e6 / 450e9))


def test_a_chunk_enters_a_node_once_where_its_nic_is_scarce() -> None:
    topology = load_topology("ndv2", 2)
    plan = plan_greedy(Chunked(topology, allgather(16), 10**6), SolveOptions(), FEW)
    assert plan is not None
    assert topology.is_inter_node[plan.schedule.place].sum() <= 16
    assert plan.schedule.moves.lengths.sum() == 16 * 15
    assert plan.end_s < 1.15 * plan.bound_s


def test_rotations_stand_in_the_details() -> None:
    plan = plan_greedy(Chunked(rails(4), allgather(32), 10**6), QUICK, FEW)
    assert plan is not None
    details = plan.details(None)
    assert details["method"] == "greedy"
    assert details["rotations"] == 32
    assert details["chunk_transfers"] == 32 * 31
    assert details["bounds_s"]["bandwidth_is_exact"]


def test_reducescatter_is_allgather_backwards() -> None:
    topology = rails(2)
    plans = [
        plan_greedy(Chunked(topology, collective_by_name(name, 16, 2), 10**7), QUICK, FEW)
        for name in ("allgather", "reducescatter")
    ]
    forth, back = (plan.end_s for plan in plans)
    assert forth is not None
    assert back == pytest.approx(forth, rel=0.2)
    assert plans[1].schedule.reduces.all()


def test_a_sketch_is_not_ignored() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 10**6, load_sketch("ndv2-sk-1"))
    schedule = plan_greedy(problem, QUICK, FEW).schedule
    assert schedule is not None
    assert problem.logical.allowed[schedule.moves.values, schedule.place[schedule.moves.owner]].all()


def test_a_sketch_that_orders_chunks_on_links_is_not_for_the_greedy() -> None:
    inter_node = InterNode({0: (1,)}, relay_rule=(8, 0), enforce_ordering=True)
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 10**6, Sketch("ordered", inter_node=inter_node))
    with pytest.raises(InputError, match="sends own chunks first"):
        plan_greedy(problem, QUICK, FEW)


def test_sums_of_a_few_ranks_are_forwarded_by_the_others() -> None:
    whole = collective_by_name("reduce", 4)
    some = replace(whole, name="two", inputs=((), (), (0,), (0,)))
    plan = plan_greedy(Chunked(line(4, even), some, 1000), QUICK, FEW)
    assert plan is not None
    assert check(plan.schedule).valid
    assert len(plan.schedule) == 3  # rank 1 has no part, and passes the sum on


def test_sums_that_nobody_with_a_part_wants_are_refused() -> None:
    swapped = Collective("swapped", 4, 1, ((0,), (0,), (), ()), ((), (), (0,), (0,)), reduces=True)
    with pytest.raises(InputError, match="wants"):
        plan_greedy(Chunked(ring(4, even), swapped, 1000), QUICK, FEW)


def test_the_same_seed_gives_the_same_plan() -> None:
    problem = Chunked(two_way("odd", 5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)], even), allgather(5, 2), 10**6)
    first, second = (plan_greedy(problem, SolveOptions(gap=0.01)).schedule for _ in range(2))
    assert first is not None
    assert second is not None
    assert np.array_equal(first.place, second.place)
    assert np.array_equal(first.start_s, second.start_s)
