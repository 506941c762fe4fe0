"""Directed trees: an ALLREDUCE on one-way links replays, and comes near the bound that phases in turn miss."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rival_networks import rival_networks
from shapes import even, line

from gapless.checker import check
from gapless.encodings.taccl import Chunked, Problem
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.flow.trees.directed_trees import plan_on_directed_trees
from gapless.encodings.taccl.flow.trees.sum_roots import root_shares, roots_at_once
from gapless.encodings.taccl.parameters import Trees
from gapless.ir.collective import allreduce
from gapless.options import SolveOptions
from gapless.topologies.topology import Link, Topology

BRIEF = Trees(rows=6_000)
NETWORKS = {topology.name: topology for topology in rival_networks() if topology.name.startswith("one-way")}
MB = 10**6


def planned(problem: Problem, numbers: tuple[int, ...], seed: int = 0) -> tuple[Candidate | None, Bounds]:
    bounds, options = bounds_of(problem.coarsest), SolveOptions(seed=seed)
    problems = [problem.in_chunks(number) for number in numbers]
    roots = roots_at_once(bounds, options)
    return plan_on_directed_trees(problems, roots, options, bounds, parameters=BRIEF), bounds


@pytest.mark.thorough(but=("one-way-6",))
@pytest.mark.parametrize("name", NETWORKS)
def test_one_way_links_add_up_and_spread_at_once(name: str) -> None:
    """Phase after phase takes up to 1.26 times the bound, whatever the roots."""
    plan, bounds = planned(Problem(NETWORKS[name], "allreduce", 64 * MB), (2, 4, 8))
    assert plan is not None
    report = check(plan.schedule)
    assert report.valid
    assert bounds.asked_s * (1 - 1e-9) <= report.makespan_s <= 1.1 * bounds.asked_s


@examples(16)
@given(ranks=st.integers(3, 5), chance=st.randoms(use_true_random=False), parts=st.integers(1, 2))
def test_random_one_way_networks_replay(ranks: int, chance: random.Random, parts: int) -> None:
    order = chance.sample(range(ranks), ranks)
    ring = set(zip(order, [*order[1:], order[0]], strict=True))
    pairs = ring | {pair for pair in permutations(range(ranks), 2) if chance.random() < 0.3}
    links = [Link(*pair, chance.randrange(40) * 1e-7, chance.randint(1, 40) * 1e-12) for pair in sorted(pairs)]
    problem = Chunked(Topology("one way", (0,) * ranks, tuple(links)), allreduce(ranks, parts), 10**5)
    bounds = bounds_of(problem)
    roots = roots_at_once(bounds, SolveOptions())
    plan = plan_on_directed_trees([problem], roots, SolveOptions(), bounds, parameters=BRIEF)
    assert (plan is None) == (not roots)
    if plan is not None:
        report = check(plan.schedule)
        assert report.valid, report.summary()
        assert bounds.any_grouping_s <= report.makespan_s * (1 + 1e-9)


def test_ports_hold_on_links_unlike_in_both_directions() -> None:
    links = [
        Link(one, other, 1e-6, (1 + one) * 1e-11, (one, 4 + other))
        for one, other in permutations(range(4), 2)
        if abs(one - other) != 2
    ]
    names = tuple(f"rank{rank}:{side}" for side in ("out", "in") for rank in range(4))
    plan, bounds = planned(Problem(Topology("ports", (0,) * 4, tuple(links), names), "allreduce", MB), (1, 2))
    assert plan is not None
    assert check(plan.schedule).valid
    assert plan.end_s >= bounds.asked_s * (1 - 1e-9)


def test_nothing_is_put_in_order_that_promises_less_than_the_best() -> None:
    problem = Problem(NETWORKS["one-way-6"], "allreduce", 64 * MB)
    bounds, options = bounds_of(problem.coarsest), SolveOptions()
    roots = roots_at_once(bounds, options)
    assert roots
    assert plan_on_directed_trees([problem.in_chunks(2)], roots, options, bounds, limit_s=bounds.asked_s) is None
    assert plan_on_directed_trees([problem.in_chunks(2)], [], options, bounds) is None


def test_spread_roots_take_as_long_as_those_in_the_middle() -> None:
    topology = line(5, even)
    rate_s = topology.beta_s_per_byte
    middle, spread = (root_shares(topology, rate_s, SolveOptions(), True, are_spread) for are_spread in (False, True))
    assert middle is not None
    assert spread is not None
    assert spread.time_s == pytest.approx(middle.time_s, rel=1e-3)
    assert middle.share == pytest.approx([0, 0, 1, 0, 0], abs=1e-5)
    assert spread.share == pytest.approx([0.2] * 5, abs=1e-5)


def test_same_seed_same_plan() -> None:
    problem = Problem(NETWORKS["one-way-6"], "allreduce", MB)
    plans = [planned(problem, (1, 2), seed=3)[0] for _ in range(2)]
    assert len({plan.schedule.start_s.tobytes() for plan in plans if plan is not None}) == 1
