"""Modes on a fixed order: as good as trying all of them; within the budget; on all kinds of timelines."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from gapless.encodings.pipeline.compression.joint import mean_stages, relaxed_bound_s
from gapless.encodings.pipeline.compression.modes import Spoiling, best_modes, fastest_modes, spoiling_of
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.schedules.baselines import BASELINES, whole
from gapless.options import SolveOptions
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile

OPTIONS = SolveOptions(threads=1)
DEPTH = np.array([0.0, 1.0])


def made_up(*ratios: float, coding_s: float = 0.0) -> CompressionTable:
    """Errors made up for tests: smaller messages spoil more, early layers less."""
    modes = tuple(
        CompressionMode(f"to {ratio:g}", ratio, 0, coding_s, coding_s / 2, (1 - ratio) * np.array([0.4, 0.8]),
                        (1 - ratio) * np.array([0.3, 0.2]))
        for ratio in ratios
    )  # fmt: skip
    return CompressionTable("made up", DEPTH, modes)


def tiny(seed: int, baseline: str, **values: Any) -> tuple[Problem, Stages, Order, Spoiling]:
    """Two or three micro-batches on two ranks, with sums and a shared embedding."""
    rng = np.random.default_rng(seed)
    is_chunked = BASELINES[baseline].placement != "linear"
    layers = 4 if is_chunked else 2
    times = [rng.integers(1, 6, layers).astype(float) for _ in range(3)]
    sizes = rng.integers(2, 9, layers)
    profile = PipelineProfile(
        "tiny", tuple(map(str, range(layers))), *times, sizes, sizes, sizes, rng.integers(2, 9, layers),
        embedding_bytes=int(rng.integers(0, 2)),
    )  # fmt: skip
    asked = problem(
        profile, ranks=2, micro_batches=1 if is_chunked else int(rng.integers(2, 4)), bandwidth=0.8, replicas=2,
        placement=BASELINES[baseline].placement, compression=made_up(0.5, 0.1, coding_s=0.05),
        error_budget=float(rng.choice([0.3, 0.6, 1.0])), **values,
    )  # fmt: skip
    cut = even_cut(layers, asked.stage_count)
    stages = stages_of(asked, cut)
    stages = stages if BASELINES[baseline].splits else whole(stages)
    spoiling = spoiling_of(asked, cut, stages.crosses)
    assert spoiling is not None
    return asked, stages, BASELINES[baseline].order(stages), spoiling


def by_force(stages: Stages, order: Order, spoiling: Spoiling) -> float:
    """Every mode of every crossing hop's micro-batch and of every sum."""
    numbers, best_s = range(len(stages.reduce_s)), np.inf
    free = np.argwhere(np.broadcast_to(stages.crosses[:, None], order.hop_modes.shape))
    for chosen in product(numbers, repeat=len(free) + stages.count):
        hops, sums = np.zeros_like(order.hop_modes), np.array(chosen[len(free) :])
        hops[tuple(free.T)] = chosen[: len(free)]
        moded = Order(order.sequences, hops, sums)
        if spoiling.allows(moded):
            timeline = timed(stages, moded)
            assert timeline is not None
            best_s = min(best_s, timeline.cost_s)
    return best_s


@pytest.mark.thorough("-3", "-4", "-5")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("baseline", ["1f1b", "zb-h1", "gpipe", "zb-v"])
@pytest.mark.parametrize("blocking", [False, True])
def test_the_programme_is_as_good_as_trying_all_modes(seed: int, baseline: str, blocking: bool) -> None:
    _, stages, order, spoiling = tiny(seed, baseline, blocking_sends=blocking)
    found = best_modes(stages, order, spoiling, OPTIONS)
    assert spoiling.allows(found.order)
    assert found.timeline.step_s == pytest.approx(by_force(stages, order, spoiling))
    assert found.bound_s == pytest.approx(found.timeline.step_s)


@pytest.mark.thorough("-3", "-4", "-5")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("baseline", ["1f1b", "zb-h1", "gpipe", "zb-v"])
def test_the_programme_has_the_shortest_span_of_all_modes(seed: int, baseline: str) -> None:
    """And the relaxed bound holds for it."""
    asked, stages, order, spoiling = tiny(seed, baseline, minimise="span", blocking_sends=seed == 2)
    found, best_s = best_modes(stages, order, spoiling, OPTIONS), by_force(stages, order, spoiling)
    assert spoiling.allows(found.order)
    assert found.timeline.cost_s == pytest.approx(best_s)
    assert found.bound_s == pytest.approx(best_s)
    assert relaxed_bound_s(stages_of(asked, even_cut(asked.profile.layer_count, asked.stage_count)), spoiling,
                           OPTIONS) <= best_s * (1 + 1e-9)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("baseline", ["1f1b", "zb-h1", "zb-v"])
def test_the_relaxed_bound_holds_for_all_modes_within_the_budget(seed: int, baseline: str) -> None:
    _, stages, order, spoiling = tiny(seed, baseline)
    bound_s = relaxed_bound_s(stages, spoiling, OPTIONS)
    assert bound_s <= by_force(stages, order, spoiling) * (1 + 1e-9)
    least = replace(spoiling, budget=0.0)
    assert bound_s <= relaxed_bound_s(stages, least, OPTIONS) * (1 + 1e-9)


def sixteen(hop: float, budget: float, **values: Any) -> tuple[Stages, Spoiling]:
    """Four ranks, sixteen micro-batches; a forward of 1 s, a backward of 2 s, gradients sent as a tenth."""
    asked = problem(
        "uniform:f=1,b=1,w=1", ranks=4, micro_batches=16, hop=hop, backward="whole", compression=made_up(0.1),
        error_budget=budget, **values,
    )  # fmt: skip
    stages = stages_of(asked, (1, 2, 3))
    spoiling = spoiling_of(asked, (1, 2, 3), stages.crosses)
    assert spoiling is not None
    return stages, spoiling


@pytest.mark.parametrize(("hop", "plain_s", "all_s", "eager_s"), [(0.3, 65.40, 61.62, 58.80), (1.5, 99.0, 80.1, 66.0)])
def test_one_f_one_b_waits_for_its_hops_and_more_memory_hides_them(
    hop: float, plain_s: float, all_s: float, eager_s: float
) -> None:
    """And the eager schedule without compression is optimal: the bound without a budget says so."""
    stages, spoiling = sixteen(hop, 0.0)
    order = BASELINES["1f1b"].order(stages)
    plain, compressed = timed(stages, order), timed(stages, fastest_modes(stages, order))
    eager = timed(stages, BASELINES["eager-1f1b"].order(stages))
    assert plain is not None
    assert compressed is not None
    assert eager is not None
    assert (plain.step_s, compressed.step_s, eager.step_s) == pytest.approx((plain_s, all_s, eager_s))
    assert relaxed_bound_s(stages, spoiling, OPTIONS) == pytest.approx(eager_s)


def test_a_budget_for_all_buys_all_and_none_buys_nothing() -> None:
    for budget, step_s in ((0.0, 65.4), (10.0, 61.62)):
        stages, spoiling = sixteen(0.3, budget)
        found = best_modes(stages, BASELINES["1f1b"].order(stages), spoiling, OPTIONS)
        assert found.timeline.step_s == pytest.approx(step_s)


def test_a_budget_that_all_sums_together_just_meet_is_not_refused_for_rounding() -> None:
    asked, stages, order, spoiling = tiny(1, "zb-h1")
    exact = replace(
        spoiling, budget=sum(spoiling.reduce[1].tolist()), hop=spoiling.hop + np.array([[0.0], [9.0], [9.0]])
    )
    found = best_modes(stages, order, exact, OPTIONS)
    assert asked.replicas.count == 2
    assert exact.allows(found.order)
    assert found.timeline.step_s == pytest.approx(by_force(stages, order, exact))


def test_stages_in_the_mean_of_their_modes_take_what_they_take_in_these_modes() -> None:
    """Where all micro-batches of a hop are in one mode, the mean is exact."""
    _, stages, order, _ = tiny(2, "zb-h1")
    moded = replace(order, hop_modes=np.full_like(order.hop_modes, 2), reduce_modes=np.array([1, 2]))
    mean = mean_stages(stages, moded)
    expected, found = timed(stages, moded), timed(mean, order)
    assert expected is not None
    assert found is not None
    assert found.step_s == pytest.approx(expected.step_s)
