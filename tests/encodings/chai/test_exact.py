"""The exact method against all choices of kept heads; its figures; what proves a count."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from examples import share

from gapless.checker import check
from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.problem import Problem, problem
from gapless.encodings.chai.solve import solve
from gapless.methods.medians import exchanged, guessed, price_bounds, proven, ranked
from gapless.options import Deadline, SolveOptions
from gapless.profiles.heads.profile import HeadProfile
from gapless.solution import Status
from gapless.system import Plan


def some_profile(seed: int) -> HeadProfile:
    """Up to three layers of up to five heads of which up to two share keys, at distances that are no metric."""
    rng = np.random.default_rng(seed)
    layers, key_heads, group = int(rng.integers(1, 4)), int(rng.integers(2, 6)), int(rng.integers(1, 3))
    heads = key_heads * group
    distances = rng.gamma(0.5, size=(2, layers, heads, heads)) * (1 - np.eye(heads))
    return HeadProfile("random", *distances, key_heads, 16, 1000, 1)


def least_error(asked: Problem) -> float:
    """By looking at every choice of kept heads in every layer, and at every layer's count."""
    key_heads = range(asked.profile.key_heads)
    by_count = []
    for cost in asked.cost:
        sets = {k: itertools.combinations(key_heads, k) for k in range(1, len(key_heads) + 1)}
        by_count.append({k: min(cost[:, list(each)].min(axis=1).sum() for each in sets[k]) for k in sets})
    counts = itertools.product(*by_count)
    return min(
        sum(by_count[layer][k] for layer, k in enumerate(each)) for each in counts if sum(each) <= asked.most_kept
    )


@pytest.mark.parametrize("seed", range(share(300)))
def test_the_error_is_the_least_of_all_choices(seed: int) -> None:
    profile = some_profile(seed)
    saving = float(np.random.default_rng(seed).uniform(0, 0.5 * (1 - 1 / profile.key_heads)))
    asked = Problem(profile, saving, ("output", "scores")[seed % 2])
    plan = solve(asked, SolveOptions())
    assert plan.solution.status is Status.OPTIMAL
    assert plan.solution.objective == pytest.approx(least_error(asked), rel=1e-9, abs=1e-12)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    assert map_in(plan).error(profile.distance(asked.distance)) == plan.solution.objective


def map_in(plan: Plan) -> HeadMap:
    return HeadMap(tuple(map(tuple, plan.details["kept"])), np.array(plan.details["representatives"]))


def test_the_front_is_what_single_solves_give() -> None:
    profile = some_profile(5)
    front = solve(Problem(profile, 0.0), SolveOptions()).details["front"]
    assert front[0] == [0.0, 0.0]
    for saving, error in front:
        assert solve(Problem(profile, saving), SolveOptions()).solution.objective == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_exchanges_are_never_better_than_what_is_proven(seed: int) -> None:
    cost = some_profile(seed).output[0]
    guess = guessed(cost)
    found = proven(cost, guess, Deadline(SolveOptions()))
    assert [len(each) for each in exchanged(cost)] == list(range(1, len(cost) + 1))
    assert (found.errors <= guess.errors).all()
    assert found.bounds == pytest.approx(found.errors, rel=1e-6)


def test_without_time_there_is_a_plan_and_a_bound() -> None:
    asked = problem("synthetic:layers=3,heads=8", 0.3)
    plan = solve(asked, SolveOptions(time_limit_s=1e-9))
    claim = plan.solution
    assert claim.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert claim.bound is not None
    assert claim.objective is not None
    assert claim.bound <= claim.objective
    assert plan.schedule is not None


def test_the_papers_saving_is_18_3_clusters_of_32() -> None:
    asked = problem("synthetic:layers=32,heads=32", 0.214)
    assert asked.most_kept / 32 == pytest.approx(18.3, abs=0.05)
    saved = 1 - asked.cache_bytes(asked.most_kept) / asked.full_cache_bytes
    assert saved == pytest.approx(0.214, abs=5e-4)


def test_keys_alone_save_less_than_half_and_llama_7b_s_cache_is_1_07_gb() -> None:
    asked = problem("synthetic:layers=32,heads=32,dimension=128", 0.0, context=2048)
    assert asked.most_saving == pytest.approx(0.484, abs=5e-4)
    assert asked.full_cache_bytes == pytest.approx(1.07e9, rel=5e-3)


def test_more_than_that_is_infeasible() -> None:
    plan = solve(problem("synthetic:layers=4,heads=8", 0.44), SolveOptions())
    assert (plan.solution.status, plan.schedule) == (Status.INFEASIBLE, None)
    assert solve(problem("synthetic:layers=4,heads=8", 0.4375), SolveOptions()).schedule is not None


def test_with_grouped_queries_a_head_uses_the_nearest_of_a_kept_key_head() -> None:
    asked = Problem(some_profile(1), 0.2)
    profile, cost = asked.profile, asked.cost
    assert profile.group == 2
    for layer, head, key_head in itertools.product(
        range(profile.layers), range(profile.heads), range(profile.key_heads)
    ):
        members = [key_head * 2, key_head * 2 + 1]
        assert cost[layer, head, key_head] == min(profile.output[layer, head, members])
    chosen = HeadMap.of([[0]] * profile.layers, profile, "output")
    assert set(chosen.representative.ravel().tolist()) <= {0, 1}
    assert chosen.error(profile.output) == pytest.approx(math.fsum(cost[:, :, 0].ravel()))


@pytest.mark.parametrize("seed", range(share(100)))
def test_prices_bound_the_error_of_every_count(seed: int) -> None:
    cost = np.array(Problem(some_profile(seed), 0.0).cost)
    errors = np.array([guessed(each).errors for each in cost])
    price = float(np.random.default_rng(seed).gamma(1.0))
    bounds = price_bounds(cost, errors, price, 50, Deadline(SolveOptions()))
    for each, row in zip(cost, bounds, strict=True):
        for count in range(1, len(each.T) + 1):
            sets = itertools.combinations(range(len(each.T)), count)
            least = min(each[:, list(kept)].min(axis=1).sum() for kept in sets)
            assert row[count - 1] <= least * (1 + 1e-9) + 1e-12


def test_prices_leave_little_to_prove() -> None:
    plan = solve(problem("synthetic:layers=16,heads=16", 0.214), SolveOptions(gap=1e-3))
    assert plan.solution.gap is not None
    assert plan.solution.gap <= 1e-3
    assert plan.details["milps"] == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_ranking_gives_heads_for_every_count(seed: int) -> None:
    for cost in Problem(some_profile(seed), 0.0).cost:
        found = ranked(cost)
        assert [len(kept) for kept in found.kept] == list(range(1, cost.shape[1] + 1))
        for kept, error in zip(found.kept, found.errors, strict=True):
            assert error == pytest.approx(cost[:, list(kept)].min(axis=1).sum())
