"""Matching: trees that reach every rank, sets entered once, and no clock taken twice."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rails import rails
from shapes import SHAPES, pairs_of_nodes

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.flow.matching import match
from gapless.encodings.taccl.symmetry.quotient import quotient_problem
from gapless.encodings.taccl.symmetry.rotations import no_rotations
from gapless.ir.collective import allgather

COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=8, max_size=8)


@examples(15)
@pytest.mark.parametrize("shape", sorted(SHAPES))
@given(costs=COSTS, seed=st.integers(0, 3), one_at_a_time=st.booleans())
def test_every_rank_gets_every_chunk_once_from_one_that_has_it(
    shape: str, costs: list[tuple[int, int]], seed: int, one_at_a_time: bool
) -> None:
    topology = SHAPES[shape](4, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked(topology, allgather(4, 2), 100_000)
    quotient = quotient_problem(problem, no_rotations(topology))
    matched = match(quotient, [], seed=seed, one_at_a_time=one_at_a_time)
    assert matched is not None
    found, start_s = matched
    target = topology.link_target[found.link]
    reached = set(zip(found.chunk.tolist(), target.tolist(), strict=True))
    assert len(reached) == len(found.chunk) == 8 * 3
    for row, parent in enumerate(found.parent.tolist()):
        source = topology.link_source[found.link[row]]
        if parent < 0:
            assert source == quotient.owner[found.chunk[row]]
        else:
            assert (found.chunk[parent], target[parent]) == (found.chunk[row], source)
            ended_s = start_s[parent] + problem.duration_s[found.link[parent]]
            assert start_s[row] >= ended_s - 1e-15


def test_a_bottleneck_set_is_entered_once_unless_ports_may_be_used_again() -> None:
    topology = pairs_of_nodes(2, lambda k: (1e-6, (4e-10, 1e-10)[k]))
    quotient = quotient_problem(Chunked(topology, allgather(4), 10**6), no_rotations(topology))
    sets = [(0, 1), (2, 3)]
    once, again = match(quotient, sets), match(quotient, sets, spare_until_s=1.0)
    assert once is not None
    assert again is not None
    assert topology.is_inter_node[once[0].link].sum() == 4
    assert topology.is_inter_node[again[0].link].sum() > 4


def test_bottleneck_sets_that_would_leave_a_rank_out_are_entered_again() -> None:
    topology = rails(2, 2)
    quotient = quotient_problem(Chunked(topology, allgather(4), 1000), no_rotations(topology))
    local = [[link for link in links if topology.is_inter_node[link]] for links in quotient.links_of]
    local[0] = quotient.links_of[0]
    object.__setattr__(quotient, "links_of", local)  # ranks 2 and 3 are joined by their rails alone
    found = match(quotient, [(0, 1), (2, 3)])
    assert found is None or len(np.unique(found[0].chunk)) == 4
