"""Rings through all ranks: along links that are there, as fast as a search can make them."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.topologies.files import load_topology
from gapless.topologies.ring import fastest_ring
from gapless.topologies.topology import Link, Topology


def is_ring(topology: Topology, links: list[int]) -> bool:
    hops = [(topology.links[link].source, topology.links[link].target) for link in links]
    joined = all(before[1] == after[0] for before, after in itertools.pairwise([*hops, hops[0]]))
    return joined and sorted(source for source, _ in hops) == list(range(topology.device_count))


def slowest(topology: Topology, links: list[int]) -> float:
    return max(topology.links[link].beta_s_per_byte for link in links)


@pytest.mark.parametrize(("name", "nodes"), [("ndv2", 1), ("ndv2", 2), ("ndv2", 8), ("dgx2", 1), ("dgx2", 4)])
def test_shipped_machines_have_a_ring(name: str, nodes: int) -> None:
    topology = load_topology(name, nodes)
    links = fastest_ring(topology)
    assert is_ring(topology, links)
    crossing = [link for link in links if topology.is_inter_node[link]]
    assert len(crossing) == (nodes if nodes > 1 else 0)


@pytest.mark.parametrize("name", ["dragonfly:a=4,p=2,h=2", "fat-tree:k=4"])
def test_links_of_a_ring_share_no_cable_where_one_of_that_kind_exists(name: str) -> None:
    topology = load_topology(name, 1)
    ring = fastest_ring(topology)
    assert is_ring(topology, ring)
    held = [resource for link in ring for resource in topology.links[link].resources]
    assert len(set(held)) == len(held) > 2 * topology.device_count


def test_ring_inside_an_ndv2_uses_double_nvlinks_only() -> None:
    topology = load_topology("ndv2", 1)
    assert slowest(topology, fastest_ring(topology)) == pytest.approx(23e-12)


def test_single_rank_needs_no_link() -> None:
    assert fastest_ring(Topology("one", (0,))) == []


def test_faster_of_two_parallel_links_is_taken() -> None:
    links = (Link(0, 1, 0.0, 3.0), Link(0, 1, 0.0, 1.0), Link(1, 0, 0.0, 2.0))
    assert fastest_ring(Topology("pair", (0, 0), links)) == [1, 2]


@pytest.mark.parametrize("links", [(), ((0, 1), (1, 2)), ((0, 1), (1, 0), (1, 2), (2, 1))])
def test_topology_without_a_ring_is_refused(links: tuple[tuple[int, int], ...]) -> None:
    topology = Topology("path", (0, 0, 0), tuple(Link(*ends, 0.0, 1.0) for ends in links))
    with pytest.raises(InputError, match="topology 'path': no ring through all 3 ranks was found along its links"):
        fastest_ring(topology)


def test_ring_that_must_leave_a_node_twice_is_found() -> None:
    """Ranks 0, 1 and 2, 3 share nodes, but only 0 -> 2 -> 1 -> 3 -> 0 exists."""
    links = tuple(Link(source, target, 0.0, 1.0) for source, target in ((0, 2), (2, 1), (1, 3), (3, 0), (0, 1)))
    topology = Topology("crossed", (0, 0, 1, 1), links)
    assert is_ring(topology, fastest_ring(topology))


@given(st.integers(2, 6), st.randoms(use_true_random=False))
def test_slowest_link_is_as_fast_as_in_any_ring(count: int, chance: random.Random) -> None:
    """On one node and small, the search is exhaustive: compared with all permutations."""
    pairs = [pair for pair in itertools.permutations(range(count), 2) if chance.random() < 0.7]
    cost = {pair: float(chance.randint(1, 4)) for pair in pairs}
    topology = Topology("random", (0,) * count, tuple(Link(*pair, 0.0, cost[pair]) for pair in pairs))
    rings = [[0, *rest] for rest in itertools.permutations(range(1, count))]
    hops = [list(zip(ring, [*ring[1:], 0], strict=True)) for ring in rings]
    best = min((max(cost[hop] for hop in ring) for ring in hops if all(hop in cost for hop in ring)), default=None)
    if best is None:
        with pytest.raises(InputError, match="no ring"):
            fastest_ring(topology)
    else:
        links = fastest_ring(topology)
        assert is_ring(topology, links)
        assert slowest(topology, links) == best
