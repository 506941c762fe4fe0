"""Collective times: the published formulas, the choice of a collective, and rings of real topologies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.profiles.gradients.communication import (
    RingNetwork,
    all_gather_cost,
    all_reduce_cost,
    communication_cost,
    ring_network,
)
from gapless.profiles.gradients.compressors import NONE, compressor_names, named_compressor
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Link, Topology

networks = st.builds(
    RingNetwork, ranks=st.integers(1, 512), bytes_per_s=st.floats(1e6, 1e12), alpha_s=st.floats(0, 1e-3)
)
sizes = st.floats(0, 1e9)
ratios = st.floats(1, 1000)


def test_all_reduce_follows_equation_4_1() -> None:
    network = RingNetwork(ranks=64, bytes_per_s=1.25e9, alpha_s=1e-5)
    expected_s = 2 * 1e-5 * 63 + 2 * 25e6 * 63 / (64 * 1.25e9)
    assert float(all_reduce_cost(network)(25e6)) == pytest.approx(expected_s)


def test_all_gather_brings_every_other_rank_a_whole_message() -> None:
    network = RingNetwork(ranks=8, bytes_per_s=1e9, alpha_s=1e-5)
    assert float(all_gather_cost(network, ratio=32)(64e6)) == pytest.approx(7 * 1e-5 + 7 * 2e6 / 1e9)


@given(networks, sizes, ratios)
def test_ratio_divides_the_bytes_and_not_the_latency(network: RingNetwork, size_bytes: float, ratio: float) -> None:
    for cost in (all_reduce_cost, all_gather_cost):
        expected = cost(network)(size_bytes / ratio)
        np.testing.assert_allclose(cost(network, ratio)(size_bytes), expected, rtol=1e-9)


@given(networks, ratios)
def test_all_gather_moves_fewer_bytes_than_a_raw_all_reduce_only_above_half_the_ranks(
    network: RingNetwork, ratio: float
) -> None:
    gathered, reduced = all_gather_cost(network, ratio).beta_s_per_byte, all_reduce_cost(network).beta_s_per_byte
    if network.ranks > 1 and abs(2 * ratio / network.ranks - 1) > 1e-9:
        assert (gathered < reduced) == (ratio > network.ranks / 2)


@pytest.mark.parametrize("name", compressor_names())
def test_collective_is_chosen_by_what_the_compressor_allows(name: str) -> None:
    network = RingNetwork(ranks=16, bytes_per_s=1e9, alpha_s=1e-6)
    compressor = named_compressor(name)
    collective = all_reduce_cost if compressor.all_reducible else all_gather_cost
    assert communication_cost(network, compressor) == collective(network, compressor.ratio)


@given(sizes)
def test_one_rank_sends_nothing(size_bytes: float) -> None:
    assert float(communication_cost(RingNetwork(1, 1e9, 1e-3), NONE)(size_bytes)) == 0.0


@pytest.mark.parametrize(
    ("ranks", "bytes_per_s", "alpha_s", "message"),
    [
        (0, 1e9, 0.0, "ranks: must be >= 1, got 0"),
        (2, 0.0, 0.0, "bandwidth: must be > 0, got 0.0"),
        (2, math.nan, 0.0, "bandwidth: must be > 0, got nan"),
        (2, 1e9, -1.0, "latency: must be finite and >= 0, got -1.0"),
        (2, 1e9, math.inf, "latency: must be finite and >= 0, got inf"),
    ],
)
def test_impossible_network_is_refused(ranks: int, bytes_per_s: float, alpha_s: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        RingNetwork(ranks, bytes_per_s, alpha_s)


def test_ring_of_two_ndv2_is_as_fast_as_its_network_interfaces() -> None:
    network = ring_network(load_topology("ndv2", 2))
    assert network.ranks == 16
    assert network.bytes_per_s == pytest.approx(1 / 106e-12)
    assert network.alpha_s == pytest.approx(1.7e-6)


def test_ring_inside_a_dgx2_is_as_fast_as_its_switches() -> None:
    network = ring_network(load_topology("dgx2", 1))
    assert (network.ranks, network.bytes_per_s, network.alpha_s) == (16, pytest.approx(125e9), pytest.approx(0.7e-6))


def test_links_that_share_a_resource_take_turns() -> None:
    links = tuple(Link(source, target, 1e-6, 1e-9, resources=(0,)) for source, target in ((0, 1), (1, 2), (2, 0)))
    network = ring_network(Topology("bus", (0, 0, 0), links, resources=("bus",)))
    assert (network.bytes_per_s, network.alpha_s) == (pytest.approx(1e9 / 3), pytest.approx(3e-6))


def test_links_without_a_bandwidth_limit_give_a_network_without_one() -> None:
    network = ring_network(Topology("pair", (0, 0), (Link(0, 1, 1e-6, 0.0), Link(1, 0, 1e-6, 0.0))))
    assert network.bytes_per_s == math.inf
    assert all_reduce_cost(network).beta_s_per_byte == 0.0


def test_single_device_is_a_ring_of_one() -> None:
    assert ring_network(Topology("one", (0,))) == RingNetwork(1, math.inf, 0.0)


def test_topology_without_a_ring_is_refused() -> None:
    with pytest.raises(InputError, match="no ring through all 2 ranks"):
        ring_network(Topology("one way", (0, 0), (Link(0, 1, 0.0, 1.0),)))
