"""Plans of caches: baselines beside them, what is refused, what replays."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gapless
from gapless.checker import check
from gapless.encodings.cache.decision import CacheDecision
from gapless.encodings.cache.lowering import to_schedule
from gapless.encodings.cache.problem import problem
from gapless.encodings.cache.question import METHODS, UNIFORM
from gapless.encodings.cache.solve import cost, solve
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.options import SolveOptions
from gapless.solution import Status

PROFILE = "synthetic:layers=3,heads=4,dimension=64"


@pytest.mark.parametrize("method", METHODS)
def test_no_baseline_is_better_than_the_plan(method: str) -> None:
    asked = problem(PROFILE, cache="0.7x", method=method)
    plan = solve(asked, SolveOptions(seed=3))
    assert plan.solution.objective is not None
    assert plan.solution.bound is not None
    assert plan.solution.objective >= plan.solution.bound
    for name, row in plan.details["baselines"].items():
        if method == "exact" and row["fits"]:
            assert row["error"] >= plan.solution.objective, name
    assert plan.schedule is not None
    assert check(plan.schedule).valid


def test_a_baseline_that_takes_more_bytes_has_no_plan() -> None:
    plan = solve(problem(PROFILE, cache="0.2x", method="int8"), SolveOptions())
    assert plan.solution.status is Status.NO_SOLUTION
    assert plan.schedule is None


@pytest.mark.parametrize("seed", range(5))
def test_drawn_modes_fit_into_the_least_bytes(seed: int) -> None:
    least = solve(problem(PROFILE, cache="0.01x"), SolveOptions()).details["least_bytes"]
    plan = solve(problem(PROFILE, cache=least, method="random"), SolveOptions(seed=seed))
    assert plan.details["cache_bytes"] == least


@pytest.mark.parametrize("method", ["exact", "int4"])
def test_without_time_there_is_a_plan_within_its_bytes_and_a_bound(method: str) -> None:
    asked = problem(PROFILE, cache="0.5x", method=method)
    best, options = solve(replace(asked, method="exact"), SolveOptions()).solution, SolveOptions()
    options.stop.set()
    plan = solve(asked, options)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    assert plan.solution.bound is not None
    assert plan.solution.objective is not None
    assert best.objective is not None
    assert 0.9 * best.objective <= plan.solution.bound <= best.objective * (1 + 1e-9)
    assert plan.solution.objective >= best.objective * (1 - 1e-9)
    assert plan.details["baselines"] == {}
    assert plan.details["front"] == []


def test_the_best_so_far_is_offered_before_the_exact_choice() -> None:
    offers: list[float] = []
    asked = problem(PROFILE, cache="0.3x")
    plan = solve(asked, SolveOptions(on_plan=lambda error, make: offers.append(error)))
    assert offers[0] >= offers[-1] == plan.solution.objective
    assert len(offers) > 1


def test_too_few_bytes_are_infeasible_and_the_least_is_said() -> None:
    least = solve(problem(PROFILE, cache="0.01x"), SolveOptions()).details["least_bytes"]
    assert solve(problem(PROFILE, cache=least), SolveOptions()).solution.status is Status.OPTIMAL
    assert solve(problem(PROFILE, cache=least - 1), SolveOptions()).solution.status is Status.INFEASIBLE


def test_sharing_alone_saves_keys_only() -> None:
    plan = solve(problem(PROFILE, cache="0.7x", modes="sharing"), SolveOptions())
    assert isinstance(plan.decision, CacheDecision)
    assert all(set(layer.values) == {"full"} and not layer.window for layer in plan.decision.layers)


def test_a_uniform_format_takes_what_its_formula_says() -> None:
    asked = problem(PROFILE, cache="1x", tokens=2048, method="int4")
    plan = solve(asked, SolveOptions())
    # 2048 tokens: 32 in full, 2016 in 4 bits; a scale and a least value for 32 tokens, or for 32 channels.
    head = 32 * 64 * 2 + 2016 * 64 // 2 + 2016 * 64 // 32 * 4
    assert plan.details["cache_bytes"] == 2 * 3 * 4 * head
    assert METHODS[1 : 1 + len(UNIFORM)] == UNIFORM


def test_a_plan_that_uses_shared_keys_does_not_replay() -> None:
    asked = problem(PROFILE, cache="0.7x", modes="sharing")
    plan = solve(asked, SolveOptions())
    assert isinstance(plan.decision, CacheDecision)
    modes = list(plan.decision.layers)
    layer = next(number for number, each in enumerate(modes) if "shared" in each.keys)
    modes[layer] = replace(modes[layer], representatives=(0, 1, 2, 3))
    assert "input-missing" in {each.rule.value for each in check(to_schedule(asked, modes)).violations}


def test_a_byte_too_many_is_over_the_budget() -> None:
    asked = problem(PROFILE, cache="0.3x")
    chosen = solve(asked, SolveOptions()).decision
    assert isinstance(chosen, CacheDecision)
    tight = replace(asked, cache_bytes=asked.bytes_of(chosen.layers) - 1)
    assert "budget-exceeded" in {each.rule.value for each in check(to_schedule(tight, chosen.layers)).violations}


def test_a_saved_plan_costs_what_it_was_charged(tmp_path: object) -> None:
    plan = gapless.cache.solve(PROFILE, cache="0.25x")
    plan.save(f"{tmp_path}/plan.json")
    saved = read_plan(f"{tmp_path}/plan.json")
    asked = problem(PROFILE, cache="0.25x")
    assert cost(asked, saved, check(saved.schedule)) == pytest.approx(plan.solution.objective)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cache": "0.5x", "modes": "formats,bits"}, "modes"),
        ({"cache": "0.5x", "modes": "sharing", "method": "int4"}, "modes: must have formats"),
        ({"cache": "much"}, "cache"),
        ({"cache": "0.5x", "tokens": 0}, "tokens"),
    ],
)
def test_what_cannot_be_asked_is_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        problem(PROFILE, **values)
