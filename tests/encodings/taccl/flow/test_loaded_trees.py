"""Loaded trees: their plans replay, load ports nearly as evenly as an exact packing, and end where they promise."""

from __future__ import annotations

import random
from itertools import permutations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rival_networks import rival_networks

from gapless.checker import check
from gapless.encodings.taccl import Chunked, Problem
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.flow.loaded_trees import may_load_trees, plan_on_loaded_trees
from gapless.encodings.taccl.flow.sum_roots import roots_at_once, with_roots
from gapless.encodings.taccl.parameters import Trees
from gapless.ir.collective import allreduce
from gapless.options import SolveOptions
from gapless.topologies.topology import Link, Topology

BRIEF = Trees(rows=4_000, looks=300_000)
NETWORKS = {topology.name: topology for topology in rival_networks()}
SMALL = {name: topology for name, topology in NETWORKS.items() if topology.device_count <= 8}
MB = 10**6


def in_chunks(topology: Topology, collective: str, numbers: tuple[int, ...] = (2, 4)) -> Problem:
    problem = Problem(topology, collective, 64 * MB)
    assert all(may_load_trees(problem.in_chunks(number)) for number in numbers)
    return problem


@pytest.mark.parametrize("collective", ["allgather", "reducescatter"])
@pytest.mark.parametrize("name", SMALL)
def test_plans_replay_and_are_above_the_bound(name: str, collective: str) -> None:
    problem = in_chunks(SMALL[name], collective)
    bounds = bounds_of(problem.coarsest)
    plan = plan_on_loaded_trees((problem.in_chunks(k) for k in (2, 4)), SolveOptions(), bounds, parameters=BRIEF)
    assert plan is not None
    report = check(plan.schedule)
    assert report.valid
    assert report.makespan_s == pytest.approx(plan.end_s)
    assert plan.end_s >= bounds.asked_s * (1 - 1e-9)
    wanted = plan.problem.graph.required
    assert np.array_equal(plan.schedule.graph.required.tensors, wanted.tensors)


@pytest.mark.thorough("one-way-6")
@pytest.mark.parametrize("name", [name for name in NETWORKS if name.startswith("one-way")])
def test_one_way_links_add_up_and_spread_at_once(name: str) -> None:
    """Phase after phase takes 1.2 to 1.9 times the bound, whatever the roots."""
    problem = Problem(NETWORKS[name], "allreduce", 64 * MB)
    bounds = bounds_of(problem.coarsest)
    roots = roots_at_once(bounds, SolveOptions())
    assert roots is not None
    rooted = [with_roots(problem.in_chunks(number), roots.share) for number in (4, 8)]
    work = Trees(rows=6_000)
    plan = plan_on_loaded_trees(rooted, SolveOptions(), bounds, parameters=work, carried=roots.carried)
    assert plan is not None
    report = check(plan.schedule)
    assert report.valid
    assert bounds.asked_s * (1 - 1e-9) <= report.makespan_s <= 1.1 * bounds.asked_s


@examples(16)
@given(ranks=st.integers(3, 5), chance=st.randoms(use_true_random=False), parts=st.integers(1, 2))
def test_random_one_way_networks_replay(ranks: int, chance: random.Random, parts: int) -> None:
    order = chance.sample(range(ranks), ranks)
    pairs = {*zip(order, [*order[1:], order[0]], strict=True)} | {
        pair for pair in permutations(range(ranks), 2) if chance.random() < 0.3
    }
    links = [Link(*pair, chance.randrange(40) * 1e-7, chance.randint(1, 40) * 1e-12) for pair in sorted(pairs)]
    problem = Chunked(Topology("one way", (0,) * ranks, tuple(links)), allreduce(ranks, parts), 10**5)
    bounds = bounds_of(problem)
    roots = roots_at_once(bounds, SolveOptions())
    if roots is not None:
        rooted = with_roots(problem, roots.share)
        plan = plan_on_loaded_trees([rooted], SolveOptions(), bounds, parameters=BRIEF, carried=roots.carried)
        assert plan is not None
        report = check(plan.schedule)
        assert report.valid, report.summary()
        assert bounds.any_grouping_s <= report.makespan_s * (1 + 1e-9)


def test_trees_come_within_a_tenth_of_the_bound_where_ranks_share_ports() -> None:
    problem = in_chunks(SMALL["ports-8"], "allgather", (16,))
    bounds = bounds_of(problem.coarsest)
    plan = plan_on_loaded_trees([problem.in_chunks(16)], SolveOptions(), bounds, parameters=Trees(rows=8_000))
    assert plan is not None
    assert plan.end_s <= 1.1 * bounds.asked_s


def test_nothing_is_put_in_order_that_promises_less_than_the_best() -> None:
    problem = in_chunks(SMALL["ports-6"], "allgather", (2,))
    bounds = bounds_of(problem.coarsest)
    assert plan_on_loaded_trees([problem.in_chunks(2)], SolveOptions(), bounds, limit_s=bounds.asked_s) is None


def test_same_seed_same_plan() -> None:
    problem = in_chunks(SMALL["one-way-6"], "allgather", (2,))
    bounds = bounds_of(problem.coarsest)
    plans = [
        plan_on_loaded_trees([problem.in_chunks(2)], SolveOptions(seed=3), bounds, parameters=BRIEF) for _ in range(2)
    ]
    assert all(plan is not None for plan in plans)
    assert len({plan.schedule.start_s.tobytes() for plan in plans if plan is not None}) == 1
