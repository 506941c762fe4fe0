"""Pairing: every port has one partner, where that can be, and only ports between bottleneck sets are paired."""

from __future__ import annotations

import random

from rails import rails

from gapless.collective import allgather
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.flow.network import Network, network_of
from gapless.encodings.taccl.flow.pairing import closed_links, contested_ports
from gapless.encodings.taccl.symmetry.quotient import quotient_problem
from gapless.encodings.taccl.symmetry.rotations import no_rotations
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology


def _between_nodes(topology: Topology) -> Network:
    problem = Chunked(topology, allgather(topology.device_count), 1000)
    nodes = [tuple(topology.ranks_of_node(node)) for node in range(topology.node_count)]
    return network_of(problem, quotient_problem(problem, no_rotations(topology)), nodes)


def test_of_three_nodes_on_rails_each_port_has_one_partner() -> None:
    topology = rails(3, 2)
    network = _between_nodes(topology)
    for seed in range(20):
        closed = closed_links(contested_ports(network), random.Random(seed))
        between = [link for link in range(len(topology.links)) if topology.is_inter_node[link]]
        held = [clock for link in between if link not in closed for clock in network.clocks[link]]
        assert closed < set(between)
        assert len(held) == len(set(held)) == 2 * topology.device_count


def test_two_nodes_have_nothing_to_pair() -> None:
    assert not contested_ports(_between_nodes(rails(2, 2)))


def test_all_links_between_partners_stay() -> None:
    topology = load_topology("ndv2", 3)  # a NIC for all eight ranks of a node
    network = _between_nodes(topology)
    closed = closed_links(contested_ports(network), random.Random(0))
    assert len(closed) == 3 * 64
    assert not closed & {link for link in range(len(topology.links)) if not topology.is_inter_node[link]}
