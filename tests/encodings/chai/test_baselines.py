"""Baselines: within the budget, never better than the least error, and k-means from distances alone."""

from __future__ import annotations

import numpy as np
import pytest
from examples import share

from gapless.encodings.chai.clusters import k_means
from gapless.encodings.chai.methods import Baselines
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.problem import Problem, problem
from gapless.encodings.chai.solve import solve
from gapless.methods.medians import guessed
from gapless.options import SolveOptions
from gapless.profiles.heads.profile import HeadProfile


def baselines_of(asked: Problem, seed: int = 0) -> Baselines:
    return Baselines(asked, tuple(guessed(cost) for cost in asked.cost), Parameters(), seed)


@pytest.mark.parametrize("profile", ["synthetic:layers=3,heads=8", "synthetic:layers=3,heads=8,key_heads=4,seed=2"])
@pytest.mark.parametrize("saving", [0.0, 0.1, 0.3, 0.37])
def test_they_keep_the_budget_and_are_never_better(profile: str, saving: float) -> None:
    asked = problem(profile, saving)
    least = solve(asked, SolveOptions()).solution.objective
    assert least is not None
    for name, each in baselines_of(asked).within(asked.most_kept).items():
        assert asked.profile.layers <= each.counts.sum() <= asked.most_kept, name
        assert each.error(asked.profile.output) >= least - 1e-12
        assert all(
            head // asked.profile.group in kept
            for kept, row in zip(each.kept, each.representative.tolist(), strict=True)
            for head in row
        )


def test_uniform_counts_differ_by_one_at_most() -> None:
    asked = problem("synthetic:layers=5,heads=8", 0.3)
    found = baselines_of(asked).uniform(17)
    assert found.counts.tolist() == [4, 4, 3, 3, 3]
    assert (baselines_of(asked, 1).random(17).counts == found.counts).all()


def test_a_seed_draws_the_same_heads() -> None:
    asked = problem("synthetic:layers=5,heads=8", 0.3)
    first, again, other = (baselines_of(asked, seed).random(17).kept for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("seed", range(share(20)))
def test_k_means_from_distances_is_that_of_the_points(seed: int) -> None:
    """A fixed point of Lloyd's algorithm: each point is with the nearest of the clusters' centres."""
    points = np.random.default_rng(seed).normal(size=(9, 4))
    apart = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    owner = k_means(apart, 3, 100)
    clusters = np.unique(owner)
    centres = np.array([points[owner == cluster].mean(axis=0) for cluster in clusters])
    nearest = ((points[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert (clusters[nearest] == owner).all()


def test_the_elbow_stops_where_the_error_does_not_fall_any_more() -> None:
    """Four heads that all differ by as much, and two pairs of equal ones."""
    differ, pairs = 1.0 - np.eye(4), np.kron(1.0 - np.eye(2), np.ones((2, 2)))
    scores = np.array([differ, pairs])
    asked = Problem(HeadProfile("pairs", scores, scores, 4, 8, 100, 1), 0.125)
    assert asked.most_kept == 6
    found = baselines_of(asked).elbow(6)
    assert found.counts.tolist() == [4, 2]
    assert found.representative[1].tolist() in ([0, 0, 2, 2], [1, 1, 3, 3])
