"""Lower bounds: never above the best possible, found by exhaustive search, and tight where they can be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from exact import best_makespan_s
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import SHAPES, single_nodes

from gapless.collective import allgather
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.bounds.makespan import combinatorial_bounds
from gapless.topologies.files import load_topology

COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=6, max_size=6)


@pytest.mark.parametrize("shape", sorted(SHAPES))
@settings(max_examples=15, deadline=None)
@given(costs=COSTS)
def test_bounds_never_exceed_the_best_schedule(shape: str, costs: list[tuple[int, int]]) -> None:
    topology = SHAPES[shape](3, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked.of(topology, "allgather", 1_000_000)
    assert combinatorial_bounds(problem).best_s <= best_makespan_s(problem) * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(costs=COSTS, parts=st.integers(1, 3))
def test_bounds_hold_for_grouped_chunks(costs: list[tuple[int, int]], parts: int) -> None:
    topology = single_nodes(2, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked(topology, allgather(2, parts), 100_000)
    assert combinatorial_bounds(problem).best_s == pytest.approx(best_makespan_s(problem))


@pytest.mark.parametrize("shape", sorted(SHAPES))
@settings(max_examples=10, deadline=None)
@given(costs=COSTS)
def test_bound_for_any_grouping_is_the_smaller_one(shape: str, costs: list[tuple[int, int]]) -> None:
    topology = SHAPES[shape](4, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    bounds = combinatorial_bounds(Chunked.of(topology, "allgather", 1_000_000))
    assert bounds.any_grouping_s <= max(bounds.latency_s, bounds.bandwidth_s) + 1e-18


def test_two_ndv2_nodes_are_bound_by_the_nic_and_the_way_on_from_it() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    bounds = combinatorial_bounds(problem)
    eight_chunks_through_the_nic = 1.7 + 8 * 106
    from_rank_1_to_the_farthest = (0.7 + 46) + (0.7 + 23)
    assert bounds.bandwidth_s == pytest.approx(1e-6 * (eight_chunks_through_the_nic + from_rank_1_to_the_farthest))


def test_two_dgx2_nodes_are_bound_by_a_ranks_side_of_the_switch() -> None:
    problem = Chunked.of(load_topology("dgx2", 2), "allgather", 2_000_000, load_sketch("dgx2-sk-1"))
    assert combinatorial_bounds(problem).bandwidth_s == pytest.approx(62 * (0.7 + 8) * 1e-6)


def test_symmetry_does_not_change_the_bound() -> None:
    sketch = load_sketch("dgx2-sk-2")
    topology = load_topology("dgx2", 2)
    symmetric, plain = (
        combinatorial_bounds(Chunked.of(topology, "allgather", 1_000_000, s))
        for s in (sketch, replace(sketch, symmetry=()))
    )
    assert symmetric.bandwidth_s == pytest.approx(plain.bandwidth_s)


def test_chunks_that_come_late_count_from_when_they_can_come() -> None:
    # 15 remote chunks come in over NICs at half bandwidth all at once, and only then through one side of the switch.
    problem = Chunked.of(load_topology("dgx2", 2), "allgather", 1_000_000, load_sketch("dgx2-sk-2"))
    assert combinatorial_bounds(problem).bandwidth_s == pytest.approx((1.7 + 2 * 106 + 15 * 8.7) * 1e-6)
