from __future__ import annotations

import math
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.topologies.topology import Link, Nic, Switch, Topology


def two_nodes() -> Topology:
    """Two nodes of two devices; one fast link inside node 0, two between the nodes."""
    return Topology(
        name="two nodes",
        node_of_device=(0, 0, 1, 1),
        links=(Link(0, 1, 1e-6, 1e-9), Link(1, 2, 2e-6, 4e-9, (0,)), Link(1, 2, 2e-6, 2e-9, (0,))),
        resources=("nic",),
        nics=(Nic(0, (0, 1)),),
        switches=(Switch(1, (2, 3)),),
    )


def test_a_transfer_takes_alpha_plus_beta_per_byte() -> None:
    assert Link(0, 1, 1e-6, 1e-9).duration_s(1000) == pytest.approx(2e-6)


def test_links_are_columns_too() -> None:
    topology = two_nodes()
    assert topology.link_source.tolist() == [0, 1, 1]
    assert topology.link_target.tolist() == [1, 2, 2]
    assert topology.alpha_s.tolist() == [1e-6, 2e-6, 2e-6]
    assert topology.beta_s_per_byte.tolist() == [1e-9, 4e-9, 2e-9]
    assert topology.is_inter_node.tolist() == [False, True, True]
    assert topology.link_name(1) == "1->2"


def test_devices_and_nodes_are_counted() -> None:
    topology = two_nodes()
    assert topology.device_count == 4
    assert topology.node_count == 2
    assert topology.ranks_of_node(1) == [2, 3]


def test_without_more_said_every_device_has_one_engine_and_unlimited_memory() -> None:
    topology = two_nodes()
    assert topology.engines == tuple((device, "compute") for device in range(4))
    assert topology.memory_bytes == (math.inf,) * 4
    assert Topology("bare", (0,)).is_inter_node.tolist() == []


def test_the_networkx_graph_keeps_the_faster_of_parallel_links() -> None:
    network = two_nodes().to_networkx(1000)
    assert set(network.edges) == {(0, 1), (1, 2)}
    assert network.edges[1, 2]["link"] == 2
    assert network.edges[1, 2]["duration_s"] == pytest.approx(4e-6)
    assert set(two_nodes().to_networkx(links=[0]).edges) == {(0, 1)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"node_of_device": ()}, "topology 't': must have at least one device, got none"),
        ({"memory_bytes": (1.0,)}, "topology 't': memory_bytes must be 2 numbers, got 1"),
        ({"memory_bytes": (1.0, -1.0)}, "device 1: memory_bytes must be >= 0, got -1.0"),
        ({"memory_bytes": (math.nan, 1.0)}, "device 0: memory_bytes must be >= 0, got nan"),
        ({"engines": ((2, "compute"),)}, r"engine 'compute': device must be in 0\.\.1, got 2"),
        ({"links": (Link(0, 2, 0.0, 0.0),)}, r"link 0 -> 2: both ends must be in 0\.\.1"),
        ({"links": (Link(1, 1, 0.0, 0.0),)}, "link 1 -> 1: the ends must differ"),
        ({"links": (Link(0, 1, -1.0, 0.0),)}, "link 0 -> 1: alpha_s must be finite and >= 0, got -1.0"),
        ({"links": (Link(0, 1, 0.0, math.inf),)}, "link 0 -> 1: beta_s_per_byte must be finite and >= 0, got inf"),
        ({"links": (Link(0, 1, 0.0, 0.0, (0,)),)}, "link 0 -> 1: resources must be in .*, got 0"),
        ({"nics": (Nic(0, (2,)),)}, r"nic: ranks must be in 0\.\.1, got 2"),
        ({"switches": (Switch(0, (-1,)),)}, r"switch: ranks must be in 0\.\.1, got -1"),
    ],
)
def test_a_topology_that_breaks_a_rule_is_refused_with_the_rule(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Topology(**{"name": "t", "node_of_device": (0, 0), **arguments})
