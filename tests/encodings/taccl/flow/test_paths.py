"""Paths: from owner to target, and spread over resources."""

from __future__ import annotations

import numpy as np
import pytest
from rails import rails
from shapes import two_way

from gapless.collective import Collective, alltoall, sendrecv
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.flow.paths import busiest_s, route_paths
from gapless.encodings.taccl.symmetry.quotient import quotient_problem


def test_paths_lead_from_owner_to_target() -> None:
    topology = rails(3, 4)
    problem = Chunked(topology, alltoall(12), 10**6)
    quotient = quotient_problem(problem)
    routes = route_paths(quotient, problem.occupancy_s)
    for chunk in range(len(quotient.chunks)):
        links = routes.link[routes.chunk == chunk]
        assert topology.link_source[links[0]] == quotient.owner[chunk]
        assert (topology.link_target[links[:-1]] == topology.link_source[links[1:]]).all()
        assert quotient.wanted[chunk, topology.link_target[links[-1]]]
    assert (routes.parent[np.flatnonzero(np.diff(routes.chunk, prepend=-1))] == -1).all()


def test_chunks_for_one_rank_share_out_over_equal_paths() -> None:
    topology = two_way("diamond", 4, [(0, 1), (0, 2), (1, 3), (2, 3)], lambda _: (0.0, 1e-10))
    sent = Collective("four", 4, 4, ((0, 1, 2, 3), (), (), ()), ((), (), (), (0, 1, 2, 3)))
    problem = Chunked(topology, sent, 10**6)
    quotient = quotient_problem(problem)
    routing = route_paths(quotient, problem.occupancy_s)
    assert busiest_s(quotient, routing, problem.occupancy_s) == 2 * problem.occupancy_s[0]


@pytest.mark.parametrize("seed", range(20))
def test_a_chunk_that_is_alone_takes_a_shortest_path(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ring = [(rank, (rank + 1) % 9) for rank in range(9)]
    more = [tuple(rng.choice(9, 2, replace=False).tolist()) for _ in range(seed)]
    pairs = list(dict.fromkeys(tuple(sorted(pair)) for pair in [*ring, *more]))
    alpha_s = (1e-6 * rng.integers(1, 30, len(pairs))).tolist()
    topology = two_way("random", 9, pairs, lambda k: (alpha_s[k], 1e-12))
    problem = Chunked(topology, sendrecv(9, 1, 0, 4), 10**3)
    routing = route_paths(quotient_problem(problem), problem.occupancy_s)
    assert problem.duration_s[routing.link].sum() == pytest.approx(problem.earliest_s[0, 4])
