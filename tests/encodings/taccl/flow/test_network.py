"""The network of a matching: what its links hold, where they lead, what may pass them; every port has one partner."""

from __future__ import annotations

import random

from rails import rails
from shapes import even, line

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.flow.network import Network, closed_links, contested_ports, network_of
from gapless.encodings.taccl.symmetry.quotient import quotient_problem
from gapless.encodings.taccl.symmetry.rotations import no_rotations
from gapless.ir.collective import allgather, collective_by_name
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology


def _network(problem: Chunked, sets: tuple[tuple[int, ...], ...] = ()) -> Network:
    return network_of(problem, quotient_problem(problem, no_rotations(problem.logical.topology)), sets)


def test_ports_are_clocks_that_several_links_hold() -> None:
    assert _network(Chunked(rails(1, 3), allgather(3), 1000)).shares_clocks
    assert not _network(Chunked(line(4, even), allgather(4), 1000)).shares_clocks


def test_links_enter_the_sets_that_their_source_is_not_in() -> None:
    network = _network(Chunked(line(4, even), allgather(4), 1000), ((0, 1), (2, 3)))
    ends = {(s, t): entered for s, t, entered in zip(network.source, network.target, network.enters, strict=True)}
    assert ends[1, 2] == (1,)
    assert ends[2, 1] == (0,)
    assert ends[0, 1] == ()


def test_a_chunk_for_one_rank_passes_links_that_lead_nearer_to_it() -> None:
    network = _network(Chunked(line(3, even), collective_by_name("alltoall", 3, 3), 1000))
    for link, (source, target) in enumerate(zip(network.source, network.target, strict=True)):
        passing = {bit for bit in range(len(network.chunks)) if network.may_pass[link] >> bit & 1}
        wanting = {bit for rank, want in enumerate(network.want) for bit in passing if want >> bit & 1
                   if (rank - source) * (target - source) > 0}  # fmt: skip
        assert passing == wanting
        assert passing


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
