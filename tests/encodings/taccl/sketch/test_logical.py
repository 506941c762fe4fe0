"""What a sketch leaves of a topology, and the sketches that don't fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gapless.encodings.taccl import Sketch, load_sketch
from gapless.encodings.taccl.sketch.format import InterNode
from gapless.encodings.taccl.sketch.logical import apply_sketch
from gapless.errors import InputError
from gapless.ir.collective import allgather, alltoall
from gapless.topologies.files import load_topology, named_node
from gapless.topologies.ports.congestion import Slowdown

NDV2 = load_topology("ndv2", 2)
DGX2 = load_topology("dgx2", 2)
ONE_WAY_OUT = Sketch("test", inter_node=InterNode({0: (1,)}))


def between_nodes(sketch: Sketch, topology: object = NDV2) -> list[tuple[int, int]]:
    logical = apply_sketch(topology, allgather(topology.device_count), sketch).topology  # type: ignore
    return [(link.source, link.target) for link in logical.links if (link.source < 8) != (link.target < 8)]


def test_without_a_sketch_every_link_is_there_for_every_chunk() -> None:
    logical = apply_sketch(NDV2, allgather(16), None)
    assert logical.topology is NDV2
    assert logical.allowed.all()


def test_only_named_connections_join_the_nodes() -> None:
    assert between_nodes(ONE_WAY_OUT) == [(0, 9), (8, 1)]


def test_chunk_leaves_by_its_relay_and_is_not_sent_back() -> None:
    logical = apply_sketch(DGX2, allgather(32, 2), load_sketch("dgx2-sk-1"))
    for chunk in (0, 9, 40):
        owner = chunk // 2
        links = [logical.topology.links[k] for k in np.flatnonzero(logical.allowed[chunk]).tolist()]
        out = [link for link in links if (link.source < 16) != (link.target < 16)]
        assert [link.source for link in out] == [owner // 2 * 2 + 1]


def test_one_connection_a_nic_keeps_its_full_bandwidth() -> None:
    logical = apply_sketch(NDV2, allgather(16), ONE_WAY_OUT).topology
    out = next(link for link in logical.links if (link.source, link.target) == (0, 9))
    assert out.beta_s_per_byte * 1e12 == pytest.approx(106)
    assert {logical.resources[resource] for resource in out.resources} == {"node0:nic0:out", "node1:nic0:in"}


def test_shared_nic_is_split_into_lanes_that_exclude_nobody_else() -> None:
    logical = apply_sketch(DGX2, allgather(32), load_sketch("dgx2-sk-2")).topology
    first, second = (next(link for link in logical.links if (link.source, link.target) == (r, r + 16)) for r in (0, 1))
    assert first.beta_s_per_byte * 1e12 == pytest.approx(2 * 106)
    assert not set(first.resources) & set(second.resources)


def test_connections_through_the_lanes_of_a_nic_count_together() -> None:
    node = named_node("dgx2")
    table = Slowdown((1, 3), (1.0, 2.0))
    node = replace(node, nics=tuple(replace(nic, congestion=table) for nic in node.nics))
    logical = apply_sketch(node.cluster(2), allgather(32), load_sketch("dgx2-sk-2")).topology
    lanes = [k for k, link in enumerate(logical.links) if (link.source, link.target) in ((0, 16), (1, 17))]
    beta_s = logical.beta_s_per_byte[lanes]
    assert logical.slowed_beta_s(np.array(lanes[:1]))[lanes].tolist() == pytest.approx((1.0 * beta_s).tolist())
    assert logical.slowed_beta_s(np.array(lanes))[lanes].tolist() == pytest.approx((1.5 * beta_s).tolist())


def test_nic_is_shared_between_all_other_nodes() -> None:
    topology = load_topology("ndv2", 3)
    logical = apply_sketch(topology, allgather(24), ONE_WAY_OUT).topology
    first, second = (next(link for link in logical.links if (link.source, link.target) == (0, t)) for t in (9, 17))
    shared = set(first.resources) & set(second.resources)
    assert [logical.resources[resource] for resource in shared] == ["node0:nic0:out"]


def test_rails_split_no_nic_for_connections_that_they_lack() -> None:
    """Fully connected, on rails, is each NIC to its counterpart at full bandwidth."""
    rails = load_topology("dgx-h100", 2)
    logical = apply_sketch(rails, allgather(16), Sketch("test", inter_node=InterNode("fully-connected"))).topology
    crossing = logical.is_inter_node
    assert crossing.sum() == 16
    assert set(logical.beta_s_per_byte[crossing].tolist()) == set(rails.beta_s_per_byte[rails.is_inter_node].tolist())


def test_ranks_that_are_joined_without_a_nic_share_none() -> None:
    torus = load_topology("torus:3x3")
    logical = apply_sketch(torus, allgather(9), Sketch("test", inter_node=InterNode("direct-map"))).topology
    assert logical.links == torus.links


def test_split_nics_take_an_uplink_whole() -> None:
    """All pairs of ranks are connected at an eighth of a NIC each; there is one lane up, and they take turns."""
    oversubscribed = load_topology("dgx-h100:rails=false,nodes_per_leaf=1,uplinks_per_leaf=1", 2)
    logical = apply_sketch(oversubscribed, allgather(16), Sketch("test", inter_node=InterNode("fully-connected")))
    for link in logical.topology.links[:]:
        if link.source < 8 <= link.target:
            names = [logical.topology.resources[resource] for resource in link.resources]
            assert names[1:3] == ["leaf0:up0", "leaf1:down0"]
            assert all(":lane" in name for name in (names[0], names[3]))


def test_enforced_order_marks_the_links_between_nodes() -> None:
    sketch = Sketch("test", inter_node=InterNode({0: (1,)}, relay_rule=(8, 0), enforce_ordering=True))
    logical = apply_sketch(NDV2, allgather(16), sketch)
    assert np.array_equal(logical.own_first, logical.topology.is_inter_node)


def test_planes_of_a_switch_add_up_their_bandwidth() -> None:
    ranks = tuple(range(16))
    one = Sketch("one", switches=(ranks,), policies=("freedom",))
    three = Sketch("three", switches=(ranks,) * 3, policies=("freedom",) * 3)
    topology = load_topology("dgx2", 1)
    beta = [apply_sketch(topology, allgather(16), s).topology.beta_s_per_byte[0] for s in (one, three)]
    assert beta[0] / beta[1] == pytest.approx(3)


def test_switch_that_the_topology_lacks_gets_sides_from_the_sketch() -> None:
    topology = load_topology("ndv2", 1)
    sketch = Sketch("test", switches=((0, 1, 2, 3),), policies=("uc-min",))
    logical = apply_sketch(topology, allgather(8), sketch)
    pair = [link for link in logical.topology.links if link.source == 0 and link.target in (1, 2)]
    assert len(set(pair[0].resources) & set(pair[1].resources)) == 1
    assert len(logical.hyperedges[0].links) == 12


@pytest.mark.parametrize(
    ("sketch", "message"),
    [
        (replace(ONE_WAY_OUT, node_count=4), r"nnodes is 4, the topology has 2 nodes; give --nodes 4"),
        (Sketch("test"), r"internode_sketch is missing, and the topology has 2 nodes"),
        (Sketch("test", inter_node=InterNode({0: (8,)})), r"internode_conn: ranks must be in 0..7 .*, got 8"),
        (Sketch("test", inter_node=InterNode({9: (0,)})), r"internode_conn: ranks must be in 0..7 .*, got 9"),
        (
            Sketch("test", inter_node=InterNode({0: (1,)}, beta_split={1: 1.0})),
            r"beta_split: must name every sender of internode_conn, sender 0 is missing",
        ),
        (
            Sketch("test", inter_node=InterNode({0: (1,), 2: (3,)}, beta_split={0: 1.0, 2: 2.0})),
            r"the lanes of NIC 0 must share its bandwidth, they add up to 150 %",
        ),
        (
            Sketch("test", inter_node=InterNode({0: (1,)}, relay_rule=(2, 0))),
            r"the relay of rank 2 must be a sender of internode_conn \(0\), got 2",
        ),
        (replace(ONE_WAY_OUT, switches=((0, 1), (1, 2)), policies=("uc-min",) * 2), r"be equal or share no rank"),
        (replace(ONE_WAY_OUT, switches=((0, 6),), policies=("uc-min",)), r"has no link between ranks \[0, 6\]"),
        (replace(ONE_WAY_OUT, symmetry=((5, 10),)), r"the group size must divide the 16 ranks"),
        (replace(ONE_WAY_OUT, symmetry=((1, 8),)), r"symmetry_offsets\[0\] = \[1, 8\]: is no automorphism: link 0->"),
        (replace(ONE_WAY_OUT, symmetry=((4, 8),)), r"is no automorphism"),
    ],
)
def test_sketch_that_does_not_fit_is_refused_with_the_reason(sketch: Sketch, message: str) -> None:
    with pytest.raises(InputError, match=message):
        apply_sketch(NDV2, allgather(16), sketch)


def test_sketch_that_cuts_the_topology_apart_is_refused() -> None:
    from shapes import single_nodes

    topology = single_nodes(3, lambda k: (1e-6, 1e-9))
    links = tuple(link for link in topology.links if link.target != 2)
    with pytest.raises(InputError, match=r"leaves ranks apart: chunk 0 of rank 0 has .* 2, .*without both_ways$"):
        apply_sketch(replace(topology, links=links), allgather(3), None)


def test_rotation_by_the_whole_group_is_no_symmetry_at_all() -> None:
    logical = apply_sketch(load_topology("ndv2", 1), allgather(8), load_sketch("ndv2-sk-1"))
    assert logical.symmetry == ()


SWAP = Sketch("swap", inter_node=InterNode({1: (0,)}), permutations=((*range(8, 16), *range(8)),))


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ((range(8),), "sketch swap: symmetry_partition: must hold each of the 16 ranks once"),
        ((range(9), range(8, 16)), "sketch swap: symmetry_partition: must hold each of the 16 ranks once"),
        ((range(7), range(7, 16)), r"symmetry_partition\[0\]: a symmetry must map it to a part, it becomes \[8, 9, "),
    ],
)
def test_symmetries_map_parts_of_a_partition_to_parts(partition: tuple[range, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        apply_sketch(NDV2, allgather(16), replace(SWAP, partition=tuple(map(tuple, partition))))


def test_a_partition_is_named_as_unused_where_chunks_take_paths_of_their_own() -> None:
    halves = tuple(range(8)), tuple(range(8, 16))
    logical = apply_sketch(NDV2, alltoall(16), replace(SWAP, partition=halves))
    assert logical.unused == ("symmetry_permutations[0]",)
    assert (logical.symmetry, logical.inside) == ((), ())
