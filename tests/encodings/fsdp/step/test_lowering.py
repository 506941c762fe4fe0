"""Plans of sharded steps replay, and the replay finds what is broken in them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from small_steps import FREE, a_step, costs_of

from gapless.checker import Rule, check
from gapless.encodings.fsdp.search.labels import search
from gapless.encodings.fsdp.search.shared import best_grouped, starts_of
from gapless.encodings.fsdp.step.costs import Costs
from gapless.encodings.fsdp.step.lowering import to_schedule
from gapless.encodings.fsdp.step.timeline import timeline
from gapless.ir.schedule import Schedule


def scheduled(costs: Costs) -> Schedule | None:
    """A plan of it, None where few labels find none."""
    found = search(costs, 20, 3, math.inf, FREE)
    times = None if found.order is None else timeline(costs, found.order)
    if found.order is None or times is None:
        return None
    return to_schedule(costs, [f"layer{k}" for k in range(costs.layers)], found.order, times, "a step")


@examples(300)
@given(a_step(most_layers=5, least_backward=0))
def test_plans_replay_within_memory_and_at_their_time(costs: Costs) -> None:
    schedule = scheduled(costs)
    if schedule is not None:
        report = check(schedule)
        assert report.valid, report.violations
        assert report.peak_bytes[0] <= costs.memory_bytes


@examples(100)
@given(
    a_step(most_layers=5, least_backward=0, takes_when_begun=True)
    | a_step(most_layers=5, least_backward=0, takes_when_begun=True, is_two_level=True, has_replicas=True)
)
def test_plans_of_fsdp2_replay_with_the_memory_that_their_time_lines_have(costs: Costs) -> None:
    for order in best_grouped(costs, starts_of(costs), 1000, 8, FREE):
        times = timeline(costs, order)
        assert times is not None
        report = check(to_schedule(costs, [f"layer{k}" for k in range(costs.layers)], order, times, "a step"))
        assert report.makespan_s == pytest.approx(times.step_s)
        if times.peak_bytes <= costs.memory_bytes:
            assert report.valid, report.violations
        assert report.peak_bytes[0] <= times.peak_bytes


@pytest.fixture
def schedule() -> Schedule:
    made = scheduled(costs_of([2, 3, 2], [4, 4, 4], [8, 8, 8], memory_bytes=16.0))
    assert made is not None
    return made


def broken(schedule: Schedule, event: int, by_s: float) -> set[Rule]:
    """The rules that an event breaks where it runs so much later."""
    start_s, end_s = np.array(schedule.start_s), np.array(schedule.end_s)
    start_s[event] += by_s
    end_s[event] += by_s
    return {violation.rule for violation in check(replace(schedule, start_s=start_s, end_s=end_s)).violations}


def events_of(schedule: Schedule, kind: str) -> list[int]:
    return [number for number, op in enumerate(schedule.op.tolist()) if schedule.graph.ops[op].kind == kind]


def test_a_gather_that_comes_late_is_found(schedule: Schedule) -> None:
    assert Rule.INPUT_LATE in broken(schedule, events_of(schedule, "gather")[-1], 100.0)


def test_a_scatter_before_its_backward_pass_is_found(schedule: Schedule) -> None:
    assert {Rule.INPUT_LATE, Rule.INPUT_MISSING} & broken(schedule, events_of(schedule, "scatter")[-1], -20.0)


def test_memory_that_is_too_small_is_found(schedule: Schedule) -> None:
    topology = replace(schedule.topology, memory_bytes=(5.0,))
    rules = {violation.rule for violation in check(replace(schedule, topology=topology)).violations}
    assert Rule.MEMORY_EXCEEDED in rules
