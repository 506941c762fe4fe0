"""Paths, by load or from the flow: every chunk from its owner to its target, no resource busy longer than need be."""

from __future__ import annotations

import numpy as np
import pytest
from examples import share
from rails import rails
from shapes import two_way

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.flow.paths import busiest_s, round_flow, route_paths
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.encodings.taccl.symmetry.quotient import quotient_problem
from gapless.ir.collective import Collective, alltoall, sendrecv
from gapless.topologies.files import load_topology


def test_paths_lead_from_owner_to_target() -> None:
    topology = rails(3, 4)
    problem = Chunked(topology, alltoall(12), 10**6)
    quotient = quotient_problem(problem)
    routes = route_paths(quotient, problem.occupancy_s)
    for chunk in range(len(quotient.chunks)):
        links = routes.link[routes.chunk == chunk]
        assert topology.link_source[links[0]] == quotient.owner[chunk]
        assert (topology.link_target[links[:-1]] == topology.link_source[links[1:]]).all()
        assert quotient.wanted[chunk, topology.link_target[links[-1]]]
    assert (routes.parent[np.flatnonzero(np.diff(routes.chunk, prepend=-1))] == -1).all()


def test_chunks_for_one_rank_share_out_over_equal_paths() -> None:
    topology = two_way("diamond", 4, [(0, 1), (0, 2), (1, 3), (2, 3)], lambda _: (0.0, 1e-10))
    sent = Collective("four", 4, 4, ((0, 1, 2, 3), (), (), ()), ((), (), (), (0, 1, 2, 3)))
    problem = Chunked(topology, sent, 10**6)
    quotient = quotient_problem(problem)
    routing = route_paths(quotient, problem.occupancy_s)
    assert busiest_s(quotient, routing, problem.occupancy_s) == 2 * problem.occupancy_s[0]


@pytest.mark.parametrize("seed", range(share(20)))
def test_a_chunk_that_is_alone_takes_a_shortest_path(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ring = [(rank, (rank + 1) % 9) for rank in range(9)]
    more = [tuple(rng.choice(9, 2, replace=False).tolist()) for _ in range(seed)]
    pairs = list(dict.fromkeys(tuple(sorted(pair)) for pair in [*ring, *more]))
    alpha_s = (1e-6 * rng.integers(1, 30, len(pairs))).tolist()
    topology = two_way("random", 9, pairs, lambda k: (alpha_s[k], 1e-12))
    problem = Chunked(topology, sendrecv(9, 1, 0, 4), 10**3)
    routing = route_paths(quotient_problem(problem), problem.occupancy_s)
    assert problem.duration_s[routing.link].sum() == pytest.approx(problem.earliest_s[0, 4])


MULTI_HOP = [
    ("ring:8", 1), ("line:8", 1), ("hub-and-spoke:8", 1), ("torus:4x4", 1), ("mesh:3x5", 1), ("hypercube:4", 1),
    ("dgx1", 1), ("ndv2", 1), ("mi250", 1), ("mi250", 2), ("fat-tree:k=4", 1),
]  # fmt: skip


def _routed(problem: Chunked) -> tuple[Routing, float, float]:
    """The routing, how long its busiest clock is taken, and the time of the flow."""
    quotient = quotient_problem(problem)
    flow = bounds_of(problem).bandwidth.flow
    assert flow is not None
    routes = round_flow(quotient, problem.occupancy_s, flow, SolveOptions(gap=1e-3))
    topology = quotient.topology
    for chunk in range(len(quotient.chunks)):
        links = routes.link[routes.chunk == chunk]
        assert topology.link_source[links[0]] == quotient.owner[chunk]
        assert (topology.link_target[links[:-1]] == topology.link_source[links[1:]]).all()
        assert quotient.wanted[chunk, topology.link_target[links[-1]]]
    return routes, busiest_s(quotient, routes, problem.occupancy_s), flow.time_s


@pytest.mark.parametrize("collective", ["alltoall", "scatter", "gather"])
@pytest.mark.parametrize(("name", "nodes"), MULTI_HOP)
def test_paths_lead_from_owner_to_target_and_are_not_busy_for_less_than_the_flow(
    name: str, nodes: int, collective: str
) -> None:
    _, busy_s, time_s = _routed(Chunked.of(load_topology(name, nodes), collective, 64 * 10**6, chunks_per_rank=2))
    assert busy_s >= time_s * (1 - 1e-6)


@pytest.mark.parametrize(("name", "nodes"), MULTI_HOP)
def test_six_chunks_a_pair_share_out_within_a_fiftieth_of_the_flow(name: str, nodes: int) -> None:
    _, busy_s, time_s = _routed(Chunked.of(load_topology(name, nodes), "alltoall", 64 * 10**6, chunks_per_rank=6))
    assert busy_s <= time_s * 1.02


@pytest.mark.thorough("mi250", "mesh:3x5", "line:8")
@pytest.mark.parametrize(("name", "nodes"), MULTI_HOP)
def test_large_alltoalls_are_within_a_twentieth_of_the_exact_bound(name: str, nodes: int) -> None:
    chunks = 3 if name in ("dgx1", "ndv2", "mi250") else 2
    problem = Chunked.of(load_topology(name, nodes), "alltoall", 64 * 10**6, method="greedy", chunks_per_rank=chunks)
    result = gapless.solve(problem, SolveOptions(gap=0.02))
    assert result.valid
    assert result.details["bound_sources_s"]["bandwidth_is_exact"]
    assert result.details["ratio"] <= 1.05


def test_where_symmetric_ways_are_uneven_a_small_board_is_routed_without() -> None:
    """Half of what goes to the other side of a ring goes left: with one chunk a pair that breaks the rotations."""
    problem = Chunked.of(load_topology("ring:8", 1), "alltoall", 64 * 10**6, method="greedy")
    result = gapless.solve(problem, SolveOptions(gap=0.01))
    assert result.details["rotations"] == 1
    assert result.details["ratio"] <= 1.01


def test_chunks_of_one_pair_share_out_over_all_ways() -> None:
    problem = Chunked.of(load_topology("torus:4x4", 1), "sendrecv", 4 * 10**6, root=0, target=5, chunks_per_rank=4)
    routes, busy_s, time_s = _routed(problem)
    assert busy_s == pytest.approx(time_s, rel=1e-6, abs=0)
    assert len(np.unique(routes.link[routes.parent < 0])) > 1
