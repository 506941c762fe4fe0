"""Messages and hops, small messages and large ones: near to what the best known plans between equal ranks take."""

from __future__ import annotations

import numpy as np
import pytest
from shapes import SHAPES, complete

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.tradeoffs import byte_trees_bound_s, hops_bound_s
from gapless.ir.collective import allgather, allreduce, broadcast, reduce, reducescatter

ALPHA_S, BETA_S = 1e-6, 1e-11


@pytest.mark.parametrize(("part_s", "reached"), [(1e-9, 1.0), (0.5e-6, 0.87), (0.9e-6, 0.98), (1.1e-6, 1), (5e-6, 1)])
def test_four_ranks_get_two_messages_or_three(part_s: float, reached: float) -> None:
    topology = SHAPES["switch"](4, lambda _: (ALPHA_S, 1e-9))
    wanted = np.full((4, 4), part_s / 1e-9) - np.diag([part_s / 1e-9] * 4)
    two_messages, three = 2 * ALPHA_S + 4 * part_s, 3 * ALPHA_S + 3 * part_s
    best_s = min(two_messages, three)
    assert (reached - 1e-5) * best_s <= hops_bound_s(topology, wanted) <= best_s


def test_what_has_far_to_go_takes_as_many_hops() -> None:
    topology = SHAPES["ring"](6, lambda _: (ALPHA_S, 1e-9))
    wanted = np.full((6, 6), 1e6) - np.diag([1e6] * 6)
    hops_of_a_rank = 1 + 1 + 2 + 2 + 3
    assert hops_bound_s(topology, wanted) >= hops_of_a_rank / 2 * 1e-3


def test_nothing_takes_no_time() -> None:
    topology = SHAPES["ring"](6, lambda _: (ALPHA_S, 1e-9))
    assert hops_bound_s(topology, np.zeros((6, 6))) == 0.0


def test_links_that_cost_nothing_prove_nothing() -> None:
    topology = SHAPES["switch"](4, lambda _: (0.0, 1e-9))
    assert hops_bound_s(topology, np.ones((4, 4))) == 0.0


@pytest.mark.parametrize("chunk_bytes", [1000, 100_000, 1_000_000, 10_000_000])
def test_on_a_link_for_each_pair_halving_in_all_orders_of_dimensions_is_nearly_the_best(chunk_bytes: int) -> None:
    """Seven pieces of each chunk are added up along p, g p and g^2 p, p = 1, ..., 7 in the field of eight elements.

    So each link carries 1, 2 and 4 sevenths of a chunk in three rounds.
    """
    topology = complete(8, lambda _: (ALPHA_S, BETA_S))
    bound_s = byte_trees_bound_s(Chunked(topology, reducescatter(8), chunk_bytes))
    best_s = 3 * ALPHA_S + chunk_bytes * BETA_S
    assert 0.96 * best_s <= bound_s <= best_s


def test_a_ring_adds_up_in_little_more() -> None:
    topology = SHAPES["ring"](8, lambda _: (ALPHA_S, BETA_S))
    chunk_bytes = 1_000_000
    bound_s = byte_trees_bound_s(Chunked(topology, reducescatter(8), chunk_bytes))
    assert 3.5 * chunk_bytes * BETA_S + 2 * ALPHA_S < bound_s <= 3.5 * chunk_bytes * BETA_S + 7 * ALPHA_S


def test_where_a_rank_sends_once_at_a_time_it_is_the_same_without_sums() -> None:
    topology = SHAPES["switch"](8, lambda _: (ALPHA_S, BETA_S))
    sums, copies = (Chunked(topology, of(8), 100_000) for of in (reducescatter, allgather))
    assert byte_trees_bound_s(sums) == pytest.approx(byte_trees_bound_s(copies))


def test_where_ranks_send_to_several_at_once_nothing_is_known_of_copies() -> None:
    topology = complete(8, lambda _: (ALPHA_S, BETA_S))
    assert byte_trees_bound_s(Chunked(topology, broadcast(8), 1000)) == 0.0


def test_a_sum_for_all_takes_more_than_one_for_a_rank() -> None:
    topology = SHAPES["ring"](6, lambda _: (ALPHA_S, BETA_S))
    for_one, for_all = (byte_trees_bound_s(Chunked(topology, of(6), 60_000)) for of in (reduce, allreduce))
    assert for_all > for_one + ALPHA_S


def test_without_alphas_nothing_is_traded() -> None:
    topology = SHAPES["ring"](6, lambda _: (0.0, BETA_S))
    assert byte_trees_bound_s(Chunked(topology, allreduce(6), 1000)) == 0.0
