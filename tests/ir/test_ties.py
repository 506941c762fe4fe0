"""Events of one instant: what others wait for comes first, whatever rounding makes of the times."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless.checker import check
from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.ir.schedule_builder import by_start
from gapless.solution import Status
from gapless.topologies.topology import Topology

CHAIN = Graph(
    np.array([1, 1, 1, 1]),
    tuple(Op(f"f{k}", (k,), (k + 1,), (Implementation(duration_s),)) for k, duration_s in enumerate((1.0, 0.0, 2.0))),
    Placement.of([(0, 0)]),
    Placement.of([(3, 0)]),
)
ONE = Topology("one", (0,))


def run(op: int, start_s: float, end_s: float) -> Event:
    return Event(EventKind.COMPUTE, start_s, end_s, 0, op=op)


@pytest.mark.parametrize("early_s", [0.0, 1e-12])
def test_what_takes_no_time_stands_where_the_program_has_it(early_s: float) -> None:
    """Also where a rounding error lets it start later than what waits for it."""
    program = [run(0, 0.0, 1.0), run(1, 1.0, 1.0), run(2, 1.0 - early_s, 3.0)]
    assert by_start(program) == program
    assert check(schedule_from_events(CHAIN, ONE, by_start(program))).valid


def test_what_goes_on_comes_after_all_that_takes_no_time() -> None:
    """It could not start before, as they hold the same engine."""
    lasting, instant = run(2, 1.0, 3.0), run(1, 1.0, 1.0)
    assert by_start([lasting, instant]) == [instant, lasting]


def test_other_events_come_in_order_of_their_starts() -> None:
    events = [run(0, float(start_s), start_s + 1.0) for start_s in (3, 0, 2, 1)]
    assert [event.start_s for event in by_start(events)] == [0.0, 1.0, 2.0, 3.0]
    assert by_start([]) == []


@examples(250)
@given(seed=st.integers(0, 10**6))
def test_a_program_in_order_of_starts_replays_as_it_did(
    random_schedule: Callable[[random.Random], Schedule], seed: int
) -> None:
    schedule = random_schedule(random.Random(seed))
    program = list(schedule.events())
    again = schedule_from_events(schedule.graph, schedule.topology, by_start(program))
    assert check(again).valid
    assert check(again).makespan_s == check(schedule).makespan_s
    assert (np.diff(again.start_s) >= -1e-9 * again.end_s.max(initial=0.0)).all()


@pytest.mark.parametrize("times", ["f=10,b=0,w=8", "f=0,b=12,w=8", "f=10,b=12,w=0", "f=0,b=0,w=0"])
@pytest.mark.parametrize("hop", [0, 2])
def test_pipelines_of_ops_that_take_no_time_replay_clean(times: str, hop: int) -> None:
    result = gapless.pipeline.solve(f"uniform:{times}", ranks=3, micro_batches=4, hop=hop)
    assert result.valid
    assert result.status in (Status.OPTIMAL, Status.FEASIBLE)


def test_times_that_only_number_events_keep_their_order() -> None:
    program = [replace(run(0, 0.0, 0.0), start_s=float(k), end_s=k + 1.0) for k in range(5)]
    assert by_start(program) == program
