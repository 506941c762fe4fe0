"""Paths: from owner to target, and spread over resources."""

from __future__ import annotations

import numpy as np
from rails import rails
from shapes import two_way

from gapless.collective import Collective, alltoall
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
