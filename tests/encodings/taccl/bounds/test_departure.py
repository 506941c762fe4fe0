"""What leaves a rank: the bound of BROADCAST lies between latency plus bytes and the plans that are known."""

from __future__ import annotations

import pytest
from shapes import SHAPES

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.bounds.departure import departure_bound_s
from gapless.ir.collective import allgather, alltoall, broadcast, reduce

ALPHA_S, BETA_S = 1e-6, 1e-11


def pipelined_s(hops: int, bytes_s: float) -> float:
    """The best of all numbers of equal pieces that follow one another over so many links."""
    return min((pieces + hops - 1) * (ALPHA_S + bytes_s / pieces) for pieces in range(1, 1000))


@pytest.mark.parametrize("size", [1_000_000, 10_000_000, 100_000_000])
def test_along_a_line_alphas_and_bytes_are_traded(size: int) -> None:
    topology, bytes_s = SHAPES["line"](4, lambda _: (ALPHA_S, BETA_S)), size * BETA_S
    bound_s = departure_bound_s(Chunked(topology, broadcast(4), size))
    assert 2 * ALPHA_S + bytes_s < bound_s <= pipelined_s(3, bytes_s)
    assert bound_s > 0.7 * pipelined_s(3, bytes_s)


def test_a_port_sends_messages_that_become_shorter() -> None:
    """G = T - alphas of the way - bytes is at least sqrt(2 alpha * bytes), but for what some ranks get at once."""
    topology, size = SHAPES["switch"](16, lambda _: (ALPHA_S, BETA_S)), 1_000_000
    bytes_s = size * BETA_S
    bound_s = departure_bound_s(Chunked(topology, broadcast(16), size))
    assert bytes_s + 2 * ALPHA_S + 0.8 * (2 * ALPHA_S * bytes_s) ** 0.5 < bound_s
    assert bound_s < bytes_s + 4 * ALPHA_S + 2 * (3 * ALPHA_S * bytes_s) ** 0.5  # pieces down a binomial tree


def test_a_sum_is_the_same_backwards() -> None:
    topology = SHAPES["switch"](8, lambda _: (ALPHA_S, BETA_S))
    spread, summed = (bounds_of(Chunked(topology, of(8), 1_000_000)).any_chunking for of in (broadcast, reduce))
    assert spread["departure"] == pytest.approx(summed["departure"])


def test_every_rank_is_a_source() -> None:
    topology = SHAPES["ring"](8, lambda _: (ALPHA_S, BETA_S))
    once, often = (departure_bound_s(Chunked(topology, of(8), 1_000_000)) for of in (broadcast, allgather))
    assert once == pytest.approx(often)


def test_what_one_rank_wants_is_left_to_other_bounds() -> None:
    topology = SHAPES["ring"](4, lambda _: (ALPHA_S, BETA_S))
    assert departure_bound_s(Chunked(topology, alltoall(4, 4), 1000)) == 0.0
