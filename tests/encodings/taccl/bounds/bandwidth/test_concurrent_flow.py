"""The flow of all chunks: a linear program that is written otherwise, conservation, and never above a plan."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from little import LITTLE
from numpy.typing import NDArray
from path_lp import least_time_s
from rails import rails
from shapes import SHAPES, pairs_of_nodes, two_way

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bandwidth.concurrent_flow import ConcurrentFlow, concurrent_flow
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

Demand = NDArray[np.int64]

COSTS = st.lists(st.integers(1, 20), min_size=20, max_size=20)
PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6)
DEMAND = st.lists(st.integers(0, 3), min_size=16, max_size=16).map(
    lambda amounts: np.array(amounts).reshape(4, 4) * (1 - np.eye(4, dtype=np.int64))
)


def _everyone(count: int) -> Demand:
    return 1 - np.eye(count, dtype=np.int64)


def _found(topology: Topology, demand: Demand, short: bool = False) -> ConcurrentFlow:
    found = concurrent_flow(topology, topology.beta_s_per_byte, demand, short=short)
    assert found is not None
    assert found.exact
    return found


@examples(40)
@given(pairs=PAIRS, costs=COSTS, demand=DEMAND)
def test_on_plain_links_it_is_the_linear_program_over_all_ways(
    pairs: list[tuple[int, int]], costs: list[int], demand: Demand
) -> None:
    chosen = {tuple(sorted(pair)) for pair in pairs if pair[0] != pair[1]} | {(k, k + 1) for k in range(3)}
    topology = two_way("random", 4, sorted(chosen), lambda k: (0.0, costs[k] * 1e-10))
    expected_s = least_time_s(topology, topology.beta_s_per_byte, demand)
    assert _found(topology, demand).time_s == pytest.approx(expected_s, rel=2e-6, abs=0)


@examples(20)
@given(costs=COSTS, demand=DEMAND)
def test_where_nics_are_shared_it_is_the_linear_program_over_all_ways(costs: list[int], demand: Demand) -> None:
    topology = pairs_of_nodes(2, lambda k: (0.0, costs[k] * 1e-10))
    expected_s = least_time_s(topology, topology.beta_s_per_byte, demand)
    assert _found(topology, demand).time_s == pytest.approx(expected_s, rel=2e-6, abs=0)


@examples(40)
@given(shape=st.sampled_from(sorted(SHAPES)), costs=COSTS)
def test_symmetry_does_not_change_it(shape: str, costs: list[int]) -> None:
    """The program over all ways has a variable for each way of each chunk."""
    topology = SHAPES[shape](4, lambda k: (0.0, costs[k % 2] * 1e-10))
    demand = _everyone(4)
    assert _found(topology, demand).time_s == pytest.approx(
        least_time_s(topology, topology.beta_s_per_byte, demand), rel=2e-6
    )


@pytest.mark.parametrize(
    ("name", "nodes", "hops"),
    [("ring:8", 1, 16 / 2), ("torus:4x4", 1, 32 / 4), ("torus:4x4x4", 1, 192 / 6), ("hypercube:4", 1, 32 / 4)],
)
def test_on_regular_networks_it_is_the_hops_of_a_rank_over_its_links(name: str, nodes: int, hops: float) -> None:
    topology = load_topology(name, nodes)
    time_s = _found(topology, _everyone(topology.device_count)).time_s
    assert time_s == pytest.approx(hops * float(topology.beta_s_per_byte[0]), rel=2e-6, abs=0)


@pytest.mark.parametrize(("name", "nodes"), [("ndv2", 2), ("mi250", 1), ("mesh:3x5", 1), ("fat-tree:k=4", 1)])
@pytest.mark.parametrize("short", [False, True])
def test_the_flow_brings_what_is_wanted_within_its_time(name: str, nodes: int, short: bool) -> None:
    topology = load_topology(name, nodes)
    count = topology.device_count
    demand = np.array([[(s + 2 * t) % 3 if s != t else 0 for t in range(count)] for s in range(count)])
    found = _found(topology, demand, short)
    kept = np.zeros((len(found.ends), count))
    np.add.at(kept.T, topology.link_target, found.flow.T)
    np.subtract.at(kept.T, topology.link_source, found.flow.T)
    wanted = demand[found.ends].astype(float)
    wanted[np.arange(len(found.ends)), found.ends] = -wanted.sum(axis=1)
    assert np.allclose(kept, wanted, atol=1e-5)
    load_s = found.flow.sum(axis=0) * topology.beta_s_per_byte
    busy_s = np.bincount(topology.held, weights=load_s[topology.held_by], minlength=1)
    assert max(busy_s.max(), load_s.max()) == pytest.approx(found.time_s, rel=1e-5, abs=0)


def test_few_targets_are_the_commodities_of_a_gather() -> None:
    topology = load_topology("mesh:3x5", 1)
    demand = np.zeros((15, 15), dtype=np.int64)
    demand[1:, 0] = 1
    found = _found(topology, demand)
    assert found.by_target
    assert found.ends.tolist() == [0]
    assert found.time_s == pytest.approx(14 / 2 * float(topology.beta_s_per_byte[0]), rel=2e-6, abs=0)
    assert _found(topology, demand.T).time_s == pytest.approx(found.time_s, rel=2e-6, abs=0)


def test_what_nobody_wants_takes_no_time() -> None:
    assert _found(load_topology("ring:8", 1), np.zeros((8, 8), dtype=np.int64)).time_s == 0.0


def test_a_program_that_is_too_large_is_left_alone() -> None:
    topology = rails(64)
    assert concurrent_flow(topology, topology.beta_s_per_byte, _everyone(512)) is None


@examples(40)
@given(
    collective=st.sampled_from(["alltoall", "scatter", "gather", "sendrecv"]), pairs=PAIRS, costs=COSTS,
    size=st.sampled_from([1_000, 10**6]),
)  # fmt: skip
def test_it_is_never_above_a_plan(
    collective: str, pairs: list[tuple[int, int]], costs: list[int], size: int
) -> None:  # fmt: skip
    chosen = {tuple(sorted(pair)) for pair in pairs if pair[0] != pair[1]} | {(k, k + 1) for k in range(3)}
    topology = two_way("random", 4, sorted(chosen), lambda k: (1e-7 * costs[-k - 1], costs[k] * 1e-10))
    ends = {"root": 0, "target": 3} if collective == "sendrecv" else {}
    problem = Chunked.of(topology, collective, size, method="greedy", **ends)  # type: ignore[arg-type]
    result = gapless.solve(problem, SolveOptions(gap=0.05), LITTLE)
    assert result.valid
    assert result.report is not None
    bandwidth = bounds_of(problem).bandwidth
    assert bandwidth.exact
    assert bandwidth.time_s <= result.report.makespan_s * (1 + 1e-9)
