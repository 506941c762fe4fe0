"""Drift: old boundaries carry more load; how often new ones pay. Boundaries for later steps."""

from __future__ import annotations

import numpy as np
import pytest

import gapless
from gapless.encodings.oktopk.allreduce.network import Network, flat_topology
from gapless.encodings.oktopk.comparison import drift_of, renewal_steps
from gapless.profiles.sparsity.index_file import find_index_sets
from gapless.profiles.sparsity.index_sets import index_sets

NETWORK = Network(flat_topology(8, 1e9, 1e-6))


def test_load_grows_with_age_where_layers_drift() -> None:
    drift = drift_of(find_index_sets("drifting:elements=40000,steps=6,drift=0.3", 8, 0.02), NETWORK)
    exact = drift["exact"]
    assert exact[0] == pytest.approx(1.0, abs=0.02)
    assert exact[-1] > exact[1] > exact[0]
    assert all(ours <= theirs for ours, theirs in zip(exact[:1], drift["averaged"][:1], strict=True))


def test_renewal_weighs_what_boundaries_cost_and_what_old_ones_do() -> None:
    assert renewal_steps([1.0, 2.0, 3.0], 0.0) == 1
    assert renewal_steps([1.0, 1.0, 1.0], 0.5) == 3
    ratios, cost = [1.0, 1.02, 1.1, 1.2, 1.5], 0.1
    means = [(cost + sum(ratios[:steps])) / steps for steps in range(1, 6)]
    assert renewal_steps(ratios, cost) == int(np.argmin(means)) + 1


def later_ratios(kind: str, held_out: int) -> dict[str, float]:
    """The mean of the later steps, by rule."""
    found = gapless.oktopk.solve(kind, ranks=8, density=0.01, held_out=held_out)
    return {name: ratios["mean"] for name, ratios in found.details["later_ratio"].items()}


def test_more_recorded_steps_make_better_boundaries_for_later_ones() -> None:
    ratios = {steps: later_ratios(f"clustered:elements=20000,steps={steps + 1}", 1) for steps in (1, 2, 3, 8)}
    assert ratios[8]["plan"] < min(ratios[steps]["plan"] for steps in (1, 2, 3))
    assert ratios[8]["plan"] < 0.8 * ratios[8]["averaged"]
    assert all(one["plan"] < 0.5 * one["even"] for one in ratios.values())


def test_they_follow_a_jump_and_not_the_steps_before() -> None:
    random = np.random.default_rng(5)
    halves = [0] * 6 + [500] * 6
    steps = [[half + np.sort(random.choice(500, 40, replace=False)) for _ in range(4)] for half in halves]
    sets = index_sets(steps, 1000)
    plan = gapless.oktopk.solve(sets, held_out=3)
    assert min(plan.details["cuts"][1:]) > 500
    assert plan.details["later_ratio"]["plan"]["mean"] < 1.3


def test_the_averaged_rule_is_taken_where_it_was_the_best_in_the_recorded_steps() -> None:
    """Entries anywhere: no boundaries are wrong, and those of the averaged rule happen to be the luckiest."""
    plan = gapless.oktopk.solve("uniform:elements=2000,steps=12", ranks=4, density=0.01, held_out=4)
    assert plan.details["later_ratio"]["plan"] == plan.details["later_ratio"]["averaged"]
