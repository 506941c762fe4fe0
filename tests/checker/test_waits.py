"""Why events start when they do, and the chain that the makespan is the length of."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.checker.replay import replayed
from gapless.checker.waits import Reason, Waits, waits
from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Link, Topology

LINKS = (Link(0, 1, 1.0, 0.0, resources=(0,)), Link(1, 2, 1.0, 0.0), Link(0, 2, 2.0, 0.0, resources=(0,)))
"""The links out of 0 share a port."""
MACHINE = Topology("line", (0, 0, 0), LINKS, resources=("port",))
GRAPH = Graph(np.array([1, 1]), (), Placement.of([(0, 0), (1, 0)]), Placement.of([(0, 2)]))


def send(link: int, tensor: int, start_s: float) -> Event:
    return Event(EventKind.TRANSFER, start_s, start_s + LINKS[link].alpha_s, place=link, moves=(tensor,))


def of(*events: Event) -> Waits:
    return waits(replayed(schedule_from_events(GRAPH, MACHINE, events)).program)


def test_an_event_at_the_start_waits_for_nothing() -> None:
    assert of(send(0, 0, 0.0)).reason.tolist() == [Reason.NOTHING]


def test_a_relay_waits_for_what_it_reads() -> None:
    found = of(send(0, 0, 0.0), send(1, 0, 1.0))
    assert found.reason.tolist() == [Reason.NOTHING, Reason.INPUT]
    assert found.cause.tolist() == [-1, 0]
    assert found.is_critical.tolist() == [True, True]


def test_a_send_waits_for_the_port_that_it_shares() -> None:
    found = of(send(0, 0, 0.0), send(2, 1, 1.0))
    assert found.reason.tolist() == [Reason.NOTHING, Reason.RESOURCE]
    assert found.cause.tolist() == [-1, 0]


def test_the_later_cause_counts() -> None:
    found = of(send(0, 0, 0.0), send(0, 1, 1.0), send(1, 1, 2.0), send(1, 0, 3.0))
    assert found.reason.tolist() == [Reason.NOTHING, Reason.RESOURCE, Reason.INPUT, Reason.RESOURCE]
    assert found.cause.tolist() == [-1, 0, 1, 2]


def test_a_start_later_than_it_had_to_be_is_the_plans() -> None:
    found = of(send(0, 0, 0.0), send(1, 0, 1.5))
    assert found.reason.tolist() == [Reason.NOTHING, Reason.PLAN]
    assert found.idle_s.tolist() == [0.0, 0.5]
    late = of(send(0, 0, 0.25))
    assert late.reason.tolist() == [Reason.PLAN]


def test_what_is_on_no_chain_is_not_critical() -> None:
    found = of(send(2, 1, 0.0), send(0, 0, 2.0), send(1, 0, 3.0))
    assert found.is_critical.all()
    found = of(send(0, 0, 0.0), send(1, 0, 1.0), send(2, 1, 1.0))
    assert found.is_critical.tolist() == [True, False, True]


def _random(seed: int) -> Schedule:
    rng = np.random.default_rng(seed)
    events, free_s = [], [0.0, 0.0, 0.0]
    for _ in range(30):
        link = int(rng.integers(3))
        start_s = free_s[link] + float(rng.integers(3))
        events.append(send(link, int(rng.integers(2)), start_s))
        free_s[link] = events[-1].end_s
    return schedule_from_events(GRAPH, MACHINE, events)


@pytest.mark.parametrize("seed", range(20))
def test_causes_are_those_of_a_plain_search(seed: int) -> None:
    schedule = _random(seed)
    program = replayed(schedule).program
    found = waits(program)
    events = list(schedule.events())
    for number, event in enumerate(events):
        link = LINKS[event.place]
        ends_s = [0.0]
        for other in events[:number] + events[number + 1 :]:
            if other.end_s > event.start_s:
                continue
            shares = other.place == event.place or bool(set(LINKS[other.place].resources) & set(link.resources))
            feeds = LINKS[other.place].target == link.source and set(other.moves) & set(event.moves)
            if shares or feeds:
                ends_s.append(other.end_s)
        expected_s = max(ends_s)
        got_s = events[int(found.cause[number])].end_s if found.cause[number] >= 0 else 0.0
        assert got_s == expected_s
        assert found.idle_s[number] == pytest.approx(event.start_s - expected_s)


def test_computations_wait_for_inputs_and_streams() -> None:
    op = Op("a", (0,), (1,), (Implementation(1.0),))
    later = Op("b", (1,), (2,), (Implementation(1.0),))
    graph = Graph(np.array([1, 1, 1]), (op, later), Placement.of([(0, 0)]), Placement.of([(2, 0)]))
    machine = Topology("one", (0,), ())
    events = [Event(EventKind.COMPUTE, 0.0, 1.0, place=0, op=0), Event(EventKind.COMPUTE, 1.0, 2.0, place=0, op=1)]
    found = waits(replayed(schedule_from_events(graph, machine, events)).program)
    assert found.reason.tolist() == [Reason.NOTHING, Reason.INPUT]
