"""The exact choice of modes against all choices there are, and against a bound that knows nothing of fronts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from examples import share

from gapless.checker import check
from gapless.encodings.cache.choice import Options, options_of
from gapless.encodings.cache.decision import CacheDecision
from gapless.encodings.cache.problem import Problem
from gapless.encodings.cache.question import KINDS
from gapless.encodings.cache.solve import solve
from gapless.options import SolveOptions
from gapless.profiles.cache.layout import FORMATS, Layout
from gapless.profiles.cache.modes import LayerModes
from gapless.profiles.cache.profile import CacheProfile
from gapless.solution import Status


def some_profile(rng: np.random.Generator) -> CacheProfile:
    """Up to two layers of up to two key heads, whose errors follow no rule."""
    layers, key_heads, group = int(rng.integers(1, 3)), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    layout = Layout(
        8 * int(rng.integers(1, 3)), int(rng.choice([4, 8])), int(rng.integers(1, 9)), int(rng.integers(0, 4))
    )
    windows = tuple(sorted({int(each) for each in rng.integers(layout.recent, 40, size=rng.integers(0, 3))}))
    counts = tuple(range(1, key_heads))
    rows = np.zeros((layers, len(counts), key_heads * group), dtype=np.int64)
    for layer, place in np.ndindex(layers, len(counts)):
        rows[layer, place] = rng.permutation(key_heads)[0] * group + rng.integers(0, group, key_heads * group)
        rows[layer, place, :group] = rows[layer, place, 0]
    errors = [rng.gamma(0.3, size=(2, layers, *shape)) for shape in ((2, 4), (len(windows),), (len(counts),))]
    output = rng.gamma(0.3, size=(layers, 2, key_heads, 4)) * rng.integers(0, 2)
    return CacheProfile(
        "random", layout, key_heads * group, key_heads, 1000, 1, 64, errors[0], output, windows, errors[1], counts,
        rows, errors[2],
    )  # fmt: skip


def some_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    modes = tuple(kind for kind in KINDS if rng.random() < 0.8) or KINDS
    rest = {"tokens": int(rng.integers(1, 64)), "batch": int(rng.integers(1, 3)), "modes": modes}
    profile, measure = some_profile(rng), ("divergence", "loss")[seed % 2]
    full = Problem(profile, 1, measure=measure, **rest).full_bytes
    return Problem(profile, int(full * rng.uniform(0.1, 1.1)), measure=measure, **rest)


def all_modes(asked: Problem, layer: int) -> list[LayerModes]:
    """Every mode of a layer that is offered, put together without the options' own code."""
    profile, formats = asked.profile, FORMATS if "formats" in asked.modes else ("full",)
    windows = [0, *(profile.windows if "windows" in asked.modes else ())]
    full = asked.full[0]
    shared = [full]
    if "sharing" in asked.modes:
        rows = [tuple(row) for row in profile.representatives[layer].tolist()]
        shared += [full.sharing(profile.kept(layer, place), row) for place, row in enumerate(rows)]
    found = []
    for window, each in itertools.product(windows, shared):
        keys = [formats if head in each.kept else ("shared",) for head in range(profile.key_heads)]
        for names in itertools.product(*keys, *[formats] * profile.key_heads):
            cut = profile.key_heads
            found.append(LayerModes(window, names[:cut], names[cut:], each.representatives))
    return found


def least_error(asked: Problem) -> float:
    """Of every choice that fits; inf where none does."""
    cost, error = np.zeros(1), np.zeros(1)
    for layer in range(asked.profile.layers):
        modes = all_modes(asked, layer)
        sizes = np.array([asked.bytes_of([each]) for each in modes])
        charges = np.array([math.fsum(asked.charges(layer, each)) for each in modes])
        cost, error = (np.add.outer(*pair).ravel() for pair in ((cost, sizes), (error, charges)))
    return float(error[cost <= asked.cache_bytes].min(initial=math.inf))


@pytest.mark.parametrize("seed", range(share(500)))
def test_the_error_is_the_least_of_all_choices(seed: int) -> None:
    asked = some_problem(seed)
    plan, least = solve(asked, SolveOptions()), least_error(asked)
    if not math.isfinite(least):
        assert plan.solution.status is Status.INFEASIBLE
        return
    assert plan.solution.status is Status.OPTIMAL
    assert plan.solution.objective == pytest.approx(least, rel=1e-9, abs=1e-12)
    assert isinstance(plan.decision, CacheDecision)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    assert asked.error(plan.decision.layers) == plan.solution.objective
    assert asked.bytes_of(plan.decision.layers) == plan.details["cache_bytes"] <= asked.cache_bytes


@pytest.mark.parametrize("seed", range(share(200)))
def test_prices_of_a_byte_bound_the_least_error_and_their_own_choice_fits(seed: int) -> None:
    asked = some_problem(seed)
    least = least_error(asked)
    if math.isfinite(least):
        made = Options(asked).priced(asked.cache_bytes, 60)
        assert made.bound <= least * (1 + 1e-9) + 1e-12
        assert asked.bytes_of(made.layers) <= asked.cache_bytes
        assert asked.error(made.layers) >= least * (1 - 1e-9) - 1e-12


@pytest.mark.parametrize("seed", range(share(100)))
def test_with_little_work_a_plan_is_within_its_bytes_and_above_its_bound(seed: int) -> None:
    asked = some_problem(seed)
    least, plan = least_error(asked), solve(asked, SolveOptions(), {"most_work": 200})
    if not math.isfinite(least):
        return
    assert isinstance(plan.decision, CacheDecision)
    assert asked.bytes_of(plan.decision.layers) <= asked.cache_bytes
    assert plan.solution.bound is not None
    assert plan.solution.objective is not None
    assert plan.solution.bound <= least * (1 + 1e-9) + 1e-12
    assert plan.solution.objective >= least * (1 - 1e-9)


def test_a_window_of_all_tokens_is_no_option() -> None:
    asked = some_problem(4)
    for option in options_of(asked, 0):
        assert option.modes.window < asked.tokens
