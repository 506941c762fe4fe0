"""Pods: nodes and narrow sets of ranks, nested or disjoint."""

from __future__ import annotations

from itertools import combinations

import pytest
from rails import rails
from shapes import pairs_of_nodes

from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import allgather_bottlenecks, find_bottleneck_sets
from gapless.encodings.taccl.symmetry.rotations import find_rotations
from gapless.topologies.topology import Topology


def _pods(topology: Topology) -> list[tuple[int, ...]]:
    rotations = find_rotations(topology)
    cuts = allgather_bottlenecks(topology, topology.beta_s_per_byte, rotations)
    return find_bottleneck_sets(topology, cuts, rotations)


def test_nodes_are_pods() -> None:
    assert sorted(_pods(rails(3, 4))) == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]


def test_a_single_node_is_no_pod() -> None:
    assert _pods(rails(1, 4)) == []


@pytest.mark.parametrize("betas", [(1e-12, 1e-10), (1e-10, 1e-12)])
def test_pods_are_nested_or_disjoint(betas: tuple[float, float]) -> None:
    for one, other in combinations(_pods(pairs_of_nodes(4, lambda k: (1e-6, betas[k]))), 2):
        common = set(one) & set(other)
        assert not common or common in (set(one), set(other))
