"""A run replayed window by window: the same report as the whole replay's, wherever it is cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from corrupted_schedules import corrupted
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.checker import Report, Rule, check
from gapless.checker.windowed.windows import Window, WindowedReplay
from gapless.ir.schedule import EventKind, Schedule, schedule_from_events

COMPUTE, TRANSFER = EventKind.COMPUTE, EventKind.TRANSFER


def in_order(schedule: Schedule) -> Schedule:
    events = sorted(schedule.events(), key=lambda event: event.start_s)
    return schedule_from_events(schedule.graph, schedule.topology, events)


def windowed(schedule: Schedule, cuts: list[int]) -> Report:
    """Its events cut before these numbers; each tensor is an atom of its own."""
    events, tensors = list(schedule.events()), np.arange(schedule.graph.tensor_count)
    replay = WindowedReplay(schedule.topology, float(schedule.end_s.max(initial=0.0)), is_merging=False)
    bounds = [0, *sorted(cuts), len(events)]
    for number, (begin, end) in enumerate(pairwise(bounds)):
        part = schedule_from_events(schedule.graph, schedule.topology, events[begin:end])
        replay.add(Window(part, tensors, tensors, is_last=number == len(bounds) - 2))
    return replay.report()


def cuts_of(schedule: Schedule, chance: random.Random) -> list[int]:
    return sorted(chance.choices(range(len(schedule) + 1), k=chance.randint(0, 5)))


@examples(300)
@given(seed=st.integers(0, 2**32))
def test_windows_of_a_valid_run_give_the_report_of_the_whole(
    seed: int, random_schedule: Callable[[random.Random], Schedule]
) -> None:
    chance = random.Random(seed)
    schedule = in_order(random_schedule(chance))
    whole, parts = check(schedule), windowed(schedule, cuts_of(schedule, chance))
    assert parts.valid, parts.summary()
    assert replace(parts, busy_s=whole.busy_s, energy_j=whole.energy_j) == replace(whole, spent=())
    assert parts.energy_j == (None if whole.energy_j is None else pytest.approx(whole.energy_j))
    for kind in ("links", "engines", "resources"):
        assert getattr(parts.busy_s, kind) == pytest.approx(getattr(whole.busy_s, kind))


def broken(report: Report) -> set[tuple[str, int]]:
    """Rule and event; a read before a later window's write is missing, not late."""
    late, missing = Rule.INPUT_LATE, Rule.INPUT_MISSING
    return {((missing if each.rule is late else each.rule).value, each.event) for each in report.violations}


@examples(600)
@given(seed=st.integers(0, 2**32))
def test_windows_of_a_broken_run_break_the_same_rules_at_the_same_events(
    seed: int, random_schedule: Callable[[random.Random], Schedule]
) -> None:
    chance = random.Random(seed)
    schedule = in_order(corrupted(random_schedule(chance), chance))
    whole, parts = check(schedule), windowed(schedule, cuts_of(schedule, chance))
    if Rule.NOT_FREE in whole.violation_counts:  # what is written and overwritten at once has no defined size
        memory = {each for each in broken(parts) | broken(whole) if each[0] == Rule.MEMORY_EXCEEDED.value}
        assert broken(parts) - memory == broken(whole) - memory
    else:
        assert broken(parts) == broken(whole)
        assert parts.peak_bytes == whole.peak_bytes


FAR = 70
"""More bits than a machine's number has."""


def far(schedule: Schedule) -> Schedule:
    """Contributions with numbers that are higher by `FAR`."""
    graph = schedule.graph
    ops = tuple(
        replace(
            op, adds=None if op.adds is None else op.adds + FAR,
            needs={tensor: held << FAR for tensor, held in op.needs.items()},
        )
        for op in graph.ops
    )  # fmt: skip
    initial, required = (
        placed
        if placed.contributions is None
        else replace(placed, contributions=tuple(h << FAR for h in placed.contributions))
        for placed in (graph.initial, graph.required)
    )
    return replace(schedule, graph=replace(graph, ops=ops, initial=initial, required=required))


@examples(200)
@given(seed=st.integers(0, 2**32))
def test_sets_of_many_contributions_break_the_same_rules(
    seed: int, random_schedule: Callable[[random.Random], Schedule]
) -> None:
    chance = random.Random(seed)
    schedule = in_order(corrupted(random_schedule(chance), chance))
    more, cuts = far(schedule), cuts_of(schedule, chance)
    assert broken(check(more)) == broken(check(schedule))
    assert broken(windowed(more, cuts)) == broken(windowed(schedule, cuts))
