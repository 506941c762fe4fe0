"""Sums across cuts: never above the best possible, nor above a plan, and what is known of two nodes and of gossip."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from exact_any import shortest_below_s
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from little import LITTLE
from shapes import pairs_of_nodes, single_nodes

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.cuts import across_cuts_s, gossip_rounds, kinds_of
from gapless.encodings.taccl.parameters import Parameters
from gapless.ir.collective import Collective

COSTS = st.tuples(st.integers(0, 40), st.integers(1, 40))


def _one_sum(wants: tuple[int, ...], holders: tuple[int, ...] = (0, 1, 2, 3)) -> Collective:
    """One chunk, of which `holders` have parts and whose sum `wants` want."""
    inputs = tuple((0,) if rank in holders else () for rank in range(4))
    outputs = tuple((0,) if rank in wants else () for rank in range(4))
    return Collective("one_sum", 4, 1, inputs, outputs, reduces=True)


SUMS = [_one_sum((2, 3), (0, 1)), _one_sum((3,), (0, 1, 2)), _one_sum((1, 2), (0, 1))]


@pytest.mark.thorough
@examples(25)
@given(collective=st.sampled_from(SUMS), local=COSTS, nic=COSTS)
def test_no_schedule_beats_the_bound(collective: Collective, local: tuple[int, int], nic: tuple[int, int]) -> None:
    costs = {0: (local[0] * 1e-7, local[1] * 1e-12), 1: (nic[0] * 1e-7, nic[1] * 1e-12)}
    problem = Chunked(pairs_of_nodes(2, lambda k: costs[k]), collective, 300_000)
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0), LITTLE)
    assert result.valid
    assert result.report is not None
    best_s = shortest_below_s(problem, result.report.makespan_s * (1 + 1e-9))
    assert across_cuts_s(problem, kinds_of(problem), problem.may_group, ()) <= best_s * (1 + 1e-9)


def test_where_nodes_are_slow_inside_parts_cross_one_by_one() -> None:
    """Adding up first would take 1 ms; two crossings of 1 us are cheaper, and the bound must allow for them."""
    topology = pairs_of_nodes(2, lambda k: ((1e-3, 0.0), (0.0, 1e-11))[k])
    problem = Chunked(topology, _one_sum((2,), (0, 1)), 100_000)
    assert across_cuts_s(problem, kinds_of(problem), problem.may_group, ()) == pytest.approx(2e-6)


def test_where_nodes_are_fast_inside_a_sum_crosses_once() -> None:
    """1 us to add up, 100 us to cross, 1 us to spread."""
    topology = pairs_of_nodes(2, lambda k: ((1e-6, 0.0), (0.0, 1e-9))[k])
    problem = Chunked(topology, _one_sum((2, 3), (0, 1)), 100_000)
    assert across_cuts_s(problem, kinds_of(problem), problem.may_group, ()) == pytest.approx(102e-6)


def test_one_crossing_more_spares_the_sum_before_the_first() -> None:
    """What three ranks add up for the fourth takes 2 us and four crossings, or five crossings: 1 us each."""
    problem = Chunked.of(single_nodes(4, lambda k: (0.0, 1e-11)), "allreduce", 400_000)
    assert across_cuts_s(problem, kinds_of(problem), problem.may_group, ()) == pytest.approx(5e-6)


def test_one_node_has_no_cut() -> None:
    problem = Chunked.of(pairs_of_nodes(1, lambda k: (0.0, 1e-11)), "allreduce", 400_000)
    assert across_cuts_s(problem, kinds_of(problem), problem.may_group, ()) == 0.0


def test_two_ndv2_nodes_add_up_in_three_steps_and_spread_on_the_way_of_the_farthest(
    published: Callable[..., Chunked],
) -> None:
    problem = published("topo-ndv2-1MB.json", "sk1-ndv2-n2", 16_000_000, "allreduce")
    sixteen_crossings, three_doublings, to_the_farthest = 2.6 + 16 * 105, 3 * 23.3, 46.3 + 23.3
    expected_us = sixteen_crossings + three_doublings + to_the_farthest
    assert across_cuts_s(problem, kinds_of(problem), problem.may_group, ()) == pytest.approx(expected_us * 1e-6)


@pytest.mark.thorough
@examples(25)
@given(
    name=st.sampled_from(["allreduce", "reducescatter", "reduce"]), local=COSTS, nic=COSTS,
    nodes=st.sampled_from([2, 2, 2, 3]), size=st.sampled_from([10_000, 10**6]),
)  # fmt: skip
def test_it_is_never_above_a_plan(
    name: str, local: tuple[int, int], nic: tuple[int, int], nodes: int, size: int
) -> None:  # fmt: skip
    costs = {0: (local[0] * 1e-7, local[1] * 1e-12), 1: (nic[0] * 1e-7, nic[1] * 1e-12)}
    problem = Chunked.of(pairs_of_nodes(nodes, lambda k: costs[k]), name, size, method="greedy")
    result = gapless.solve(problem, SolveOptions(gap=0.05), Parameters().with_share(0.005))
    assert result.valid
    assert result.report is not None
    assert across_cuts_s(problem, kinds_of(problem), problem.may_group, ()) <= result.report.makespan_s * (1 + 1e-9)


@pytest.mark.parametrize(("ranks", "rounds"), [(3, 3), (4, 3), (5, 4), (8, 5), (16, 6), (32, 8)])
def test_sums_for_all_take_more_rounds_than_doubling(ranks: int, rounds: int) -> None:
    assert gossip_rounds(ranks, 1) == rounds


def test_who_sends_to_all_at_once_spreads_in_one_round_more() -> None:
    assert gossip_rounds(8, 7) == 4
