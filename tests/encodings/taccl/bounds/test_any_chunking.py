"""The bound for any chunks: known values, and never above what an exhaustive search finds for whole chunks."""

from __future__ import annotations

import pytest
from exact import best_makespan_s
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from shapes import SHAPES, single_nodes

from gapless.collective import Collective, allgather, allreduce, broadcast, reduce, reducescatter
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.baselines import baselines
from gapless.encodings.taccl.bounds.bounds import bounds_of

COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=6, max_size=6)


@pytest.mark.parametrize("shape", sorted(SHAPES))
@examples(15)
@given(costs=COSTS)
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
