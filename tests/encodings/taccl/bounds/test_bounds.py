"""Lower bounds chunk by chunk: never above the best possible, found by exhaustive search; tight where they can be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from exact import best_makespan_s
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from shapes import SHAPES, single_nodes

from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.errors import InputError
from gapless.ir.collective import allgather
from gapless.topologies.files import load_topology

COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=6, max_size=6)


@examples(60)
@given(shape=st.sampled_from(sorted(SHAPES)), costs=COSTS)
def test_bounds_never_exceed_the_best_schedule(shape: str, costs: list[tuple[int, int]]) -> None:
    topology = SHAPES[shape](3, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked.of(topology, "allgather", 1_000_000)
    assert bounds_of(problem).chunk_by_chunk_s <= best_makespan_s(problem) * (1 + 1e-9)


@examples(20)
@given(costs=COSTS, parts=st.integers(1, 3))
def test_bounds_hold_for_grouped_chunks(costs: list[tuple[int, int]], parts: int) -> None:
    topology = single_nodes(2, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked(topology, allgather(2, parts), 100_000)
    assert bounds_of(problem).chunk_by_chunk_s == pytest.approx(best_makespan_s(problem))


@examples(40)
@given(shape=st.sampled_from(sorted(SHAPES)), costs=COSTS)
def test_cuts_of_any_grouping_are_the_smaller_ones(shape: str, costs: list[tuple[int, int]]) -> None:
    topology = SHAPES[shape](4, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    bounds = bounds_of(Chunked.of(topology, "allgather", 1_000_000))
    assert bounds.any_grouping["cuts"] <= bounds.chunk_by_chunk["cuts"] * (1 + 1e-11)


@pytest.mark.thorough("ndv2-2", "torus", "mesh")
@pytest.mark.parametrize("collective", ["allgather", "reducescatter", "allreduce", "alltoall", "broadcast"])
@pytest.mark.parametrize(("name", "nodes"), [("ndv2", 2), ("torus:4x4", 1), ("ring:8", 1), ("mesh:3x5", 1)])
def test_bounds_without_a_look_at_single_chunks_are_no_larger(name: str, nodes: int, collective: str) -> None:
    problem = Chunked.of(load_topology(name, nodes), collective, 1_000_000)
    close, quick = (bounds_of(problem, BoundParameters(most_pairs=pairs)) for pairs in (4_000_000, 1))
    assert quick.latency_s <= close.latency_s * (1 + 1e-12)
    assert 0 < quick.chunk_by_chunk_s <= close.chunk_by_chunk_s * (1 + 1e-12)
    assert quick.any_grouping_s > 0


def test_what_a_solver_has_proven_joins_the_bounds_chunk_by_chunk() -> None:
    bounds = bounds_of(Chunked.of(load_topology("ring:8"), "allgather", 1_000_000))
    least_s = bounds.chunk_by_chunk_s
    assert bounds.with_proven(least_s / 2).chunk_by_chunk_s == least_s
    assert bounds.with_proven(2 * least_s).with_proven(least_s).chunk_by_chunk_s == 2 * least_s


def test_limits_must_be_positive() -> None:
    with pytest.raises(InputError, match="bounds: time_steps must be > 0, got 0"):
        BoundParameters(time_steps=0)


def test_two_ndv2_nodes_are_bound_by_the_nic_and_the_way_on_from_it() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    bounds = bounds_of(problem)
    eight_chunks_through_the_nic = 1.7 + 8 * 106
    from_rank_1_to_the_farthest = (0.7 + 46) + (0.7 + 23)
    assert bounds.chunk_by_chunk["cuts"] == pytest.approx(
        1e-6 * (eight_chunks_through_the_nic + from_rank_1_to_the_farthest)
    )


def test_two_dgx2_nodes_are_bound_by_a_ranks_side_of_the_switch() -> None:
    problem = Chunked.of(load_topology("dgx2", 2), "allgather", 2_000_000, load_sketch("dgx2-sk-1"))
    assert bounds_of(problem).chunk_by_chunk["cuts"] == pytest.approx(62 * (0.7 + 8) * 1e-6)


def test_symmetry_does_not_change_the_bound() -> None:
    sketch = load_sketch("dgx2-sk-2")
    topology = load_topology("dgx2", 2)
    symmetric, plain = (
        bounds_of(Chunked.of(topology, "allgather", 1_000_000, s)) for s in (sketch, replace(sketch, symmetry=()))
    )
    assert symmetric.chunk_by_chunk["cuts"] == pytest.approx(plain.chunk_by_chunk["cuts"])


def test_chunks_that_come_late_count_from_when_they_can_come() -> None:
    # 15 remote chunks come in over NICs at half bandwidth all at once, and only then through one side of the switch.
    problem = Chunked.of(load_topology("dgx2", 2), "allgather", 1_000_000, load_sketch("dgx2-sk-2"))
    assert bounds_of(problem).chunk_by_chunk["cuts"] == pytest.approx((1.7 + 2 * 106 + 15 * 8.7) * 1e-6)
