"""Neighbourhoods: what they give is better each time, within memory, and the same twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from examples import share
from tiny_pipelines import tiny, trial

from gapless.encodings.pipeline.order.neighbourhood import improved
from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.schedules.baselines import gpipe, one_f_one_b, whole, zb_h1, zb_v
from gapless.options import Deadline, SolveOptions

FEW = Parameters(rounds=8, window_ops=60, window_steps=40)


def steps_s(stages: Stages, order: Order, goal_s: float = 0.0, parameters: Parameters = FEW) -> list[float]:
    """The step times of all that comes out, each of which stays within memory."""
    found = []
    for other in improved(stages, order, goal_s, 0, Deadline(SolveOptions()), parameters):
        timeline = timed(stages, other)
        assert timeline is not None
        assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()
        found.append(timeline.step_s)
    return found


def test_each_order_is_no_slower_than_the_one_before() -> None:
    _, stages = trial(4, 16, 5)
    start = timed(stages, zb_h1(stages))
    assert start is not None
    found = steps_s(stages, zb_h1(stages))
    assert found == sorted(found, reverse=True)
    assert found[-1] < start.step_s


@pytest.mark.thorough
def test_the_v_gets_faster_than_zb_v() -> None:
    _, stages = trial(4, 8, 4, "v")
    assert steps_s(stages, zb_v(stages), parameters=replace(FEW, rounds=12, window_ops=120))[-1] <= 283


def test_the_same_seed_gives_the_same_orders() -> None:
    _, stages = trial(4, 16, 5)
    assert steps_s(stages, zb_h1(stages)) == steps_s(stages, zb_h1(stages))


def test_a_goal_that_is_reached_ends_the_search() -> None:
    _, stages = trial(4, 16, 5)
    assert steps_s(stages, zb_h1(stages), goal_s=10_000.0) == []


def test_a_deadline_ends_the_search() -> None:
    _, stages = trial(4, 16, 5)
    options = SolveOptions()
    options.stop.set()
    assert not list(improved(stages, zb_h1(stages), 0.0, 0, Deadline(options), FEW))


@pytest.mark.parametrize("order", [gpipe, one_f_one_b])
def test_whole_backwards_are_reordered_too(order: Callable[[Stages], Order]) -> None:
    stages = whole(trial(4, 8, 8)[1])
    start = timed(stages, order(stages))
    assert start is not None
    assert min([start.step_s, *steps_s(stages, order(stages))]) <= start.step_s


@pytest.mark.parametrize("seed", range(share(100)))
def test_nothing_is_faster_than_the_best_of_all_orders(seed: int) -> None:
    """With hops longer than ops, sums among replicas, memory in bytes, recomputation and sends that block."""
    stages, best_s = tiny(seed)
    start = zero_bubble(stages, 1)
    assert start is not None
    found = steps_s(stages, start[0], parameters=Parameters(rounds=4, window_ops=8, window_steps=40))
    assert min([start[1].step_s, *found]) >= best_s
