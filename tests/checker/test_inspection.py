"""Memory over time, as pictures and traces show it, is what the replay counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gapless.checker import Rule, check, judged
from gapless.checker.inspection import known_events, memory_steps
from gapless.checker.replay import replayed
from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Link, Topology


def test_the_highest_level_is_the_peak_of_the_report(random_schedule: Callable[[random.Random], Schedule]) -> None:
    for seed in range(100):
        schedule = random_schedule(random.Random(seed))
        steps = memory_steps(replayed(schedule))
        peaks = tuple(int(part.live_bytes.max(initial=0)) for part in steps)
        assert peaks == check(schedule).peak_bytes
        assert all((np.diff(part.time_s) >= 0).all() for part in steps)


def test_workspace_and_frees_show_when_they_happen() -> None:
    graph = Graph(
        np.array([10, 4]),
        (Op("make", (0,), (1,), (Implementation(2.0, workspace_bytes=3),)),),
        initial=Placement.of([(0, 0)]),
    )
    event = Event(EventKind.COMPUTE, 1.0, 3.0, 0, op=0, frees=((0, 0),))
    (steps,) = memory_steps(replayed(schedule_from_events(graph, Topology("one", (0,)), [event])))
    at_s, levels = steps.time_s.tolist(), steps.live_bytes.tolist()
    assert (at_s[0], levels[0]) == (0.0, 10)
    assert dict(zip(at_s, levels, strict=True)) == {0.0: 10, 1.0: 17, 3.0: 4}  # the last level of each instant


def test_known_events_leave_out_what_names_unknown_things(
    random_schedule: Callable[[random.Random], Schedule],
) -> None:
    schedule = random_schedule(random.Random(3))
    place = schedule.place.copy()
    place[1] = 10**6
    assert known_events(schedule).tolist() == list(range(len(schedule)))
    assert known_events(replace(schedule, place=place)).tolist() == [0, *range(2, len(schedule))]


def test_rules_may_look_at_one_replay_twice() -> None:
    graph = Graph(np.array([8]), initial=Placement.of([(0, 0)]), required=Placement.of([(0, 1)]))
    events = [Event(EventKind.TRANSFER, 0.0, 1.0, link, moves=(0,)) for link in (0, 7)]
    replay = replayed(schedule_from_events(graph, Topology("two", (0, 0), (Link(0, 1, 2.0, 0.0),)), events))
    first = judged(replay)
    assert set(first.violation_counts) == {Rule.UNKNOWN_ID, Rule.DURATION_TOO_SHORT}
    assert judged(replay) == first
