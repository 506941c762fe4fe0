"""Bounds for large clusters: what is known of them, and never above a plan."""

from __future__ import annotations

import pytest
from rails import rails

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.ir.collective import allgather, alltoall, broadcast


def test_alltoall_is_bound_by_the_nics_of_a_node() -> None:
    topology = rails(4)
    problem = Chunked(topology, alltoall(32), 10**6)
    bounds = bounds_of(problem)
    assert bounds.bandwidth.time_s == pytest.approx(8 * 24 * 1e6 / (8 * 50e9))
    assert bounds.latency_s == pytest.approx(0.7e-6 + 1e6 / 450e9 + 1.7e-6 + 1e6 / 50e9)


def test_more_chunks_of_the_same_data_take_as_long() -> None:
    topology = rails(4, nic_us=0, switch_us=0)
    bounds = [
        bounds_of(problem).bandwidth.time_s
        for problem in (Chunked(topology, allgather(32, parts), 12 * 10**6 // parts) for parts in (1, 3))
    ]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-5)
    assert bounds[0] == pytest.approx(31 * 12e6 / 500e9, rel=1e-5)


def test_broadcast_is_bound_by_the_way_to_the_farthest_rank() -> None:
    topology = rails(2, 4)
    problem = Chunked(topology, broadcast(8), 10**6)
    bounds = bounds_of(problem)
    assert bounds.chunk_by_chunk_s >= bounds.latency_s == pytest.approx(0.7e-6 + 1e6 / 450e9 + 1.7e-6 + 1e6 / 50e9)
