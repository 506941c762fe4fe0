"""The bound for any chunks: known values, and never above what an exhaustive search finds for whole chunks."""

from __future__ import annotations

import pytest
from exact import best_makespan_s
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from shapes import SHAPES, single_nodes, two_way

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.baselines.library import baselines
from gapless.encodings.taccl.bounds.any_chunking import any_chunking_sources
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.ir.collective import Collective, allgather, allreduce, broadcast, reduce, reducescatter
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Link, Topology

COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=6, max_size=6)


@examples(60)
@given(shape=st.sampled_from(sorted(SHAPES)), costs=COSTS)
def test_bound_is_never_above_the_best_schedule(shape: str, costs: list[tuple[int, int]]) -> None:
    topology = SHAPES[shape](3, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked.of(topology, "allgather", 1_000_000)
    bound_s = bounds_of(problem).any_chunking_s
    assert bound_s <= best_makespan_s(problem) * (1 + 1e-9)


def test_shared_interfaces_count_once() -> None:
    topology = single_nodes(3, lambda _: (0.0, 1e-9))
    assert bounds_of(Chunked(topology, allgather(3), 1000)).any_chunking_s == pytest.approx(2 * 1000 * 1e-9)


@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_behind_a_switch_doubling_is_proven_best_for_few_bytes(ranks: int) -> None:
    topology = SHAPES["switch"](ranks, lambda _: (1e-6, 0.0))
    for collective, name in (
        (allgather(ranks), "recursive-doubling"),
        (reducescatter(ranks), "recursive-halving"),
    ):
        best_s = float(baselines(topology, collective, 1)[name].end_s.max())
        assert bounds_of(Chunked(topology, collective, 1)).any_chunking_s == pytest.approx(best_s)


def test_allreduce_moves_every_chunk_there_and_back() -> None:
    topology = SHAPES["switch"](8, lambda _: (0.0, 1e-9))
    assert bounds_of(Chunked(topology, allreduce(8), 1000)).any_chunking_s == pytest.approx(14 * 1000 * 1e-9)


@pytest.mark.parametrize("collective", [broadcast(5, 3), reduce(5, 3)])
def test_a_line_is_as_slow_as_its_alphas(collective: Collective) -> None:
    topology = SHAPES["line"](5, lambda _: (1e-6, 0.0))
    assert bounds_of(Chunked(topology, collective, 1)).any_chunking_s == pytest.approx(4e-6)


@pytest.mark.parametrize("ranks", [4, 7, 16])
@pytest.mark.parametrize("part_s", [1e-8, 1e-6, 3e-5])
def test_behind_a_switch_rounds_and_bytes_add_up(ranks: int, part_s: float) -> None:
    topology = SHAPES["switch"](ranks, lambda _: (1e-6, 1e-11))
    exact_s = (ranks - 1).bit_length() * 1e-6 + (ranks - 1) * part_s
    for collective in (allgather(ranks), reducescatter(ranks)):
        bound_s = bounds_of(Chunked(topology, collective, round(part_s / 1e-11))).any_chunking_s
        assert 0.96 * exact_s <= bound_s <= exact_s * (1 + 1e-9)


def test_into_how_many_chunks_a_problem_is_cut_does_not_change_its_general_bound() -> None:
    topology = SHAPES["ring"](4, lambda _: (1e-6, 1e-11))
    for build in (allgather, allreduce, reducescatter):
        once, often = (bounds_of(Chunked(topology, build(4, parts), 120_000 // parts)) for parts in (1, 4))
        assert often.any_chunking_s == pytest.approx(once.any_chunking_s)


def test_no_class_has_a_smaller_bound_than_a_wider_one() -> None:
    bounds = bounds_of(Chunked(SHAPES["switch"](8, lambda _: (0.0, 1e-9)), allreduce(8), 1000))
    assert bounds.any_grouping_s >= bounds.any_chunking_s


def test_a_sum_crosses_between_the_sides_of_a_bottleneck() -> None:
    """Pairs of ranks on fast links, joined to a ring by slow ones: every byte crosses between 3 pairs 4 times."""
    pairs = [(0, 1), (2, 3), (4, 5), (1, 2), (3, 4), (5, 0)]
    topology = two_way("pairs", 6, pairs, lambda k: (0.0, 1e-10 if k < 3 else 1e-9))
    crossing_s = any_chunking_sources(Chunked(topology, allreduce(6), 1000), 0.0)["crossing"]
    assert crossing_s == pytest.approx(4 * 6000 * 1e-9 / 6)


def test_a_sum_may_be_one_that_only_flows_to_its_root() -> None:
    """No link leads back, so nothing is known of cuts that everybody's data must cross."""
    links = (Link(1, 0, 1e-6, 1e-9), Link(2, 0, 1e-6, 1e-9))
    problem = Chunked(Topology("inwards", (0, 0, 0), links), reduce(3), 1000)
    halves_take_turns_s = 2 * (1e-6 + 1e-9 * 500)
    assert 0.88 * halves_take_turns_s < bounds_of(problem).any_chunking_s < halves_take_turns_s


def test_lanes_that_work_side_by_side_are_not_bounded_by_the_nic_that_takes_turns() -> None:
    """Of few bytes, alphas on 64 lanes of a NIC overlap, which they don't on the NIC as the machine has it."""
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 63, load_sketch("ndv2-sk-2"))
    assert problem.machine is problem.logical.topology
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0))
    assert result.valid
    assert result.report is not None
    assert bounds_of(problem).any_chunking_s <= result.report.makespan_s * (1 + 1e-9)


@pytest.mark.parametrize("name", ["ndv2-sk-1", "dgx2-sk-1"])
def test_a_sketch_that_only_leaves_links_out_has_the_bounds_of_the_machine(name: str) -> None:
    machine = load_topology(name.partition("-")[0], 2)
    assert Chunked.of(machine, "allgather", 1000, load_sketch(name)).machine is machine
