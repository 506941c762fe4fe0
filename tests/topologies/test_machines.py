"""The shipped machines: degrees and bandwidths as on their data sheets, and rails where every GPU has its own NIC."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pytest

from gapless.topologies.files import load_topology, named_node
from gapless.topologies.names import topology_names

# GB/s a direction: out of one GPU inside the node, out of one NIC; GPUs, NICs.
DATA_SHEETS = {
    "ndv2": (2 * 1e3 / 23 + 2 * 1e3 / 46, 1e3 / 106, 8, 1),  # measured, Table 5.1
    "dgx2": (1e3 / 8, 1e3 / 106, 16, 8),  # measured, Table 5.1
    "dgx2-congested": (1e3 / 8, 1e3 / 106, 16, 8),  # the same, with our tables of congestion
    "dgx1": (6 * 25, 12.5, 8, 4),
    "dgx-a100": (300, 25, 8, 8),
    "dgx-b200": (900, 50, 8, 8),
    "dgx-h100": (450, 50, 8, 8),
    "gb200-nvl72": (900, 50, 72, 72),
    "mi250": (7 * 50, 25, 16, 8),
    "mi300x": (7 * 64, 50, 8, 8),
}


def test_every_shipped_machine_has_a_data_sheet_here() -> None:
    assert sorted(DATA_SHEETS) == topology_names()


@pytest.mark.parametrize("name", DATA_SHEETS)
def test_bandwidth_of_gpus_and_nics_is_the_data_sheets(name: str) -> None:
    gpu_gbs, nic_gbs, gpus, nics = DATA_SHEETS[name]
    node = named_node(name)
    assert (node.ranks_per_node, len(node.nics)) == (gpus, nics)
    for rank in range(gpus):
        links = [link for link in node.links if rank in (link.source, link.target)]
        for way in (0, 1):
            direct = sum(1 / link.beta_s_per_byte for link in links if (link.source, link.target)[way] == rank)
            switched = sum(1 / switch.beta_s_per_byte for switch in node.switches if rank in switch.ranks)
            assert (direct + switched) / 1e9 == pytest.approx(gpu_gbs)
    for nic in node.nics:
        assert 1 / nic.beta_s_per_byte / 1e9 == pytest.approx(nic_gbs)
    assert sorted(rank for nic in node.nics for rank in nic.ranks) == list(range(gpus))
    assert "Table 5.1" in node.source


@pytest.mark.parametrize("name", DATA_SHEETS)
def test_links_of_a_cluster_are_symmetric_and_connect_it(name: str) -> None:
    cluster = load_topology(name, 3)
    ends = list(zip(cluster.link_source.tolist(), cluster.link_target.tolist(), strict=True))
    assert len(set(ends)) == len(ends)
    costs = dict(zip(ends, zip(cluster.alpha_s, cluster.beta_s_per_byte, strict=True), strict=True))
    assert all(costs[target, source] == cost for (source, target), cost in costs.items())
    assert nx.is_strongly_connected(cluster.to_networkx())
    leaving = np.bincount(cluster.link_source, minlength=cluster.device_count).reshape(3, -1)
    assert (leaving == leaving[0]).all()


@pytest.mark.parametrize("name", DATA_SHEETS)
def test_a_node_sends_no_more_than_its_nics_carry(name: str) -> None:
    """The resources of links out of node 0, each at its pace: one sender side a NIC."""
    cluster = load_topology(name, 2)
    out = [link for link in cluster.links if link.source < cluster.device_count // 2 <= link.target]
    pace = {cluster.resources[link.resources[0]]: 1 / link.beta_s_per_byte for link in out}
    _, nic_gbs, _, nics = DATA_SHEETS[name]
    assert set(pace) == {f"node0:nic{nic}:out" for nic in range(nics)}
    assert sum(pace.values()) / 1e9 == pytest.approx(nics * nic_gbs)


def test_machines_with_a_nic_for_each_gpu_have_rails() -> None:
    for name in topology_names():
        node = named_node(name)
        assert node.fabric.rails == (len(node.nics) == node.ranks_per_node)


def test_dgx2_congested_is_a_dgx2_with_tables() -> None:
    plain, congested = (load_topology(name, 2) for name in ("dgx2", "dgx2-congested"))
    assert plain.beta_s_per_byte.tolist() == congested.beta_s_per_byte.tolist()
    assert not plain.congestion
    everything = np.arange(len(congested.links))
    slowdown = congested.slowed_beta_s(everything) / congested.beta_s_per_byte
    inside = ~congested.is_inter_node
    assert slowdown[inside] == pytest.approx(1.3)
    assert slowdown[~inside] == pytest.approx(1.25)


def test_dgx1_has_the_nvlinks_of_an_ndv2() -> None:
    """The same hybrid cube mesh, numbered otherwise: single and double links match."""
    graphs = []
    for name in ("dgx1", "ndv2"):
        node = named_node(name)
        slowest = max(link.beta_s_per_byte for link in node.links)
        graph: nx.DiGraph[int] = nx.DiGraph()
        for link in node.links:
            graph.add_edge(link.source, link.target, width=round(slowest / link.beta_s_per_byte))
        graphs.append(graph)
    assert nx.is_isomorphic(*graphs, edge_match=lambda one, other: one["width"] == other["width"])


def test_1024_gpus_on_rails_have_a_link_for_each_pair_of_a_rail() -> None:
    cluster = load_topology("dgx-h100", 128)
    assert cluster.device_count == 1024
    assert len(cluster.links) == 128 * 8 * 7 + 8 * 128 * 127
    assert len(cluster.resources) == 128 * (2 * 8 + 2 * 8)
    crossing = np.flatnonzero(cluster.is_inter_node)
    assert (cluster.link_source[crossing] % 8 == cluster.link_target[crossing] % 8).all()
    assert Counter(np.diff(cluster.held_start).tolist()) == {2: len(cluster.links)}
