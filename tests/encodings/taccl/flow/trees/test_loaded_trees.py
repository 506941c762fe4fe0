"""Loaded trees: their plans replay, load ports nearly as evenly as an exact packing, and end where they promise."""

from __future__ import annotations

import numpy as np
import pytest
from rival_networks import rival_networks

from gapless.checker import check
from gapless.encodings.taccl import Problem
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.flow.trees.loaded_trees import may_load_trees, plan_on_loaded_trees
from gapless.encodings.taccl.parameters import Trees
from gapless.options import SolveOptions
from gapless.topologies.topology import Topology

BRIEF = Trees(rows=4_000, looks=300_000)
SMALL = {topology.name: topology for topology in rival_networks() if topology.device_count <= 8}
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
