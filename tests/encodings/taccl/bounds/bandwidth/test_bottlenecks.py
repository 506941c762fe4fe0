"""The exact bandwidth bound: published numbers, an LP that is written otherwise, and never above a plan."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rails import rails
from shapes import SHAPES, pairs_of_nodes, two_way
from spreading_lp import allgather_time_s

from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import Bottleneck, Network, allgather_bottlenecks, bottleneck
from gapless.encodings.taccl.bounds.bandwidth.packing import pack
from gapless.encodings.taccl.symmetry.rotations import no_rotations
from gapless.errors import InputError
from gapless.topologies.node import LocalLink, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.topology import Topology

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "taccl" / "topologies.json"


def _machine(name: str, nodes: int) -> Topology:
    """The machines that ForestColl's numbers are for; rates in GB/s, no latencies."""
    if name == "a100":
        return rails(nodes, 8, 300, 25, 0, 0, every=2)
    if name == "dgx2":
        nics = tuple(NicTemplate((2 * k, 2 * k + 1), 0, 1 / 12.5e9) for k in range(8))
        return NodeTemplate(name, 16, (), (SwitchTemplate(tuple(range(16)), 0, 1 / 125e9),), nics).cluster(nodes)
    if not DATA.is_file():
        pytest.skip(f"the node templates are not at {DATA}")
    data = json.loads(DATA.read_text())
    if name == "ndv2":
        rate = {23: 50e9, 46: 25e9}
        rows = data["ndv2_node"]["links"]
        links = tuple(LocalLink(row["src"], row["dst"], 0, 1 / rate[row["beta_us_per_mb"]]) for row in rows)
        return NodeTemplate(name, 8, links, nics=(NicTemplate(tuple(range(8)), 0, 1 / 12.5e9),)).cluster(nodes)
    matrix = data["mi250_node_forestcoll"]["multiplicity"]
    links = tuple(
        LocalLink(a, b, 0, 1 / (50e9 * width)) for a, row in enumerate(matrix) for b, width in enumerate(row) if width
    )
    return NodeTemplate(name, 16, links, nics=tuple(NicTemplate((k,), 0, 1 / 16e9) for k in range(16))).cluster(nodes)


def worst_cut(topology: Topology) -> Bottleneck:
    return max(allgather_bottlenecks(topology, topology.beta_s_per_byte), key=lambda cut: cut.time_s)


PUBLISHED = [
    ("ndv2", 1, 171.4), ("ndv2", 2, 25.0), ("ndv2", 4, 16.67), ("dgx2", 1, 133.3), ("a100", 1, 342.9),
    ("a100", 2, 346.7), ("a100", 4, 266.7), ("mi250", 1, 342.9), ("mi250", 2, 354.1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "nodes", "gbs"), PUBLISHED)
def test_algorithm_bandwidth_that_forestcoll_published(name: str, nodes: int, gbs: float) -> None:
    topology = _machine(name, nodes)
    packing = pack(topology, topology.beta_s_per_byte)
    assert packing.exact
    assert topology.device_count / packing.time_s / 1e9 == pytest.approx(gbs, rel=5e-4)
    assert packing.bottleneck.time_s == pytest.approx(packing.time_s, rel=1e-5)


def test_a_nic_that_two_ranks_share_is_shared() -> None:
    """ForestColl has 129.03, as if a rank took in 125 GB/s in all; here its share of the NIC comes on top."""
    topology = _machine("dgx2", 2)
    packing = pack(topology, topology.beta_s_per_byte)
    assert packing.time_s == pytest.approx(31 / (125e9 + 12.5e9 / 2), rel=1e-5)
    assert packing.bottleneck.time_s == pytest.approx(31 / (125e9 + 12.5e9), rel=1e-9)  # a cut sees one rank at a time


COSTS = st.lists(st.integers(1, 20), min_size=20, max_size=20)
PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6)


@examples(30)
@given(pairs=PAIRS, costs=COSTS)
def test_on_plain_links_the_bottleneck_cut_is_the_linear_program(
    pairs: list[tuple[int, int]], costs: list[int]
) -> None:
    chosen = {tuple(sorted(pair)) for pair in pairs if pair[0] != pair[1]} | {(k, k + 1) for k in range(4)}
    topology = two_way("random", 5, sorted(chosen), lambda k: (0.0, costs[k] * 1e-10))
    found = worst_cut(topology)
    assert found.time_s == pytest.approx(allgather_time_s(topology, topology.beta_s_per_byte), rel=1e-6)


@examples(20)
@given(costs=COSTS, nodes=st.integers(2, 3))
def test_where_resources_are_shared_the_packing_is_the_linear_program(costs: list[int], nodes: int) -> None:
    topology = pairs_of_nodes(nodes, lambda k: (0.0, costs[k] * 1e-10))
    packing = pack(topology, topology.beta_s_per_byte)
    assert packing.exact
    assert packing.time_s == pytest.approx(allgather_time_s(topology, topology.beta_s_per_byte), rel=1e-5)
    assert packing.bottleneck.time_s <= packing.time_s * (1 + 1e-5)


@examples(10)
@pytest.mark.parametrize("shape", sorted(SHAPES))
@given(costs=COSTS)
def test_symmetry_does_not_change_the_bound(shape: str, costs: list[int]) -> None:
    topology = SHAPES[shape](5, lambda k: (0.0, costs[k % 2] * 1e-10))
    plain = pack(topology, topology.beta_s_per_byte, rotations=no_rotations(topology))
    assert pack(topology, topology.beta_s_per_byte).time_s == pytest.approx(plain.time_s, rel=1e-5)


def test_rates_without_a_common_unit() -> None:
    topology = two_way("odd", 3, [(0, 1), (1, 2)], lambda k: (0.0, (2**0.5, 3**0.5)[k] * 1e-10))
    assert worst_cut(topology).time_s == pytest.approx(2 * 3**0.5 * 1e-10)


def test_the_bottleneck_is_named() -> None:
    topology = _machine("a100", 4)
    found = worst_cut(topology)
    assert found.chunks == 24
    assert sorted(set(range(32)) - set(found.behind)) in [list(range(8 * node, 8 * node + 8)) for node in range(4)]


def test_a_set_of_ranks_takes_in_each_chunk_once() -> None:
    topology = rails(2, 4)
    network = Network.of(topology, topology.beta_s_per_byte)
    found = bottleneck(network, np.ones(8, dtype=np.int64), np.array([0, 1, 2, 3]))
    assert found.time_s == pytest.approx(4 / (4 * 50e9))


def test_ranks_that_nothing_leads_out_of_are_named() -> None:
    topology = NodeTemplate("one way", 2, (LocalLink(0, 1, 0, 1e-10),)).cluster(1)
    with pytest.raises(InputError, match="no link leads out of the ranks 1"):
        worst_cut(topology)
