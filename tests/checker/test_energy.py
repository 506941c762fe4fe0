"""Energy of a replay: what each event draws while it runs, and nothing where a power is unknown."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.checker import check
from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Link, Topology

PAIR = Topology("pair", (0, 0), (Link(0, 1, 1.0, 0.0), Link(1, 0, 1.0, 0.0)))


def schedule_of(*impls: Implementation, taken_s: float = 2.0, sends: bool = False) -> Schedule:
    """One op after the other on one engine, each for `taken_s`, and perhaps a transfer in the end."""
    ops = tuple(Op(f"op{number}", (number,), (number + 1,), (impl,)) for number, impl in enumerate(impls))
    events = [
        Event(EventKind.COMPUTE, taken_s * number, taken_s * (number + 1), 0, op=number, implementation=0)
        for number in range(len(ops))
    ]
    end_s = taken_s * len(ops)
    if sends:
        events.append(Event(EventKind.TRANSFER, end_s, end_s + 1.0, 0, moves=(0,)))
    graph = Graph(np.ones(len(ops) + 1, dtype=np.int64), ops, Placement.of([(0, 0)]))
    return schedule_from_events(graph, PAIR, events)


def test_each_event_draws_its_power_for_as_long_as_it_runs() -> None:
    report = check(schedule_of(Implementation(2.0, power_w=10.0), Implementation(1.0, power_w=3.0)))
    assert report.valid
    assert report.energy_j == pytest.approx(26.0)  # the second takes twice the time that it needs
    assert "energy 26 J" in report.summary()


def test_unknown_power_leaves_the_energy_unknown() -> None:
    report = check(schedule_of(Implementation(2.0, power_w=10.0), Implementation(1.0)))
    assert report.valid
    assert report.energy_j is None
    assert " J" not in report.summary()


def test_transfer_has_no_known_power() -> None:
    assert check(schedule_of(Implementation(2.0, power_w=10.0), sends=True)).energy_j is None


def test_what_takes_no_time_needs_no_power() -> None:
    assert check(schedule_of(Implementation(0.0), taken_s=0.0)).energy_j == 0.0


def test_energy_beyond_all_numbers_is_unknown() -> None:
    assert check(schedule_of(Implementation(1e200, power_w=1e200), taken_s=1e200)).energy_j is None
