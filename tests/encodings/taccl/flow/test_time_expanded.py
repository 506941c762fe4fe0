"""Matching on the time-expanded graph: what a try may do, and what its choices mean."""

from __future__ import annotations

import random

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from irregular_networks import with_slow_nic
from shapes import SHAPES, even, line, pairs_of_nodes, ring

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.flow.network import Network, closed_links, contested_ports, network_of
from gapless.encodings.taccl.flow.time_expanded import PICKS, Choice, State, construct, start_of
from gapless.encodings.taccl.symmetry.quotient import quotient_problem
from gapless.encodings.taccl.symmetry.rotations import no_rotations
from gapless.ir.collective import allgather, collective_by_name

COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=8, max_size=8)


def _network(problem: Chunked, sets: tuple[tuple[int, ...], ...] = (), one_at_a_time: bool = False) -> Network:
    quotient = quotient_problem(problem, no_rotations(problem.logical.topology))
    return network_of(problem, quotient, sets, one_at_a_time)


def _complete(network: Network, choice: Choice, seed: int = 0) -> tuple[State, list[State]]:
    state, copies = start_of(network), list[State]()
    assert construct(network, choice, random.Random(seed), state, np.inf, copies)
    return state, copies


@examples(15)
@pytest.mark.parametrize("shape", sorted(SHAPES))
@given(costs=COSTS, pick=st.sampled_from(PICKS), most=st.integers(1, 3), one_at_a_time=st.booleans())
def test_every_rank_gets_every_chunk_once_from_one_that_has_it(
    shape: str, costs: list[tuple[int, int]], pick: str, most: int, one_at_a_time: bool
) -> None:
    topology = SHAPES[shape](4, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    network = _network(Chunked(topology, allgather(4, 2), 100_000), one_at_a_time=one_at_a_time)
    state, _ = _complete(network, Choice((most,) * network.kinds, pick))
    since = dict.fromkeys(enumerate(network.owner), 0.0)
    free_s = dict.fromkeys(range(network.clock_count), 0.0)
    sending = dict.fromkeys(since, 0.0)
    for start_s, end_s, link, bits in state.sends:
        assert len(bits) <= most
        assert end_s - start_s == pytest.approx(network.alpha_s[link] + len(bits) * network.chunk_s[link])
        for clock in network.clocks[link]:
            assert start_s >= free_s[clock]
            free_s[clock] = end_s
        for bit in bits:
            cell = bit, network.source[link]
            assert start_s >= since[cell] * (1 - 1e-6)
            assert (bit, network.target[link]) not in since
            since[bit, network.target[link]] = end_s
            if one_at_a_time:
                assert start_s >= sending.get(cell, 0.0) * (1 - 1e-6)
                sending[cell] = end_s
    assert len(since) == 8 * 4


def test_a_chunk_for_one_rank_takes_a_shortest_path_and_leaves_where_it_was() -> None:
    network = _network(Chunked(ring(5, even), collective_by_name("alltoall", 5, 5), 1000))
    state, _ = _complete(network, Choice((1,)))
    assert len(state.sends) == 5 * (1 + 1 + 2 + 2)
    assert not any(state.have)


def test_nothing_ends_after_the_limit() -> None:
    network = _network(Chunked(line(4, even), allgather(4), 10_000))
    least_s = _complete(network, Choice((1,)))[0].makespan_s
    state = start_of(network)
    assert not construct(network, Choice((1,)), random.Random(0), state, 0.9 * least_s, [])
    assert state.left
    assert state.makespan_s <= 0.9 * least_s


def test_a_copy_goes_on_as_the_try_that_it_is_of() -> None:
    network = _network(Chunked(ring(5, even), allgather(5, 3), 10_000))
    state, copies = _complete(network, Choice((1,), "rarest"))
    for copy in copies:
        again = copy.copy()
        assert construct(network, Choice((1,), "rarest"), random.Random(1), again, np.inf, [])
        assert again.sends[: len(copy.sends)] == state.sends[: len(copy.sends)]
        assert sum(len(send[3]) for send in again.sends) == 15 * 4
    assert len(copies[0].sends) == 0


def test_a_bottleneck_set_is_entered_once_unless_there_is_time_to_spare() -> None:
    topology = pairs_of_nodes(2, lambda k: (1e-6, (4e-10, 1e-10)[k]))
    network = _network(Chunked(topology, allgather(4), 10**6), ((0, 1), (2, 3)))
    between = topology.is_inter_node
    crossings = [
        sum(between[send[2]] for send in _complete(network, choice)[0].sends)
        for choice in (Choice((1, 1), once=True), Choice((1, 1), once=True, spare_until_s=1.0))
    ]
    assert crossings[0] == 4
    assert crossings[1] > 4


def test_a_set_that_no_other_link_leads_into_is_entered_again() -> None:
    network = _network(Chunked(line(4, even), allgather(4), 1000), ((0, 3),))  # not connected inside
    assert not _complete(network, Choice((1,), once=True))[0].left


def test_links_that_wait_make_larger_groups() -> None:
    network = _network(Chunked(ring(5, even), allgather(5), 1000))
    counts = [
        np.mean([len(_complete(network, Choice((8,), waits=waits), seed)[0].sends) for seed in range(20)])
        for waits in (0.0, 0.3)
    ]
    assert counts[1] < counts[0]


def test_closed_links_are_used_only_where_nothing_else_is_left() -> None:
    network = _network(Chunked(ring(5, even), allgather(5), 1000))
    backwards = frozenset(link for link in range(10) if (network.target[link] - network.source[link]) % 5 == 4)
    state, _ = _complete(network, Choice((1,), closed=backwards))
    assert not backwards & {send[2] for send in state.sends}
    all_links = frozenset(range(10))
    assert not _complete(network, Choice((1,), closed=all_links))[0].left


def test_no_rank_is_served_last_where_links_share_ports() -> None:
    topology = with_slow_nic(13, 3.0)
    problem = Chunked(topology, allgather(24, 11), 64 * 10**6 // 11)
    network = _network(problem, tuple(tuple(topology.ranks_of_node(node)) for node in range(3)))
    for seed in range(3):
        closed = closed_links(contested_ports(network), random.Random(seed))
        state, _ = _complete(network, Choice((1,) * network.kinds, "rarest", once=True, closed=closed), seed)
        assert state.makespan_s <= 1.05 * bounds_of(problem).any_chunking_s
