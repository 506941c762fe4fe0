"""Topology files: our format, TACCL's known machines and custom ones, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.topologies.fabric import Fabric
from gapless.topologies.files import load_topology, named_node, read_node
from gapless.topologies.node import LocalLink, NicTemplate, SwitchTemplate
from gapless.topologies.ports.switch_groups import Reduction
from gapless.topologies.writing import node_text

OWN: dict[str, Any] = {
    "format": "gapless.topology",
    "version": 1,
    "name": "pair",
    "ranks_per_node": 2,
    "links": [{"from": 0, "to": 1, "alpha_us": 1, "beta_us_per_mb": 50, "both_ways": True, "resources": ["bus"]}],
    "nics": [{"ranks": [0, 1], "alpha_us": 2, "beta_us_per_mb": 100}],
}
KNOWN: dict[str, Any] = {
    "name": "NDv2_1MB", "gpus_per_node": 8, "nics_per_node": 1, "alpha": 0.3, "node_betas_list": [23, 46],
    "node_invbws_list": [23, 46], "remote_invbw": 107, "remote_alpha": 2.6, "remote_beta": 105,
}  # fmt: skip
CUSTOM: dict[str, Any] = {
    "name": "mine_1KB", "gpus_per_node": 2, "alpha": 30, "links": [[0, 1], [2, 0]], "betas": [[0, 4], [8, 0]],
    "invbws": [[0, 34], [38, 0]], "nics_per_node": 1, "remote_invbw": 270, "remote_alpha": 260, "remote_beta": 10,
}  # fmt: skip


def write(folder: Path, content: Any) -> Path:
    (folder / "topology.json").write_text(json.dumps(content))
    return folder / "topology.json"


def us(part: LocalLink | SwitchTemplate | NicTemplate) -> tuple[float, float]:
    """Alpha in us and beta in us/MB, rounded."""
    return round(part.alpha_s * 1e6, 9), round(part.beta_s_per_byte * 1e12, 9)


def test_shipped_machines_have_the_numbers_of_table_5_1() -> None:
    ndv2, dgx2 = named_node("ndv2"), named_node("dgx2")
    assert {us(link) for link in ndv2.links} == {(0.7, 23.0), (0.7, 46.0)}
    assert len(ndv2.links) == 32
    assert us(dgx2.switches[0]) == (0.7, 8.0)
    for node in (ndv2, dgx2):
        assert us(node.nics[0]) == (1.7, 106.0)


def test_every_rank_of_ndv2_has_six_nvlinks() -> None:
    node = named_node("ndv2")
    for rank in range(8):
        bandwidth = sum(1 / link.beta_s_per_byte for link in node.links if link.source == rank)
        assert bandwidth == pytest.approx(2 / 23e-12 + 2 / 46e-12)


def test_cluster_numbers_ranks_node_by_node_and_shares_the_nics() -> None:
    cluster = load_topology("dgx2", 3)
    assert cluster.device_count == 48
    assert cluster.node_of_device[16] == 1
    first, second = (
        next(link for link in cluster.links if (link.source, link.target) == pair) for pair in ((0, 16), (1, 40))
    )
    assert [cluster.resources[r] for r in set(first.resources) & set(second.resources)] == ["node0:nic0:out"]


def test_own_format_is_read(tmp_path: Path) -> None:
    node = read_node(write(tmp_path, OWN))
    assert [(link.source, link.target) for link in node.links] == [(0, 1), (1, 0)]
    assert us(node.links[0]) == (1.0, 50.0)
    cluster = node.cluster(2)
    assert cluster.resources[0] == "node0:bus"
    assert cluster.node_count == 2


LISTED: dict[str, Any] = {
    "format": "gapless.topology", "version": 1, "name": "mixed",
    "nodes": [
        {"machine": "dgx1"},
        {"machine": "dgx1", "without_ranks": [3], "count": 2},
        {"file": "own.json", "nics": [{"number": 0, "alpha_us": 2, "beta_us_per_mb": 500}]},
    ],
}  # fmt: skip


def test_a_file_lists_nodes_that_differ(tmp_path: Path) -> None:
    own = {**OWN, "nics": [{"ranks": [0, 1], "alpha_us": 1, "beta_us_per_mb": 100}]}
    (tmp_path / "own.json").write_text(json.dumps(own))
    cluster = load_topology(None, path=write(tmp_path, LISTED))
    assert np.bincount(cluster.node_of).tolist() == [8, 7, 7, 2]
    slow = next(link for link in cluster.links if (link.source, link.target) == (0, 23))
    assert us(slow) == (2.0, 500.0)


BAD_LISTS: list[tuple[dict[str, Any], str]] = [
    ({"nodes": []}, "nodes: must be a list of at least one node"),
    ({"nodes": [{}]}, r"nodes\[0\]: must have one of the fields machine, file, node, got \[\]"),
    ({"nodes": [{"machine": "dgx1", "file": "a.json"}]}, "must have one of the fields machine, file, node"),
    ({"nodes": [{"machine": "dgx"}]}, "nodes.0.: machine: must be one of dgx-a100,"),
    ({"nodes": [{"file": "none.json"}]}, "none.json"),
    (
        {"nodes": [{"machine": "dgx1", "without_ranks": [8]}]},
        r"without_ranks\[0\]: must be a whole number in 0..7, got 8",
    ),
    ({"nodes": [{"machine": "dgx1", "nics": [{"number": 4}]}]}, "number: must be a whole number in 0..3, got 4"),
    ({"nodes": [{"machine": "dgx1", "count": 10**9}]}, "count: must be a whole number in 1..4000000"),
    ({"nodes": [{"machine": "dgx1"}], "ranks_per_node": 8}, "field 'ranks_per_node' is unknown"),
]


@pytest.mark.parametrize(("change", "message"), BAD_LISTS)
def test_a_bad_list_of_nodes_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_topology(None, path=write(tmp_path, {**LISTED, **change}))


def test_a_list_of_nodes_says_how_many_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nodes: must be left out, .* lists its own, got 2"):
        load_topology(None, 2, write(tmp_path, LISTED))


def test_fabric_of_a_file_is_read(tmp_path: Path) -> None:
    wiring = {"rails": True, "nodes_per_leaf": 4, "uplinks_per_leaf": 2, "alpha_us": 0.5, "beta_us_per_mb": 200}
    fabric = read_node(write(tmp_path, {**OWN, "fabric": wiring})).fabric
    assert (fabric.rails, fabric.nodes_per_leaf, fabric.uplinks_per_leaf) == (True, 4, 2)
    assert (fabric.alpha_s, fabric.beta_s_per_byte) == (pytest.approx(0.5e-6), pytest.approx(200e-12))
    lanes = {"nodes_per_leaf": 4, "uplinks_per_leaf": 2}
    assert read_node(write(tmp_path, {**OWN, "fabric": lanes})).fabric == Fabric(False, 4, 2)
    assert read_node(write(tmp_path, OWN)).fabric == Fabric()


def test_machine_takes_other_wiring_behind_a_colon() -> None:
    name = "dgx-h100:nodes_per_leaf=2,uplinks_per_leaf=1"
    assert load_topology(name, 4).name == f"{name} x 4"
    assert any("rail3:leaf1:up0" in resource for resource in load_topology(name, 4).resources)
    assert len(load_topology("dgx-h100:rails=false", 2).links) == 2 * 56 + 2 * 64
    assert load_topology("ndv4", 2) == load_topology("dgx-a100", 2)


BAD_NAMES = [
    ("dgx-h10", r"must be one of dgx-a100, .*, dragonfly, got 'dgx-h10'; did you mean 'dgx-h100'\?"),
    ("torsu:4x4", r"got 'torsu:4x4'; did you mean 'torus'\?"),
    ("quantum", r"got 'quantum'; `gapless list topologies` explains them"),
    ("ring.json", r"got 'ring.json'; a file goes with `topology_file`"),
    ("ndv2:rail=true", r"topology 'ndv2:rail=true': field 'rail' is unknown; did you mean 'rails'\?"),
    ("ndv2:nodes_per_leaf=2", r"field 'uplinks_per_leaf' is missing"),
    ("ndv2:8", r"topology 'ndv2:8': options must read name=value, got '8'"),
]


@pytest.mark.parametrize(("name", "message"), BAD_NAMES)
def test_bad_name_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        load_topology(name, 2)
    assert "\n" not in str(error.value)


def test_known_taccl_profile_takes_the_links_of_its_machine(tmp_path: Path) -> None:
    node = read_node(write(tmp_path, KNOWN))
    assert len(node.links) == 32
    assert {us(link) for link in node.links} == {(0.3, 23.0), (0.3, 46.0)}
    assert us(node.nics[0]) == (2.6, 105.0)


def test_profile_of_small_chunks_is_scaled_back(tmp_path: Path) -> None:
    small = {**KNOWN, "name": "NDv2_1KB", "alpha": 30, "node_betas_list": [2.24, 4.5], "remote_alpha": 260}
    node = read_node(write(tmp_path, small))
    assert us(node.links[0]) == (0.3, 22.4)
    assert us(node.nics[0])[0] == 2.6


def test_custom_taccl_matrix_is_read_target_by_source(tmp_path: Path) -> None:
    node = read_node(write(tmp_path, CUSTOM))
    by_ends = {(link.source, link.target): link for link in node.links}
    assert us(by_ends[1, 0]) == (0.3, 40.0)
    assert us(by_ends[0, 1]) == (0.3, 80.0 / 2)  # two links side by side


def test_chunk_size_and_unit_can_be_stated(tmp_path: Path) -> None:
    stated = {**CUSTOM, "name": "mine", "chunk_size": "1MB", "us_per_unit": 1}
    assert us(read_node(write(tmp_path, stated)).links[0])[0] == 30.0


BROKEN: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (OWN, {"version": 2}, r"version: must be 1, got 2"),
    (OWN, {"format": "gapless.plan"}, r"format: must be gapless.topology"),
    (OWN, {"ranks_per_node": 0}, r"ranks_per_node: must be a whole number >= 1"),
    (OWN, {"nodes": 2}, r"field 'nodes' is unknown"),
    (OWN, {"links": [{"from": 0, "to": 2, "alpha_us": 1, "beta_us_per_mb": 1}]}, r"links\[0\]: to: must be .* 0..1"),
    (OWN, {"links": [{"from": 0, "to": 0, "alpha_us": 1, "beta_us_per_mb": 1}]}, r"links: ranks must differ"),
    (OWN, {"links": [{"from": 0, "to": 1, "alpha_us": -1, "beta_us_per_mb": 1}]}, r"alpha_us: must be a number >= 0"),
    (OWN, {"links": [{"from": 0, "to": 1, "alpha_us": 1}]}, r"links\[0\]: field 'beta_us_per_mb' is missing"),
    (OWN, {"links": [{"from": 0, "to": 1, "alpha": 1, "alpha_us": 1, "beta_us_per_mb": 1}]}, r"'alpha' is unknown"),
    (OWN, {"nics": [{"ranks": [0], "alpha_us": 1, "beta_us_per_mb": 1}] * 2}, r"rank 0 uses two"),
    (OWN, {"switches": [{"ranks": [1], "alpha_us": 1, "beta_us_per_mb": 1}]}, r"a switch must join at least 2 ranks"),
    (OWN, {"fabric": {"rail": True}}, r"fabric: field 'rail' is unknown; did you mean 'rails'\?"),
    (OWN, {"fabric": {"rails": 1}}, r"fabric: rails: must be true or false, got 1"),
    (OWN, {"fabric": {"uplinks_per_leaf": 2}}, r"fabric: uplinks_per_leaf: must be absent without nodes_per_leaf"),
    (OWN, {"fabric": {"nodes_per_leaf": 2}}, r"fabric: field 'uplinks_per_leaf' is missing"),
    (OWN, {"fabric": {"nodes_per_leaf": 0, "uplinks_per_leaf": 1}}, r"nodes_per_leaf: must be a whole number >= 1"),
    (KNOWN, {"gpus_per_node": 4}, r"gpus_per_node: must be 8, as a ndv2 node has, got 4"),
    (KNOWN, {"node_betas_list": [23]}, r"node_betas_list: must be 2 numbers >= 0, fastest first"),
    (KNOWN, {"name": "NDv2"}, r"name: must be a name that ends in the chunk size .* add the field 'chunk_size'"),
    (KNOWN, {"name": "DGX9_1MB"}, r"topology: must be one of .*, dgx2, .*, ndv2, got 'dgx9'; did you mean 'dgx2'\?"),
    (CUSTOM, {"links": [[0, 1]]}, r"links: must be a 2 x 2 matrix"),
    (CUSTOM, {"betas": [[0, "x"], [1, 0]]}, r"betas\[0\]\[1\]: must be a number >= 0, got \"x\""),
    (CUSTOM, {"nics_per_node": 3}, r"nics_per_node: must be a divisor of gpus_per_node"),
    ({}, {"name": "x"}, r"must be a gapless.topology \(field 'format'\) or a profiled topology"),
]


@pytest.mark.parametrize(("base", "change", "message"), BROKEN, ids=[case[2][:30] for case in BROKEN])
def test_broken_file_is_refused_by_field(
    tmp_path: Path, base: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_node(write(tmp_path, {**base, **change}))


def test_node_without_a_nic_stays_alone(tmp_path: Path) -> None:
    node = read_node(write(tmp_path, {**OWN, "nics": []}))
    assert node.cluster(1).node_count == 1
    with pytest.raises(InputError, match=r"nics: must hold at least one to join 2 nodes, got none"):
        node.cluster(2)


SWITCHED: dict[str, Any] = {
    "format": "gapless.topology", "version": 1, "name": "three", "ranks_per_node": 3,
    "switches": [{"ranks": [0, 1, 2], "alpha_us": 1, "beta_us_per_mb": 4, "reduction": {"loopback": True}}],
    "nics": [{"ranks": [rank], "alpha_us": 2, "beta_us_per_mb": 20} for rank in range(3)],
    "fabric": {"rails": True, "reduction": {"alpha_us": 5, "beta_us_per_mb": 25, "slots": 8, "multicasts": False}},
}  # fmt: skip


def test_switches_that_add_up_have_their_links_costs_where_none_are_given(tmp_path: Path) -> None:
    node = read_node(write(tmp_path, SWITCHED))
    switch, (inside, rails) = node.switches[0], (node.switches[0].reduction, node.fabric.reduction)
    assert inside == Reduction(alpha_s=switch.alpha_s, beta_s_per_byte=switch.beta_s_per_byte, loopback=True)
    assert rails is not None
    assert (rails.reduces, rails.multicasts, rails.reduces_to_all) == (True, False, False)
    assert (rails.alpha_s, rails.beta_s_per_byte) == (pytest.approx(5e-6), pytest.approx(25e-12))
    cluster = node.cluster(2)
    assert [group.ranks for group in cluster.switch_groups] == [(0, 1, 2), (3, 4, 5), (0, 3), (1, 4), (2, 5)]
    assert len(node.cluster(1).switch_groups) == 1
    assert cluster.without_switch_groups().switch_groups == ()
    assert cluster.without_switch_groups().links == cluster.links
    (tmp_path / "topology.json").write_text(node_text(node))
    again = read_node(tmp_path / "topology.json").cluster(2)
    assert [group.ranks for group in again.switch_groups] == [group.ranks for group in cluster.switch_groups]
    assert [group.ports for group in again.switch_groups] == [group.ports for group in cluster.switch_groups]
    assert [group.reduction.slots for group in again.switch_groups] == [None, None, 8, 8, 8]


@pytest.mark.parametrize(
    ("reduction", "message"),
    [
        ({"slots": 0}, r"reduction: slots: must be a whole number >= 1, got 0"),
        ({"reduces": False, "multicasts": False}, "must have one of reduces, multicasts, reduces_to_all, got none"),
        ({"adds": True}, "adds"),
        ({"alpha_us": -1}, "alpha_us: must be"),
    ],
)
def test_what_a_switch_does_is_checked(tmp_path: Path, reduction: dict[str, Any], message: str) -> None:
    content = {**SWITCHED, "switches": [{**SWITCHED["switches"][0], "reduction": reduction}]}
    with pytest.raises(InputError, match=message):
        read_node(write(tmp_path, content))


def test_rails_that_add_up_say_what_it_costs(tmp_path: Path) -> None:
    content = {**SWITCHED, "fabric": {"rails": True, "reduction": {"alpha_us": 5}}}
    with pytest.raises(InputError, match="beta_us_per_mb"):
        read_node(write(tmp_path, content))
