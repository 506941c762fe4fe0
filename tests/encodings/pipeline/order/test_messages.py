"""The order of messages on links: what it is without a word, what it changes, and what can't run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact_pipeline import exact_step, few_stages
from examples import share
from tiny_pipelines import trial

from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.order.exact.model import order_model, order_of
from gapless.encodings.pipeline.order.messages import (
    in_their_turn,
    makers,
    queues_of,
    users,
    waiting_links,
    with_queues,
)
from gapless.encodings.pipeline.order.neighbourhood import improved
from gapless.encodings.pipeline.order.orders import Order, number
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.schedules.baselines import zb_v
from gapless.options import Deadline, SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model


def slow_v(micro_batches: int = 2, **changes: object) -> Stages:
    """Four stages in a V on two ranks, whose messages take longer than an op."""
    _, stages = trial(2, micro_batches, 2 * micro_batches, "v", hop=15.0)
    return replace(stages, **changes)  # type: ignore[arg-type]


def step_s(stages: Stages, order: Order) -> float:
    timeline = timed(stages, order)
    assert timeline is not None
    return timeline.step_s


def test_a_message_has_one_op_that_makes_it_and_one_that_uses_it() -> None:
    stages = slow_v()
    messages = np.arange(2 * 3 * 2)
    made = [number(stages, 0, hop, m) for hop in range(3) for m in range(2)]  # type: ignore[arg-type]
    assert makers(stages, messages)[:6].tolist() == made
    assert users(stages, messages)[:6].tolist() == [op + 2 for op in made]
    back = [number(stages, 1, hop + 1, m) for hop in range(3) for m in range(2)]  # type: ignore[arg-type]
    assert makers(stages, messages)[6:].tolist() == back
    assert users(stages, messages)[6:].tolist() == [op - 2 for op in back]


def test_messages_leave_as_they_are_made_where_nothing_else_is_said() -> None:
    stages = slow_v()
    order = zb_v(stages)
    queues = queues_of(stages, order)
    assert set(queues) == {(0, 1), (1, 0)}
    timeline = timed(stages, order)
    assert timeline is not None
    for queue in queues.values():
        assert (np.diff(timeline.sent_s.reshape(-1)[queue]) >= 0).all()
    assert with_queues(stages, order, queues) == order


def test_the_order_of_messages_is_played() -> None:
    stages = slow_v()
    order = zb_v(stages)
    first, *rest = queues_of(stages, order)[0, 1].tolist()
    turned = with_queues(stages, order, {(0, 1): np.array([rest[0], first, *rest[1:]])})
    assert len(turned.messages) == 1
    timeline = timed(stages, turned)
    assert timeline is not None
    sent_s = timeline.sent_s.reshape(-1)
    assert sent_s[first] == sent_s[rest[0]] + 15
    assert timeline.step_s > step_s(stages, order)


def test_a_message_that_waits_for_what_its_arrival_makes_has_no_timeline() -> None:
    stages = slow_v(1)
    order = zb_v(stages)
    turned = with_queues(stages, order, {(0, 1): queues_of(stages, order)[0, 1][::-1]})
    assert timed(stages, turned) is None


def test_where_sends_block_messages_leave_as_they_are_made() -> None:
    stages = slow_v(blocks=True)
    order = zb_v(stages)
    assert waiting_links(stages) == {}
    turned = replace(order, messages=(queues_of(stages, order)[0, 1][::-1],))
    assert step_s(stages, turned) == step_s(stages, order)
    assert with_queues(stages, order, queues_of(stages, turned)) == order


def test_of_messages_that_leave_at_once_what_takes_no_time_is_first() -> None:
    stages = slow_v(forward_hop_s=np.array([15.0, 0.0, 0.0]))
    messages = np.array([0, 4])  # the second takes no time
    assert in_their_turn(stages, messages, np.array([3.0, 3.0]), np.array([1.0, 2.0])).tolist() == [4, 0]


@pytest.mark.thorough("[5]")
@pytest.mark.parametrize("seed", range(share(300, 3)))
def test_what_the_exact_model_finds_is_what_is_played(seed: int) -> None:
    stages = few_stages(seed)
    best, bound = exact_step(stages)
    start = zero_bubble(stages, 10_000)
    assert start is not None
    ordered = order_model(stages, start[1].step_s)
    solution = solve_model(ordered.model, SolveOptions(threads=1), "cpsat")
    assert solution.values is not None
    timeline = timed(stages, order_of(ordered, solution.values))
    assert timeline is not None
    assert timeline.step_s == solution.objective
    assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()
    assert max(bounds_of(stages).values()) <= best
    if solution.status is Status.OPTIMAL and best == bound:
        assert solution.objective == best


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(40))
def test_a_window_orders_messages_too(seed: int) -> None:
    """One window over everything: what it claims is what is played, and it is the optimum."""
    stages = replace(few_stages(seed), blocks=False)
    start = zero_bubble(stages, 10_000)
    assert start is not None
    wide = Parameters(rounds=60, window_ops=1000, window_steps=4000)
    found = list(improved(stages, start[0], 0.0, 0, Deadline(SolveOptions()), wide))
    best, bound = exact_step(stages)
    assert best <= min([start[1].step_s, *(step_s(stages, order) for order in found)])
    if best == bound:
        assert best == min([start[1].step_s, *(step_s(stages, order) for order in found)])
