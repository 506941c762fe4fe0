"""The exact choice of modes against all choices there are, and against a bound that knows nothing of fronts."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest
from examples import share
from numpy.typing import NDArray

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

Pairs: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]


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
    errors = [
        rng.gamma(0.3, size=(2, layers, *shape)) for shape in ((2, len(FORMATS) - 1), (len(windows),), (len(counts),))
    ]
    shares = rng.gamma(0.3, size=(layers, 2, key_heads)) * rng.integers(0, 2)
    return CacheProfile(
        "random", layout, key_heads * group, key_heads, 1000, 1, 64, errors[0], shares, windows, errors[1], counts,
        rows, errors[2],
    )  # fmt: skip


def some_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    modes = tuple(kind for kind in KINDS if rng.random() < 0.8) or KINDS
    rest = {"tokens": int(rng.integers(1, 64)), "batch": int(rng.integers(1, 3)), "modes": modes}
    profile, measure = some_profile(rng), ("divergence", "loss")[seed % 2]
    full = Problem(profile, 1, measure=measure, **rest).full_bytes
    return Problem(profile, int(full * rng.uniform(0.1, 1.1)), measure=measure, **rest)


def bases_of(asked: Problem, layer: int) -> list[LayerModes]:
    """Every window with every number of kept keys that is offered to a layer, its heads in full."""
    profile, full = asked.profile, asked.full[layer]
    shared = [full]
    if "sharing" in asked.modes:
        rows = [tuple(row) for row in profile.representatives[layer].tolist()]
        shared += [full.sharing(profile.kept(layer, place), row) for place, row in enumerate(rows)]
    windows = [0, *(profile.windows if "windows" in asked.modes else ())]
    return [replace(each, window=window) for window, each in itertools.product(windows, shared)]


def with_format(modes: LayerModes, part: str, head: int, name: str) -> LayerModes:
    """These modes, but one head's keys or values in a format."""
    names = tuple(name if place == head else other for place, other in enumerate(getattr(modes, part)))
    return replace(modes, keys=names) if part == "keys" else replace(modes, values=names)


def summed(one: Pairs, other: Pairs) -> Pairs:
    """Every sum of a pair of bytes and error from each."""
    cost, error = (np.add.outer(*each).ravel() for each in zip(one, other, strict=True))
    return cost, error


def all_choices(asked: Problem, layer: int) -> Pairs:
    """Bytes and error of every mode of a layer, put together without the options' own code: a head's are the same
    whatever the others are.
    """
    formats, found = FORMATS if "formats" in asked.modes else ("full",), list[Pairs]()

    def pair(modes: LayerModes) -> tuple[int, float]:
        return asked.bytes_of([modes]), math.fsum(asked.charges(layer, modes))

    for base in bases_of(asked, layer):
        size, charge = pair(base)
        made = np.array([size]), np.array([charge])
        for part, heads in (("keys", base.kept), ("values", range(asked.profile.key_heads))):
            for head in heads:
                pairs = [pair(with_format(base, part, head, name)) for name in formats]
                made = summed(made, (np.array([a - size for a, _ in pairs]), np.array([b - charge for _, b in pairs])))
        found.append(made)
    return np.concatenate([cost for cost, _ in found]), np.concatenate([error for _, error in found])


def least_error(asked: Problem) -> float:
    """Of every choice that fits; inf where none does."""
    made = np.zeros(1), np.zeros(1)
    for layer in range(asked.profile.layers):
        cost, error = summed(made, all_choices(asked, layer))
        order = np.lexsort((error, cost))  # of as many bytes only the least error goes on
        made = tuple(each[order][np.unique(cost[order], return_index=True)[1]] for each in (cost, error))
    cost, error = made
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
