"""Clusters of nodes: rails, shared NICs, and uplinks that many nodes share, which the checker enforces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gapless.checker import check
from gapless.checker.report import Rule
from gapless.errors import InputError
from gapless.ir.graph import Graph, Placement
from gapless.ir.schedule import Event, EventKind, schedule_from_events
from gapless.topologies.fabric import Fabric
from gapless.topologies.links import MOST_LINKS
from gapless.topologies.node import Cluster, LocalLink, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.topology import Link, Topology

NICS = tuple(NicTemplate((rank,), 1e-6, 1e-9) for rank in range(2))


def node(fabric: Fabric, nics: tuple[NicTemplate, ...] = NICS) -> NodeTemplate:
    return NodeTemplate("node", 2, nics=nics, fabric=fabric)


def held(topology: Topology, source: int, target: int) -> list[str]:
    return [topology.resources[resource] for resource in link_of(topology, source, target).resources]


def link_of(topology: Topology, source: int, target: int) -> Link:
    return next(link for link in topology.links if (link.source, link.target) == (source, target))


def test_rails_join_equal_nics_only() -> None:
    rails = node(Fabric(rails=True)).cluster(3)
    assert {(link.source % 2, link.target % 2) for link in rails.links} == {(0, 0), (1, 1)}
    assert len(rails.links) == 2 * 3 * 2
    assert len(node(Fabric()).cluster(3).links) == 4 * 3 * 2


def test_ranks_behind_one_nic_share_it_on_rails_too() -> None:
    shared = node(Fabric(rails=True), (NicTemplate((0, 1), 1e-6, 1e-9),)).cluster(2)
    assert len(shared.links) == 8
    assert held(shared, 0, 2) == held(shared, 1, 3) == ["node0:nic0:out", "node1:nic0:in"]


def test_links_under_one_leaf_use_no_uplink() -> None:
    leaves = node(Fabric(nodes_per_leaf=2, uplinks_per_leaf=1)).cluster(4)
    assert held(leaves, 0, 2) == ["node0:nic0:out", "node1:nic0:in"]
    assert held(leaves, 0, 4) == ["node0:nic0:out", "leaf0:up0", "leaf1:down0", "node2:nic0:in"]


def test_target_chooses_the_lane() -> None:
    leaves = node(Fabric(nodes_per_leaf=2, uplinks_per_leaf=2)).cluster(4)
    for source in range(4):
        for target in range(4, 8):
            assert held(leaves, source, target)[1:3] == [f"leaf0:up{target % 2}", f"leaf1:down{target % 2}"]


def test_more_lanes_than_targets_change_nothing() -> None:
    enough, plenty = (node(Fabric(nodes_per_leaf=2, uplinks_per_leaf=lanes)).cluster(4) for lanes in (8, 10**9))
    assert enough == plenty


def test_each_rail_has_leaves_and_lanes_of_its_own() -> None:
    leaves = node(Fabric(rails=True, nodes_per_leaf=2, uplinks_per_leaf=2)).cluster(4)
    assert held(leaves, 1, 5) == ["node0:nic1:out", "rail1:leaf0:up0", "rail1:leaf1:down0", "node2:nic1:in"]
    assert held(leaves, 0, 6) == ["node0:nic0:out", "rail0:leaf0:up1", "rail0:leaf1:down1", "node3:nic0:in"]


def test_last_leaf_may_be_partly_filled() -> None:
    leaves = node(Fabric(nodes_per_leaf=2, uplinks_per_leaf=1)).cluster(3)
    assert held(leaves, 4, 0) == ["node2:nic0:out", "leaf1:up0", "leaf0:down0", "node0:nic0:in"]


def test_all_lanes_together_carry_the_stated_share_of_the_nics() -> None:
    """Four nodes of two NICs a leaf and two lanes: an oversubscription of 4, as loads of the lanes have it."""
    leaves = node(Fabric(nodes_per_leaf=4, uplinks_per_leaf=2)).cluster(8)
    lanes = [number for number, name in enumerate(leaves.resources) if name.startswith("leaf0:up")]
    assert 4 * len(NICS) / len(lanes) == 4
    uses = np.bincount(leaves.held, minlength=len(leaves.resources))
    assert len(set(uses[lanes].tolist())) == 1  # traffic between all pairs loads the lanes evenly


def test_spine_adds_latency_and_its_lanes_can_be_slower() -> None:
    leaves = node(Fabric(nodes_per_leaf=1, uplinks_per_leaf=2, alpha_s=5e-7, beta_s_per_byte=3e-9)).cluster(2)
    assert (leaves.links[0].alpha_s, leaves.links[0].beta_s_per_byte) == (pytest.approx(1.5e-6), 3e-9)
    faster = node(Fabric(nodes_per_leaf=1, uplinks_per_leaf=2, beta_s_per_byte=1e-10)).cluster(2)
    assert faster.links[0].beta_s_per_byte == 1e-9


@pytest.mark.parametrize(("lanes", "clean"), [(1, False), (2, True)])
def test_checker_lets_one_transfer_at_a_time_onto_a_lane(lanes: int, clean: bool) -> None:
    """Two transfers out of one leaf, by different NICs to different NICs: they meet on the uplink, or don't."""
    topology = node(Fabric(nodes_per_leaf=1, uplinks_per_leaf=lanes)).cluster(2)
    ends = list(zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True))
    graph = Graph(
        size_bytes=np.array([1000, 1000], dtype=np.int64),
        ops=(),
        initial=Placement.of([(0, 0), (1, 1)]),
        required=Placement.of([(0, 2), (1, 3)]),
    )
    events = [
        Event(EventKind.TRANSFER, 0.0, 2e-6, ends.index(pair), moves=(tensor,))
        for tensor, pair in enumerate([(0, 2), (1, 3)])
    ]
    report = check(schedule_from_events(graph, topology, events))
    assert {violation.rule for violation in report.violations} == (set() if clean else {Rule.RESOURCE_OVERLAP})
    if not clean:
        assert "resource leaf0:up0" in report.violations[0].message


@pytest.mark.parametrize(
    ("fabric", "message"),
    [
        ({"uplinks_per_leaf": 2}, "fabric: uplinks must come with nodes_per_leaf"),
        ({"nodes_per_leaf": 0, "uplinks_per_leaf": 1}, "fabric: nodes_per_leaf must be >= 1, got 0"),
        ({"nodes_per_leaf": 2}, "fabric: uplinks_per_leaf must be >= 1, got 0"),
        ({"nodes_per_leaf": 2, "uplinks_per_leaf": 1, "alpha_s": -1.0}, "fabric: alpha_s must be finite and >= 0"),
    ],
)
def test_impossible_fabric_is_refused(fabric: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Fabric(**fabric)


def test_cluster_with_too_many_links_is_refused_before_it_is_built() -> None:
    with pytest.raises(InputError, match=rf"node x 100000: must have at most {MOST_LINKS:,} links, would .*for rails"):
        node(Fabric()).cluster(100_000)


# -- nodes that differ -------------------------------------------------------------------------------------------------

FOUR = NodeTemplate(
    "four",
    4,
    (LocalLink(0, 1, 1e-6, 1e-9, ("bus",)), LocalLink(2, 3, 1e-6, 1e-9)),
    (SwitchTemplate((0, 2, 3), 1e-6, 1e-9), SwitchTemplate((1, 2), 1e-6, 1e-9)),
    tuple(NicTemplate((rank,), 1e-6, 1e-9) for rank in range(4)),
)


def test_equal_nodes_are_the_cluster_of_one_of_them() -> None:
    fabric = Fabric(nodes_per_leaf=2, uplinks_per_leaf=1)
    listed = Cluster("node x 3", (node(fabric), node(Fabric()), node(fabric)), fabric).topology()
    assert listed == node(fabric).cluster(3)


def test_a_node_without_a_rank_keeps_the_order_of_the_others_and_its_rails() -> None:
    three = FOUR.without_ranks([1])
    assert three.ranks_per_node == 3
    assert [(link.source, link.target) for link in three.links] == [(1, 2)]
    assert [switch.ranks for switch in three.switches] == [(0, 1, 2)]
    assert [nic.ranks for nic in three.nics] == [(0,), (), (1,), (2,)]
    cluster = Cluster("seven", (FOUR, three), Fabric(rails=True)).topology()
    assert cluster.node_of_device == (0, 0, 0, 0, 1, 1, 1)
    between = {(link.source, link.target) for link in cluster.links if link.source < 4 <= link.target}
    assert between == {(0, 4), (2, 5), (3, 6)}
    assert held(cluster, 2, 5) == ["node0:nic2:out", "node1:nic2:in"]
    assert held(cluster, 4, 5) == ["node1:switch0:out4", "node1:switch0:in5"]
    assert [nic.ranks for nic in cluster.nics if nic.node == 1] == [(4,), (5,), (6,)]


def test_the_slower_nic_of_two_nodes_sets_the_pace() -> None:
    slow = NodeTemplate("slow", 1, nics=(NicTemplate((0,), 2e-6, 4e-9),))
    cluster = Cluster("mixed", (node(Fabric()), slow)).topology()
    assert link_of(cluster, 0, 2).beta_s_per_byte == link_of(cluster, 2, 1).beta_s_per_byte == 4e-9
    assert link_of(cluster, 2, 1).alpha_s == 2e-6
    assert len(cluster.links) == 2 * 2


@pytest.mark.parametrize(("lacking", "rule"), [([4], "must be in 0..3, got 4"), (range(4), "must leave a rank")])
def test_ranks_that_a_node_can_not_lack_are_refused(lacking: Any, rule: str) -> None:
    with pytest.raises(InputError, match=f"four: without_ranks: {rule}"):
        FOUR.without_ranks(lacking)


def test_ranks_of_a_node_are_one_number_only_where_nodes_agree() -> None:
    assert FOUR.cluster(2).ranks_per_node == 4
    with pytest.raises(InputError, match=r"'mixed': a sketch needs nodes of equally many ranks, got 3 and 4"):
        _ = Cluster("mixed", (FOUR, FOUR.without_ranks([0]))).topology().ranks_per_node
