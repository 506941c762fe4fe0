"""Trees of parts and late transfers: against an exact model of messages, and where single rules fall short."""

from __future__ import annotations

import math

import pytest
from exact_model import least_ticks
from examples import share
from random_networks import TICK_S, tiny_sum

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.any_chunking import any_bandwidth_s_per_byte
from gapless.encodings.taccl.bounds.bandwidth.sums import exclusive_sets, sums_s
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.bounds.cuts import Kind, kinds_of
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.encodings.taccl.symmetry.rotations import find_rotations, no_rotations
from gapless.ir.collective import Collective, allreduce
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Link, Topology

LIMIT = 3000
"""Ticks by which there is some schedule."""


def seconds(topology: Topology, kinds: list[Kind], parameters: BoundParameters | None = None) -> float:
    """The bound where a chunk holds each link for its beta, without symmetry."""
    rotations, limits = no_rotations(topology), parameters or BoundParameters()
    return sums_s(topology, topology.beta_s_per_byte, kinds, rotations, [], SolveOptions(), limits)


def network(ends: list[tuple[int, int, float, tuple[int, ...]]], resources: int = 0) -> Topology:
    links = tuple(Link(a, b, 1e-9, beta, held) for a, b, beta, held in ends)
    ranks = 1 + max(max(a, b) for a, b, _, _ in ends)
    return Topology("made", (0,) * ranks, links, tuple(f"port {k}" for k in range(resources)))


def sums(topology: Topology) -> list[Kind]:
    return kinds_of(Chunked(topology, allreduce(topology.device_count), 1))


@pytest.mark.thorough(but=("42", "119", "205"))
@pytest.mark.parametrize("seed", range(share(210)))
def test_no_schedule_of_messages_takes_less(seed: int) -> None:
    """Sums for all ranks, for some, and in groups, with alphas that are small; chunks whole, or cut in two."""
    asked = tiny_sum(seed)
    found = least_ticks(asked.wires, asked.collective, LIMIT, 2, work=0.5)
    assert found.ticks is not None
    assert bounds_of(asked.problem).any_chunking_s <= found.ticks * TICK_S * (1 + 1e-9)


def test_links_that_share_ports_in_pairs_take_turns() -> None:
    """Three of the four links of a star exclude each other, and each chunk uses all of them."""
    star = network([(0, 1, 2.0, (0, 2)), (0, 2, 2.0, ()), (1, 0, 2.0, (1, 2)), (2, 0, 2.0, (0, 1))], 3)
    assert [links.tolist() for links in exclusive_sets(star)] == [[0, 2, 3]]
    assert seconds(star, sums(star)) == pytest.approx(3 * 3 * 2.0)


def test_a_rank_behind_one_port_of_another_leaves_less_for_the_rest() -> None:
    """Rank 0 has links to and from rank 2 alone, which sends each chunk there, and to some other rank besides.

    Counting alone says 6 transfers over 4 ports.
    """
    pairs = [(0, 2), (1, 2), (1, 3), (2, 0), (2, 1), (2, 3), (3, 1), (3, 2)]
    switch = network([(a, b, 1.0, (a, 4 + b)) for a, b in pairs], 8)
    assert seconds(switch, sums(switch)) == pytest.approx(4 * 2.0)


def test_a_ring_of_one_direction_carries_everything_nearly_twice() -> None:
    ring = network([(k, (k + 1) % 5, 1.0, ()) for k in range(5)])
    assert seconds(ring, sums(ring)) == pytest.approx(5 * 8 / 5)


def test_symmetry_does_not_change_it() -> None:
    topology = load_topology("torus:3x3")
    kinds, rotations = sums(topology), find_rotations(topology)
    assert len(rotations) > 1
    args = topology, topology.beta_s_per_byte, kinds
    once = sums_s(*args, rotations, [], SolveOptions(), BoundParameters())
    assert once == pytest.approx(seconds(topology, kinds), rel=1e-5)


def test_groups_share_what_is_between_them() -> None:
    """Two pairs whose only path leads over one rank, whose port sends each chunk twice, whoever has the sum first."""
    pairs = [(0, 4), (1, 4), (2, 4), (3, 4)]
    star = network([(a, b, 1.0, ()) for a, b in pairs] + [(b, a, 1.0, (0,)) for a, b in pairs], 1)
    inputs = ((0,), (0,), (1,), (1,), ())
    groups = Collective("pairs", 5, 1, inputs, inputs, reduces=True)
    kinds = kinds_of(Chunked(star, groups, 1))
    assert len(kinds) == 2
    assert seconds(star, kinds[:1]) == pytest.approx(2.0)
    assert seconds(star, kinds) == pytest.approx(4.0)


def test_what_is_too_large_is_left_to_other_bounds() -> None:
    ring = network([(k, (k + 1) % 5, 1.0, ()) for k in range(5)])
    assert seconds(ring, sums(ring), BoundParameters(most_sum_columns=4)) == 0.0
    assert seconds(ring, []) == 0.0


def test_it_counts_for_the_bandwidth_of_a_question() -> None:
    pairs = [(0, 2), (1, 2), (1, 3), (2, 0), (2, 1), (2, 3), (3, 1), (3, 2)]
    switch = network([(a, b, 1e-9, (a, 4 + b)) for a, b in pairs], 8)
    problem = Chunked(switch, allreduce(4), 1)
    found_s = any_bandwidth_s_per_byte(problem, BoundParameters(), SolveOptions())
    assert math.isclose(found_s, 4 * 2e-9, rel_tol=1e-5)
