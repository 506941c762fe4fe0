"""Symmetry that is found without being told: automorphisms whose group leaves no rank in place."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from gapless.encodings.taccl.sketch.logical import apply_sketch
from gapless.encodings.taccl.symmetry.automorphisms import automorphism, free_symmetry
from gapless.encodings.taccl.symmetry.rotations import orbits
from gapless.ir.collective import collective_by_name
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Link, Topology


def group_of(generators: tuple[tuple[int, ...], ...], count: int) -> set[tuple[int, ...]]:
    """All products of the generators."""
    group, fresh = set(), [tuple(range(count))]
    while fresh:
        element = fresh.pop()
        if element not in group:
            group.add(element)
            fresh += [tuple(generator[image] for image in element) for generator in generators]
    return group


def machine(edges: list[tuple[int, int]], count: int, slow: frozenset[tuple[int, int]] = frozenset()) -> Topology:
    """Links both ways, the slow ones at half the bandwidth."""
    links = [Link(*ends, 1e-6, 2e-9 if edge in slow else 1e-9) for edge in edges for ends in (edge, (edge[1], edge[0]))]
    return Topology("machine", (0,) * count, tuple(links))


RING = machine([(rank, (rank + 1) % 6) for rank in range(6)], 6)
CUBE = machine([(a, a ^ bit) for a in range(8) for bit in (1, 2, 4) if a < a ^ bit], 8)
SHIPPED = [load_topology(name, nodes) for name in ("ndv2", "dgx2") for nodes in (1, 2)]


@pytest.mark.parametrize("topology", [RING, CUBE, *SHIPPED], ids=lambda topology: topology.name)
def test_every_rank_can_be_carried_to_others_and_none_stays(topology: Topology) -> None:
    collective = collective_by_name("allgather", topology.device_count)
    logical = apply_sketch(topology, collective, None)
    generators = free_symmetry(logical.topology, collective, logical.allowed)
    group = group_of(generators, topology.device_count)
    assert len(group) > 1
    assert topology.device_count % len(group) == 0
    identity = tuple(range(topology.device_count))
    assert all(a != b for element in group - {identity} for a, b in zip(element, identity, strict=True))
    for generator in generators:
        automorphism(np.array(generator), topology, collective, logical.allowed, "found")


@pytest.mark.parametrize("topology", [RING, CUBE], ids=["ring", "cube"])
def test_rings_and_cubes_are_found_to_be_transitive(topology: Topology) -> None:
    collective = collective_by_name("allgather", topology.device_count)
    generators = free_symmetry(topology, collective, apply_sketch(topology, collective, None).allowed)
    assert not orbits([np.array(generator) for generator in generators], topology.device_count).any()


def test_nothing_is_found_where_brute_force_finds_nothing() -> None:
    """A path of four ranks with one slow end has no automorphism but the identity."""
    topology = machine([(0, 1), (1, 2), (2, 3)], 4, frozenset({(0, 1)}))
    collective = collective_by_name("allgather", 4)
    costs = {(link.source, link.target): link.beta_s_per_byte for link in topology.links}
    kept = [p for p in permutations(range(4)) if all(costs.get((p[a], p[b])) == beta for (a, b), beta in costs.items())]
    assert kept == [(0, 1, 2, 3)]
    assert free_symmetry(topology, collective, apply_sketch(topology, collective, None).allowed) == ()
