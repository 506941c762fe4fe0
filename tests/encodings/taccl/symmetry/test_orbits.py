"""Orbits and automorphisms."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.taccl.symmetry.automorphisms import automorphism
from gapless.encodings.taccl.symmetry.rotations import orbits, rotation
from gapless.ir.collective import allgather
from gapless.topologies.files import load_topology

PERMUTATIONS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.permutations(range(n)), min_size=0, max_size=3).map(lambda found: (n, found))
)


@given(PERMUTATIONS)
def test_orbits_are_the_connected_components_of_the_moves(case: tuple[int, list[list[int]]]) -> None:
    count, permutations = case
    label = orbits([np.array(p) for p in permutations], count)
    moves: nx.Graph[int] = nx.Graph()
    moves.add_nodes_from(range(count))
    for permutation in permutations:
        moves.add_edges_from(enumerate(permutation))
    for component in nx.connected_components(moves):
        assert {int(label[item]) for item in component} == {min(component)}


def test_rotation_stays_in_its_group() -> None:
    assert rotation(1, 2, 4).tolist() == [1, 0, 3, 2]
    assert rotation(2, 4, 4).tolist() == [2, 3, 0, 1]


def test_automorphism_carries_chunks_with_their_owners_part_by_part() -> None:
    topology = load_topology("ndv2", 2)
    collective = allgather(16, 2)
    allowed = np.ones((32, len(topology.links)), dtype=np.bool_)
    swap = automorphism(rotation(8, 16, 16), topology, collective, allowed, "test")
    assert swap.chunks.tolist() == [*range(16, 32), *range(16)]
    for link, image in enumerate(swap.links.tolist()):
        ends = topology.links[link], topology.links[image]
        assert (ends[0].source + 8) % 16 == ends[1].source
        assert (ends[0].target + 8) % 16 == ends[1].target
