"""Exchanges: whole sums between classes of ranks replay clean, in fewer rounds than halving and doubling take."""

from __future__ import annotations

import math

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rails import rails
from shapes import SHAPES, even, ring

from gapless.checker import check
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.aggregate.exchange import exchange_transfers
from gapless.encodings.taccl.ordering.sends import Transfer, sends_in_turn, to_schedule
from gapless.ir.collective import allreduce, reducescatter
from gapless.ir.schedule import Schedule
from gapless.options import Deadline, SolveOptions
from gapless.topologies.files import load_topology

COSTS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=8, max_size=8)
LOOKS = 100_000


def exchanged(problem: Chunked, limit_s: float = math.inf, looks: int = LOOKS) -> list[Transfer] | None:
    return exchange_transfers(problem, Deadline(SolveOptions()), 0, limit_s, looks)


def scheduled(problem: Chunked) -> Schedule:
    transfers = exchanged(problem)
    assert transfers is not None
    sends = sends_in_turn(transfers, problem)
    return to_schedule(problem.logical.topology, problem.collective, problem.chunk_bytes, *sends)


@pytest.mark.parametrize(("name", "rounds"), [("torus:4x4", 7), ("ring:8", 7), ("ring:4", 4)])
def test_rounds_are_fewer_than_twice_the_doublings(name: str, rounds: int) -> None:
    """Halving and doubling, or a tree up and down, take 8, 8 and 4."""
    topology = load_topology(f"{name},alpha_us=1,beta_us_per_mb=0", 1, None)
    schedule = scheduled(Chunked(topology, allreduce(topology.device_count), 64))
    report = check(schedule)
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(rounds * 1e-6)


@pytest.mark.parametrize(("ranks", "rounds"), [(4, 4), (6, 5), (8, 6), (10, 6), (16, 7)])
def test_behind_a_switch_sums_grow_like_fibonaccis_numbers(ranks: int, rounds: int) -> None:
    """Halving and doubling take 4, 6, 6, 8 and 8 rounds."""
    problem = Chunked.of(SHAPES["switch"](ranks, lambda _: (1e-6, 20e-12)), "allreduce", ranks)
    assert check(scheduled(problem)).makespan_s == pytest.approx(rounds * (1e-6 + ranks * 20e-12))


def test_sums_cross_between_nodes_once() -> None:
    schedule = scheduled(Chunked.of(rails(2, 4), "allreduce", 8))
    assert check(schedule).valid
    assert schedule.topology.is_inter_node[schedule.place].sum() == 4


@examples(32)
@given(shape=st.sampled_from(sorted(SHAPES)), costs=COSTS)
def test_uneven_links_replay_clean(shape: str, costs: list[tuple[int, int]]) -> None:
    topology = SHAPES[shape](4, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked(topology, allreduce(4), 1_000)
    transfers = exchanged(problem, looks=5_000)
    if transfers is not None:
        report = check(scheduled(problem))
        assert report.valid, report.summary()


def test_what_is_no_faster_is_not_found() -> None:
    problem = Chunked(ring(8, even), allreduce(8), 64)
    end_s = float(scheduled(problem).end_s.max())
    assert exchanged(problem, 0.7 * end_s) is None
    assert exchanged(problem, 0.1 * end_s) is None


def test_it_is_for_allreduce_of_all_ranks_on_all_links() -> None:
    assert exchanged(Chunked(ring(4, even), reducescatter(4), 64)) is None
    sketched = Chunked(load_topology("ndv2", 2, None), allreduce(16), 64, load_sketch("ndv2-sk-1"))
    assert exchanged(sketched) is None
