"""Rotations: found without a sketch, and a group that leaves nothing in its place."""

from __future__ import annotations

import numpy as np
import pytest
from rails import rails
from shapes import even, line, pairs_of_nodes, ring, star

from gapless.encodings.taccl.symmetry.rotations import Rotations, find_rotations, no_rotations
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology


@pytest.mark.parametrize(
    ("topology", "size"),
    [
        (rails(4), 32), (ring(6, even), 6), (pairs_of_nodes(3, even), 3), (load_topology("dgx2", 2), 16),
        (load_topology("ndv2", 3), 3), (line(4, even), 1), (star(4, even), 1),
    ],
)  # fmt: skip
def test_size_of_the_group(topology: Topology, size: int) -> None:
    assert len(find_rotations(topology)) == size


def test_uneven_links_leave_no_rotation() -> None:
    assert len(find_rotations(ring(4, lambda k: (1e-6, (k + 1) * 1e-10)))) == 1


def _ends(topology: Topology) -> set[tuple[int, int, float, float]]:
    return {(link.source, link.target, link.alpha_s, link.beta_s_per_byte) for link in topology.links}


@pytest.mark.parametrize("topology", [rails(3, 4), load_topology("dgx2", 2)])
def test_every_rotation_keeps_links_and_moves_every_rank(topology: Topology) -> None:
    rotations = find_rotations(topology)
    assert (rotations.ranks[0] == np.arange(topology.device_count)).all()
    for ranks in rotations.ranks[1:]:
        carried = {
            (int(ranks[link.source]), int(ranks[link.target]), link.alpha_s, link.beta_s_per_byte)
            for link in topology.links
        }
        assert carried == _ends(topology)
        assert (ranks != np.arange(topology.device_count)).all()
    assert _orbit_sizes(rotations.link_orbit) == _orbit_sizes(rotations.resource_orbit) == {len(rotations)}


def _orbit_sizes(label: np.ndarray) -> set[int]:
    return set(np.unique(label, return_counts=True)[1].tolist())


def test_no_rotations_is_the_identity() -> None:
    rotations: Rotations = no_rotations(ring(4, even))
    assert rotations.ranks.tolist() == [[0, 1, 2, 3]]
    assert rotations.rank_orbit.tolist() == [0, 1, 2, 3]
