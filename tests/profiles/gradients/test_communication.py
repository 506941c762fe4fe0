"""Collective times: the published formulas, the choice of a collective, and rings of real topologies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.profiles.compressors.casts import NONE
from gapless.profiles.compressors.grammar import compressor_names, named_compressor
from gapless.profiles.gradients.communication import (
    FlatNetwork,
    TwoLevelNetwork,
    aggregation_names,
    all_gather_cost,
    all_reduce_cost,
    buffer_bytes,
    communication_cost,
    compression_cost,
    find_network,
    gathered_bytes,
    in_messages,
    ring_network,
    two_level_network,
)
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.named import priced_mode
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Link, Topology

networks = st.builds(
    FlatNetwork, ranks=st.integers(1, 512), bytes_per_s=st.floats(1e6, 1e12), alpha_s=st.floats(0, 1e-3)
)
NODES = TwoLevelNetwork(inner=FlatNetwork(4, 100e9, 1e-6), outer=FlatNetwork(8, 3e9, 1e-5))
sizes = st.floats(0, 1e9)
ratios = st.floats(1, 1000)


def test_all_reduce_follows_equation_4_1() -> None:
    network = FlatNetwork(ranks=64, bytes_per_s=1.25e9, alpha_s=1e-5)
    expected_s = 2 * 1e-5 * 63 + 2 * 25e6 * 63 / (64 * 1.25e9)
    assert float(all_reduce_cost(network)(25e6)) == pytest.approx(expected_s)


def test_all_gather_brings_every_other_rank_a_whole_message() -> None:
    network = FlatNetwork(ranks=8, bytes_per_s=1e9, alpha_s=1e-5)
    assert float(all_gather_cost(network, ratio=32)(64e6)) == pytest.approx(7 * 1e-5 + 7 * 2e6 / 1e9)


@given(networks, sizes, ratios)
def test_ratio_divides_the_bytes_and_not_the_latency(network: FlatNetwork, size_bytes: float, ratio: float) -> None:
    for cost in (all_reduce_cost, all_gather_cost):
        expected = cost(network)(size_bytes / ratio)
        np.testing.assert_allclose(cost(network, ratio)(size_bytes), expected, rtol=1e-9)


@given(networks, ratios)
def test_all_gather_moves_fewer_bytes_than_a_raw_all_reduce_only_above_half_the_ranks(
    network: FlatNetwork, ratio: float
) -> None:
    gathered, reduced = all_gather_cost(network, ratio).beta_s_per_byte, all_reduce_cost(network).beta_s_per_byte
    if network.ranks > 1 and abs(2 * ratio / network.ranks - 1) > 1e-9:
        assert (gathered < reduced) == (ratio > network.ranks / 2)


@pytest.mark.parametrize("name", compressor_names())
def test_collective_is_chosen_by_what_the_compressor_allows(name: str) -> None:
    network = FlatNetwork(ranks=16, bytes_per_s=1e9, alpha_s=1e-6)
    compressor = named_compressor(name)
    collective = all_reduce_cost if compressor.all_reducible else all_gather_cost
    assert communication_cost(network, compressor) == collective(network, compressor.ratio)


@given(sizes)
def test_one_rank_sends_nothing(size_bytes: float) -> None:
    assert float(communication_cost(FlatNetwork(1, 1e9, 1e-3), NONE)(size_bytes)) == 0.0


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
        FlatNetwork(ranks, bytes_per_s, alpha_s)


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
    assert ring_network(Topology("one", (0,))) == FlatNetwork(1, math.inf, 0.0)


def test_topology_without_a_ring_is_refused() -> None:
    with pytest.raises(InputError, match="no ring through all 2 ranks"):
        ring_network(Topology("one way", (0, 0), (Link(0, 1, 0.0, 1.0),)))


@pytest.mark.parametrize(
    ("aggregation", "latency_s", "bandwidth_s"),
    [("ring", 2 * 63e-5, 2 * 25e6 * 63 / 64 / 1e9), ("tree", 12e-5, 12 * 25e-3), ("server", 2e-5, 126 * 25e-3)],
)
def test_all_reduce_follows_table_4_2(aggregation: str, latency_s: float, bandwidth_s: float) -> None:
    cost = all_reduce_cost(FlatNetwork(64, 1e9, 1e-5, aggregation))
    assert cost.alpha_s == pytest.approx(latency_s)
    assert float(cost(25e6)) == pytest.approx(latency_s + bandwidth_s)


@given(networks)
def test_a_tree_saves_latency_a_ring_bandwidth_and_a_server_is_never_faster_than_both(network: FlatNetwork) -> None:
    ring, tree, server = (all_reduce_cost(network.with_outer(aggregation=name)) for name in aggregation_names()[:3])
    assert isinstance(server, AffineCost)
    assert isinstance(tree, AffineCost)
    assert isinstance(ring, AffineCost)
    assert server.alpha_s <= tree.alpha_s <= ring.alpha_s
    assert ring.beta_s_per_byte <= tree.beta_s_per_byte <= server.beta_s_per_byte * (1 + 1e-12)


@given(networks, sizes)
def test_a_ring_or_a_tree_takes_what_the_faster_takes_at_each_size(network: FlatNetwork, size_bytes: float) -> None:
    ring, tree, either = (
        float(all_reduce_cost(network.with_outer(aggregation=name), 2.0)(size_bytes))
        for name in ("ring", "tree", "ring-or-tree")
    )
    assert either == pytest.approx(min(ring, tree), rel=1e-9)


def test_a_ring_or_a_tree_is_a_tree_for_small_messages_and_gathers_along_a_ring() -> None:
    network = FlatNetwork(64, 1.25e9, 1e-4, "ring-or-tree")
    ring, tree = (network.with_outer(aggregation=name) for name in ("ring", "tree"))
    for size, same, other in ((1e5, tree, ring), (1e8, ring, tree)):
        found, expected, slower = (float(all_reduce_cost(each)(size)) for each in (network, same, other))
        assert found == pytest.approx(expected)
        assert found < slower
    assert all_gather_cost(network) == all_gather_cost(ring)
    low_rank = priced_mode(named_compressor("powersgd"), network, [(512, 512)])
    assert float(low_rank.communication(1e3)) == pytest.approx(float(in_messages(all_reduce_cost(tree), 3)(1e3)))


def test_buffers_hold_the_messages_and_what_is_decoded_of_them() -> None:
    signs, powersgd = named_compressor("signsgd"), named_compressor("powersgd")
    network = FlatNetwork(64, 1.25e9)
    assert buffer_bytes(network, signs, 32e6) == pytest.approx(64 * (1e6 + 32e6))
    assert buffer_bytes(network, signs, 32e6, "one-by-one") == pytest.approx(64 * 1e6 + 32e6)
    assert buffer_bytes(network, powersgd, 32e6) == 0
    assert buffer_bytes(NODES, signs, 32e6) == pytest.approx(8 * (1e6 + 32e6) / 4)
    with pytest.raises(InputError, match="decoded: must be one of together, one-by-one, got 'never'"):
        buffer_bytes(network, signs, 32e6, "never")


def test_a_gathering_tree_doubles_its_messages() -> None:
    assert float(all_gather_cost(FlatNetwork(8, 1e9, 1e-5, "tree"))(2e6)) == pytest.approx(3e-5 + 7 * 2e6 / 1e9)


def test_two_levels_take_the_sum_of_their_parts() -> None:
    """8 nodes of 4 ranks: reduce-scatter and all-gather of plain 64 MB inside, a 32nd of it between nodes."""
    inside_s = 2 * (3 * 1e-6 + 3 / 4 * 64e6 / 100e9)
    assert float(NODES.inside_cost()(64e6)) == pytest.approx(inside_s)
    between_s = 2 * (7 * 1e-5 + 7 / 8 * 2e6 / 3e9)
    assert float(all_reduce_cost(NODES, ratio=32)(64e6)) == pytest.approx(inside_s + between_s)
    assert float(all_gather_cost(NODES, ratio=32)(64e6)) == pytest.approx(inside_s + 7 * (1e-5 + 2e6 / 3e9))


def test_in_two_levels_a_rank_encodes_its_share_and_decodes_a_message_of_each_node() -> None:
    dgc = named_compressor("dgc")
    assert float(compression_cost(NODES, dgc)(64e6)) == pytest.approx(float(dgc.cost(ranks=8)(16e6)))


def test_what_is_gathered_grows_with_the_ranks_and_what_is_added_is_not_gathered() -> None:
    dgc, powersgd, flat = named_compressor("dgc"), named_compressor("powersgd"), FlatNetwork(32, 1e9)
    assert gathered_bytes(flat, dgc, 100e6) == pytest.approx(32 * 100e6 / dgc.ratio)
    assert gathered_bytes(flat.with_outer(ranks=64), dgc, 100e6) == pytest.approx(64 * 100e6 / dgc.ratio)
    assert gathered_bytes(NODES, dgc, 100e6) == pytest.approx(8 * 25e6 / dgc.ratio)
    for network, compressor in ((flat, powersgd), (flat.with_outer(aggregation="server"), dgc)):
        assert gathered_bytes(network, compressor, 100e6) == 0


@given(networks, st.integers(1, 16), sizes, st.sampled_from(compressor_names()))
def test_two_levels_with_free_links_inside_are_never_slower_than_one_ring(
    outer: FlatNetwork, ranks_per_node: int, size_bytes: float, name: str
) -> None:
    inner = FlatNetwork(ranks_per_node, math.inf)
    flat, compressor = outer.with_outer(ranks=outer.ranks * ranks_per_node), named_compressor(name)
    for cost in (communication_cost, compression_cost):
        two_s = float(cost(TwoLevelNetwork(inner, outer), compressor)(size_bytes))
        assert two_s <= float(cost(flat, compressor)(size_bytes)) * (1 + 1e-12)


@given(networks, sizes, st.sampled_from(compressor_names()))
def test_nodes_of_one_rank_are_a_flat_network(network: FlatNetwork, size_bytes: float, name: str) -> None:
    compressor, single = named_compressor(name), TwoLevelNetwork(FlatNetwork(1, 1e9, 1e-6), network)
    for cost in (communication_cost, compression_cost):
        expected_s = float(cost(network, compressor)(size_bytes))
        assert float(cost(single, compressor)(size_bytes)) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("name", "inner_gb_per_s", "outer_gb_per_s"),
    [("ndv2", 43.48, 9.434), ("dgx2", 125.0, 8 * 9.434), ("dgx-a100", 300.0, 8 * 25.0)],
)
def test_machines_in_two_levels_use_all_network_interfaces(
    name: str, inner_gb_per_s: float, outer_gb_per_s: float
) -> None:
    network = two_level_network(load_topology(name, 2))
    assert network.inner.bytes_per_s / 1e9 == pytest.approx(inner_gb_per_s, rel=1e-3)
    assert network.outer.bytes_per_s / 1e9 == pytest.approx(outer_gb_per_s, rel=1e-3)
    assert (network.outer.ranks, network.ranks) == (2, 2 * network.inner.ranks)


@pytest.mark.parametrize(
    ("name", "ring_ms", "levels_ms"), [("ndv2", 19.9, 14.7), ("dgx2", 20.6, 2.9), ("dgx-a100", 7.6, 1.1)]
)
def test_two_levels_bring_100_mb_as_soon_as_the_page_says(name: str, ring_ms: float, levels_ms: float) -> None:
    for levels, printed_ms in ((1, ring_ms), (2, levels_ms)):
        network = find_network(topology=name, nodes=2, levels=levels)
        assert 1e3 * float(communication_cost(network, NONE)(100e6)) == pytest.approx(printed_ms, abs=0.05)


def test_machines_of_several_nodes_have_two_levels_unless_one_is_asked_for() -> None:
    assert find_network(topology="ndv2", nodes=2) == two_level_network(load_topology("ndv2", 2))
    assert find_network(topology="ndv2", nodes=2, levels=1) == ring_network(load_topology("ndv2", 2))
    assert find_network(topology="ndv2").ranks_per_node == 1
    assert find_network(topology="ndv2", nodes=2, aggregation="tree").outer.aggregation == "tree"


def test_numbers_describe_two_levels() -> None:
    """Eight servers of eight GPUs, NVLink inside, 25 Gb/s between them: the second setup of FUSION, section 5."""
    network = find_network(ranks=64, bandwidth=25e9 / 8, ranks_per_node=8, inner_bandwidth=150e9, latency=0.0)
    assert network == TwoLevelNetwork(FlatNetwork(8, 150e9, 1e-6), FlatNetwork(8, 25e9 / 8, 0.0))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"ranks_per_node": 8}, "inner_bandwidth: must be given with `ranks_per_node`"),
        ({"ranks_per_node": 7, "inner_bandwidth": 1e9}, "ranks_per_node: must divide the 64 ranks, got 7"),
        ({"inner_latency": 1e-6}, "inner_latency: goes with `ranks_per_node`"),
        ({"levels": 2}, "levels: goes with topology"),
        (
            {"aggregation": "rings"},
            "aggregation: must be one of ring, tree, server, ring-or-tree, got 'rings'; did you mean 'ring'",
        ),
    ],
)
def test_numbers_that_describe_no_network_are_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_network(ranks=64, bandwidth=1e9, **asked)


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (Topology("one", (0, 0), (Link(0, 1, 0.0, 1e-9), Link(1, 0, 0.0, 1e-9))), "of equally many ranks, got 2;"),
        (Topology("odd", (0, 0, 1), ()), "nodes of equally many ranks, got 2, 1; take one level"),
        (Topology("apart", (0, 1), (Link(0, 1, 0.0, 1e-9),)), "need a link from rank 1 to rank 0; take one level"),
    ],
)
def test_topologies_without_two_levels_are_refused(topology: Topology, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_network(topology=topology, levels=2)
