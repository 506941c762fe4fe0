"""Room for messages: orders are played within memory, and the exact model's are played as it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact_pipeline import exact_step, with_messages
from examples import is_thorough, share

from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.order.exact.model import order_model, order_of, values_of
from gapless.encodings.pipeline.order.orders import Order, Timeline
from gapless.encodings.pipeline.order.room import held_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import has_room, timed
from gapless.encodings.pipeline.order.zero_bubble import one_by_one, zero_bubble
from gapless.encodings.pipeline.programs.breakdown import exposed_s
from gapless.options import SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model

WORK = 300
"""Steps of the exact method on an order: most of these cases are proven in them."""


def heuristic(stages: Stages) -> tuple[Order, Timeline]:
    made = zero_bubble(stages, 2000)
    assert made is not None, "there is room for one micro-batch"
    return made


def held(stages: Stages, order: Order, timeline: Timeline) -> list[float]:
    found: list[float] = held_bytes(stages, order.hop_modes, timeline).tolist()
    return found


@pytest.mark.parametrize("seed", range(40 if is_thorough() else 10))
def test_an_order_is_played_within_memory(seed: int) -> None:
    stages = with_messages(seed)
    order, timeline = heuristic(stages)
    assert all(
        bytes_held <= room for bytes_held, room in zip(held(stages, order, timeline), stages.room_bytes, strict=True)
    )


@pytest.mark.parametrize("seed", range(40 if is_thorough() else 10))
def test_one_micro_batch_after_the_other_needs_room_for_one(seed: int) -> None:
    stages = with_messages(seed)
    order = one_by_one(stages)
    timeline = timed(stages, order)
    assert timeline is not None
    assert has_room(stages, order, timeline)


@pytest.mark.thorough(but=["[8]"])
@pytest.mark.parametrize("seed", range(40) if is_thorough() else (1, 5, 8))
def test_what_the_exact_model_finds_is_played_as_it_says(seed: int) -> None:
    stages = with_messages(seed)
    order, timeline = heuristic(stages)
    bound = max(bounds_of(stages).values())
    ordered = order_model(stages, timeline.step_s, bound)
    options = SolveOptions(threads=1, step_limit=WORK)
    found = solve_model(ordered.model, options, "cpsat", values_of(ordered, timeline))
    assert found.values is not None
    assert found.objective is not None
    order = order_of(ordered, found.values)
    played = timed(stages, order)
    assert played is not None
    assert has_room(stages, order, played)
    assert bound <= played.step_s <= found.objective + 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(share(40)))
def test_bounds_and_optima_are_those_of_another_model(seed: int) -> None:
    stages = with_messages(seed)
    truth, proven = exact_step(stages, 20.0)
    _, timeline = heuristic(stages)
    bound = max(bounds_of(stages).values())
    assert bound <= truth + 1e-6
    ordered = order_model(stages, timeline.step_s, bound)
    found = solve_model(
        ordered.model, SolveOptions(threads=1, step_limit=3 * WORK), "cpsat", values_of(ordered, timeline)
    )
    assert found.bound is not None
    assert found.bound <= truth + 1e-6
    if found.status is Status.OPTIMAL:
        assert found.objective is not None
        assert found.objective >= proven - 1e-6


def test_more_memory_never_plays_an_order_later() -> None:
    for seed in range(40 if is_thorough() else 4):
        stages = with_messages(seed)
        order, timeline = heuristic(stages)
        for more in (1, 3, 10, 100):
            roomy = replace(stages, memory_bytes=stages.memory_bytes + more)
            played = timed(roomy, order)
            assert played is not None
            assert played.step_s <= timeline.step_s + 1e-9


def test_messages_that_take_nothing_change_nothing() -> None:
    stages = with_messages(3)
    free = replace(stages, message_bytes=np.zeros_like(stages.message_bytes))
    assert not free.counts_messages
    order = one_by_one(free)
    counted, ignored = timed(stages, order), timed(free, order)
    assert counted is not None
    assert ignored is not None
    assert ignored.step_s <= counted.step_s


@pytest.mark.parametrize("seed", range(40) if is_thorough() else range(8))
def test_no_bound_is_above_a_plan_where_sends_block(seed: int) -> None:
    stages = replace(with_messages(seed), blocks=True)
    room = stages.memory_bytes + stages.message_bytes.max()
    order, timeline = heuristic(replace(stages, memory_bytes=room))
    assert max(bounds_of(replace(stages, memory_bytes=room)).values()) <= timeline.step_s + 1e-9
    assert has_room(replace(stages, memory_bytes=room), order, timeline)


def test_parts_of_a_step_are_told_where_messages_wait_for_room() -> None:
    stages = with_messages(8)
    order, _ = heuristic(stages)
    parts = exposed_s(stages, order)
    assert sum(parts.values()) > 0
