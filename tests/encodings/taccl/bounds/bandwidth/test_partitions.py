"""The worst partition: against all partitions of few ranks, and in the bound of an ALLREDUCE."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bandwidth.partitions import broken_partition, worst_partition
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.bounds.cuts import partitions_of
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.encodings.taccl.symmetry.rotations import find_rotations, lanes_of, no_rotations
from gapless.ir.collective import allreduce, reducescatter
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Link, Topology


def all_partitions(ranks: int) -> Iterator[Ids]:
    """Every partition into two classes or more."""

    def grown(class_of: list[int], count: int) -> Iterator[list[int]]:
        if len(class_of) == ranks:
            yield class_of
            return
        for number in range(count + 1):
            yield from grown([*class_of, number], max(count, number + 1))

    yield from (np.array(classes) for classes in grown([0], 1) if max(classes))


def network(seed: int, ports: bool = False) -> Topology:
    """Some links among few ranks, all joined, each both ways or one way; `ports`: some share a resource."""
    chance, ranks = Random(seed), Random(seed).randint(2, 6)
    pairs = [(chance.randrange(rank), rank) for rank in range(1, ranks)]
    pairs += chance.sample(list(combinations(range(ranks), 2)), chance.randint(0, ranks * (ranks - 1) // 2))
    ends = [(*pair, chance.randint(1, 9)) for pair in pairs]
    ends += [(b, a, beta if chance.random() < 0.8 else chance.randint(1, 9)) for a, b, beta in ends]
    held = [tuple(sorted(chance.sample(range(3), chance.randint(0, 2)))) if ports else () for _ in ends]
    links = tuple(Link(a, b, 1e-6, beta * 1e-9, on) for (a, b, beta), on in zip(ends, held, strict=True))
    return Topology("drawn", (0,) * ranks, links, ("x", "y", "z") if ports else ())


def crossed(topology: Topology, class_of: Ids) -> Ids:
    return np.flatnonzero(class_of[topology.link_source] != class_of[topology.link_target])


def by_all_partitions(topology: Topology) -> float:
    """The least time for one byte, by a linear program with a row for every partition."""
    links, held, model = len(topology.links), lanes_of(topology), Model("all_partitions")
    carried, time = model.continuous("carried", links), int(model.continuous("time"))
    for number, class_of in enumerate(all_partitions(topology.device_count)):
        needed = 2.0 * (len(np.unique(class_of)) - 1)
        model.add(f"crossed_{number}", (1.0, carried[crossed(topology, class_of)]), lower=needed)
    for lane in range(links + len(topology.resources)):
        if on := [link for link in range(links) if lane in held[link]]:
            terms = [(-float(topology.beta_s_per_byte[link]) * 1e9, carried[[link]]) for link in on]
            model.add(f"lane_{lane}", (1.0, np.array([time])), *terms, lower=0.0)
    model.minimize((1.0, [time]))
    return float(solve_model(model, SolveOptions()).objective or 0.0) * 1e-9


@examples(60)
@given(seed=st.integers(0, 10**6), ports=st.booleans())
def test_it_is_the_worst_of_all_partitions(seed: int, ports: bool) -> None:
    topology = network(seed, ports)
    for rotations in (no_rotations(topology), find_rotations(topology)):
        found = worst_partition(topology, topology.beta_s_per_byte, rotations, partitions_of(topology))
        assert found.exact
        assert found.time_s == pytest.approx(by_all_partitions(topology), rel=3e-6)
        assert found.time_s <= by_all_partitions(topology) * (1 + 1e-9)


@examples(60)
@given(seed=st.integers(0, 10**6))
def test_the_most_broken_partition_is_found(seed: int) -> None:
    topology = network(seed)
    chunks: Floats = np.random.default_rng(seed).uniform(0, 3, len(topology.links))

    def lacks(class_of: Ids) -> float:
        return 2.0 * (len(np.unique(class_of)) - 1) - float(chunks[crossed(topology, class_of)].sum())

    most = max(lacks(class_of) for class_of in all_partitions(topology.device_count))
    found = broken_partition(topology, chunks)
    assert (found is None) == (most <= 1e-6)
    if found is not None:
        assert lacks(found) == pytest.approx(most, abs=1e-6)


def test_two_triangles_with_a_slow_bridge() -> None:
    """Links inside the triangles: 1 ns a byte, both ways. The bridge takes 3 ns: 2 (2 - 1) bytes over 2 links of it; a
    triangle, 2 (3 - 1) over 6 links; triangle and bridge's other side, 2 (4 - 1) over 6 + 2 / 3.
    """
    pairs = [(0, 1, 1), (1, 2, 1), (0, 2, 1), (3, 4, 1), (4, 5, 1), (3, 5, 1), (2, 3, 3)]
    links = [Link(a, b, 0.0, beta * 1e-9) for one, other, beta in pairs for a, b in ((one, other), (other, one))]
    topology = Topology("triangles", (0,) * 6, tuple(links))
    found = worst_partition(topology, topology.beta_s_per_byte, no_rotations(topology), partitions_of(topology))
    assert found.time_s == pytest.approx(3e-9)


def three_threes() -> Topology:
    """Two rings of 3 with links of 1 ns a byte, and one of 8 ns; k-th ranks are joined by 8 ns, those of the fast
    rings by 16 ns. The worst partition is into both fast rings and three ranks alone.
    """
    pairs = [(base + a, base + b, beta) for base, beta in ((0, 1), (3, 1), (6, 8)) for a, b in ((0, 1), (1, 2), (0, 2))]
    pairs += [
        (base + k, base + step + k, beta) for k in range(3) for base, step, beta in ((0, 3, 16), (3, 3, 8), (0, 6, 8))
    ]
    links = [Link(a, b, 0.0, beta * 1e-9) for one, other, beta in pairs for a, b in ((one, other), (other, one))]
    return Topology("three threes", (0,) * 9, tuple(links))


LEAST_S = 4e-9 / (9 / 8 + 3 / 16)
"""For each byte of it."""


def test_classes_and_single_ranks_together_may_be_the_worst() -> None:
    chunked = Chunked(three_threes(), allreduce(9), 10**6)
    assert bounds_of(chunked).any_chunking["bandwidth"] == pytest.approx(9e6 * LEAST_S)
    none = BoundParameters(most_partition_looks=1)
    assert bounds_of(chunked, none).any_chunking_s < 0.95 * bounds_of(chunked).any_chunking_s


def test_other_collectives_have_no_partitions() -> None:
    """What is sent up need not come down."""
    chunked = Chunked(three_threes(), reducescatter(9), 10**6)
    none = BoundParameters(most_partition_looks=1)
    assert bounds_of(chunked, none).any_chunking_s == bounds_of(chunked).any_chunking_s


def test_little_work_is_a_lower_bound() -> None:
    topology = three_threes()
    for most in (1, 10**6):
        found = worst_partition(
            topology, topology.beta_s_per_byte, no_rotations(topology), partitions_of(topology), most_looks=most
        )
        assert found.time_s <= LEAST_S * (1 + 1e-9)
        assert found.exact == (most > 1)
