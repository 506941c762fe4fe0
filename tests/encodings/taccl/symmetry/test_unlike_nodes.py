"""What is equal in a cluster of nodes that differ stays equal: rotations and automorphisms keep each kind of node."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.encodings.taccl.symmetry.automorphisms import free_symmetry
from gapless.encodings.taccl.symmetry.rotations import find_rotations
from gapless.ir.collective import collective_by_name
from gapless.topologies.node import Cluster, NicTemplate, NodeTemplate, SwitchTemplate


def node(ranks: int, nic_beta_s_per_byte: float) -> NodeTemplate:
    nics = tuple(NicTemplate((rank,), 2e-6, nic_beta_s_per_byte) for rank in range(ranks))
    return NodeTemplate("node", ranks, (), (SwitchTemplate(tuple(range(ranks)), 1e-6, 1e-9),), nics)


UNLIKE = [(node(4, 4e-9), node(4, 4e-9), node(4, 8e-9)), (node(4, 4e-9), node(4, 4e-9), node(4, 8e-9), node(4, 8e-9))]


@pytest.mark.parametrize("nodes", UNLIKE, ids=["one slow node", "two of each kind"])
def test_symmetries_keep_the_kind_of_every_rank(nodes: tuple[NodeTemplate, ...]) -> None:
    topology = Cluster("unlike", nodes).topology()
    kind = np.array([nodes[place].nics[0].beta_s_per_byte for place in topology.node_of_device])
    rotations = find_rotations(topology).ranks
    assert len(rotations) > 1
    chunks = collective_by_name("allgather", topology.device_count)
    allowed = np.ones((chunks.chunk_count, len(topology.links)), dtype=bool)
    found = free_symmetry(topology, chunks, allowed)
    assert found
    for image in (*rotations, *found):
        assert (kind[np.asarray(image)] == kind).all()
