"""Counts by measured rises of the loss: against all counts, what is taken unasked, and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import share

import gapless
from gapless.challenges.attempts import Verdict
from gapless.challenges.parameters import ChallengeParameters
from gapless.checker import check
from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.problem import problem
from gapless.encodings.chai.solve import solve
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.heads.named import synthetic_profile
from gapless.profiles.heads.profile import HeadProfile, Rises
from gapless.profiles.heads.profile_file import write_head_profile
from gapless.solution import Status


def risen(seed: int) -> HeadProfile:
    """Up to four layers of up to six key heads; rises that needn't fall with the count, some of them unknown."""
    rng = np.random.default_rng(seed)
    layers, key_heads, group = int(rng.integers(1, 5)), int(rng.integers(2, 7)), int(rng.integers(1, 3))
    loss = rng.gamma(0.5, size=(layers, key_heads))
    loss[:, -1] = 0.0
    loss[:, 1:-1][rng.random((layers, key_heads - 2)) < 0.2] = np.nan
    kept = np.zeros((layers, key_heads, key_heads), dtype=np.bool_)
    for layer, place in np.ndindex(layers, key_heads):
        kept[layer, place, rng.permutation(key_heads)[: place + 1]] = True
    profile = synthetic_profile(layers, key_heads * group, key_heads, 16, seed)
    return replace(profile, rises=Rises(loss, kept))


@pytest.mark.parametrize("seed", range(share(300)))
def test_the_rises_are_the_least_of_all_counts(seed: int) -> None:
    profile = risen(seed)
    assert profile.rises is not None
    saving = float(np.random.default_rng(seed).uniform(0, 0.5 * (1 - 1 / profile.key_heads)))
    asked = problem(profile, saving)
    assert asked.distance == "loss"
    plan = solve(asked, SolveOptions())
    rises = profile.rises.filled
    counts = itertools.product(range(1, profile.key_heads + 1), repeat=profile.layers)
    least = min(
        sum(rises[range(profile.layers), np.array(each) - 1]) for each in counts if sum(each) <= asked.most_kept
    )
    assert plan.solution.status is Status.OPTIMAL
    assert plan.solution.objective == plan.solution.bound == pytest.approx(least, rel=1e-9, abs=1e-12)
    assert plan.schedule is not None
    assert check(plan.schedule).valid


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", ["exact", "uniform"])
def test_the_error_is_the_sum_of_the_rises_of_the_profiles_own_heads(seed: int, method: str) -> None:
    profile = risen(seed)
    assert profile.rises is not None
    asked = problem(profile, 0.2 if profile.key_heads > 2 else 0.1, method=method)
    plan = solve(asked, SolveOptions())
    details = plan.details
    interpolated = 0
    for layer, (kept, rise) in enumerate(zip(details["kept"], details["rises"], strict=True)):
        assert tuple(kept) == profile.rises.heads(layer)[len(kept) - 1]
        assert rise == profile.rises.filled[layer, len(kept) - 1]
        interpolated += bool(np.isnan(profile.rises.loss[layer, len(kept) - 1]))
    assert details["interpolated"] == interpolated
    assert sum(details["rises"]) == pytest.approx(plan.solution.objective)
    of_output = HeadMap.of(details["kept"], profile, "output")
    assert np.array_equal(of_output.representative, details["representatives"])
    other = details["baselines"]["uniform" if method == "exact" else "exact"]["error"]
    assert (plan.solution.objective <= other) if method == "exact" else (plan.solution.objective >= other)
    assert set(details["baseline_fronts"]) == {"uniform"}


@pytest.mark.parametrize(
    ("others", "distance"),
    [
        ({}, "loss"),
        ({"method": "uniform"}, "loss"),
        ({"method": "elbow"}, "output"),
        ({"method": "random"}, "output"),
        ({"swaps": 2, "model": "m", "calibration": "c"}, "output"),
        ({"distance": "scores"}, "scores"),
    ],
)
def test_rises_are_taken_unasked_where_they_are_known_for_the_question(others: dict[str, Any], distance: str) -> None:
    assert problem("small-lm", 0.2, **others).distance == distance


def test_a_profile_without_rises_is_asked_by_output() -> None:
    assert problem("synthetic:layers=2,heads=4", 0.2).distance == "output"


@pytest.mark.parametrize(
    ("profile", "others", "message"),
    [
        (
            "synthetic:layers=2,heads=4",
            {},
            "loss needs rises .* measure it again with `gapless profile heads`, or take",
        ),
        ("small-lm", {"method": "elbow"}, "loss is not measured for the heads of elbow; take output or scores"),
        ("small-lm", {"swaps": 1, "model": "m", "calibration": "c"}, "not measured for the heads of swaps"),
    ],
)
def test_rises_that_are_not_known_are_refused(profile: str, others: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        problem(profile, 0.2, distance="loss", **others)
    assert str(raised.value).startswith("distance: ")


def test_other_rises_are_another_question() -> None:
    profile = risen(3)
    assert profile.rises is not None
    other = replace(profile, rises=replace(profile.rises, loss=profile.rises.loss * 2))
    digests = {problem(each, 0.1).description["distances_sha256"] for each in (profile, other)}
    assert len(digests) == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_challenge_compares_methods_by_the_measure_of_the_plan(seed: int, tmp_path: Path) -> None:
    """`auto` is the output for methods without measured rises: a bound in that measure says nothing of the loss."""
    write_head_profile(tmp_path / "heads.npz", risen(seed))
    result = gapless.chai.solve(str(tmp_path / "heads.npz"), kv_saving=0.0)
    assert result.problem.distance == "loss"
    report = result.challenge(parameters=ChallengeParameters(work=5, seeds=1))
    assert report.verdict != "refuted", report.text
    assert {each.name for each in report.attempts if each.verdict is Verdict.NOT_ASKED} >= {
        "--method elbow", "--method random"
    }  # fmt: skip
