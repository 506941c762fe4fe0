"""What pictures draw: rows, kinds, and how busy a row is."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from gapless.checker import check
from gapless.ir.graph import Graph, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.plot.lanes import (
    BETWEEN_NODES,
    IN_NODE,
    REDUCING,
    Lanes,
    busiest,
    by_device,
    joined,
    lanes_of,
    resource_lanes_of,
    utilisation,
)
from gapless.topologies.topology import Link, Topology


def lanes(row: list[int], kind: list[int], start_s: list[float], end_s: list[float]) -> Lanes:
    """Lanes of two rows and two kinds."""
    return Lanes(
        names=("0", "1"),
        device=(0, 1),
        is_link=(False, False),
        kinds=("a", "b"),
        row=np.array(row),
        kind=np.array(kind),
        start_s=np.array(start_s),
        end_s=np.array(end_s),
        label=tuple(f"event {number}" for number in range(len(row))),
    )


def two_nodes() -> Schedule:
    """A send in a node, one between nodes, and one that reduces; a link that nothing uses."""
    topology = Topology("four", (0, 0, 1, 1), tuple(Link(a, b, 1.0, 0.0) for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))))
    graph = Graph(np.array([1]), initial=Placement.of([(0, 0)]), tensor_names=("chunk",))
    events = [
        Event(EventKind.TRANSFER, 0.0, 1.0, 0, moves=(0,)),
        Event(EventKind.TRANSFER, 1.0, 3.0, 1, moves=(0,)),
        Event(EventKind.TRANSFER, 3.0, 4.0, 2, moves=(0,), reduces=True),
    ]
    return schedule_from_events(graph, topology, events, "four")


def test_sends_are_told_apart_and_unused_links_have_no_row() -> None:
    found = lanes_of(two_nodes())
    assert found.names == ("0 \u2192 1", "1 \u2192 2", "2 \u2192 3")
    assert found.kinds[0] == BETWEEN_NODES  # takes most of the time
    assert set(found.kinds) == {BETWEEN_NODES, IN_NODE, REDUCING}
    assert [found.kinds[kind] for kind in found.kind] == [IN_NODE, BETWEEN_NODES, REDUCING]
    assert found.label == ("chunk", "chunk", "chunk")
    assert lanes_of(two_nodes(), ["a", "b", "c", "d"]).names[0] == "a \u2192 b"


def test_time_of_every_row_is_what_the_replay_counts(random_schedule: Callable[[random.Random], Schedule]) -> None:
    for seed in range(50):
        schedule = random_schedule(random.Random(seed))
        found, busy = lanes_of(schedule), check(schedule).busy_s
        assert (found.end_s - found.start_s).sum() == pytest.approx(sum(busy.links) + sum(busy.engines))
        assert len(found.names) == sum(held > 0 for held in (*busy.links, *busy.engines))


def test_time_of_every_resource_is_what_the_replay_counts(random_schedule: Callable[[random.Random], Schedule]) -> None:
    for seed in range(50):
        schedule = random_schedule(random.Random(seed))
        found, report = resource_lanes_of(schedule), check(schedule)
        held_s = np.bincount(found.row, weights=found.end_s - found.start_s, minlength=len(found.names))
        by_name = dict(zip(schedule.topology.resources, report.busy_s.resources, strict=True))
        assert held_s == pytest.approx([by_name[name] for name in found.names])
        assert {name for name, held in by_name.items() if held > 0} == set(found.names)
        assert found.span_s == pytest.approx(report.makespan_s)


def test_resources_stand_by_name_with_numbers_in_order() -> None:
    names = ("node10:nic", "node9:out", "node9:nic2", "node9:nic10")
    links = tuple(Link(0, 1, 1.0, 0.0, resources=(k,)) for k in range(4))
    topology = Topology("two", (0, 1), links, resources=names)
    graph = Graph(np.array([1]), initial=Placement.of([(0, 0)]))
    events = [Event(EventKind.TRANSFER, float(k), k + 1.0, k, moves=(0,)) for k in range(4)]
    found = resource_lanes_of(schedule_from_events(graph, topology, events))
    assert found.names == ("node9:nic2", "node9:nic10", "node9:out", "node10:nic")
    assert found.row.tolist() == [3, 2, 0, 1]


def test_the_busiest_rows_are_kept_in_their_order() -> None:
    every = lanes([0, 1, 1], [0, 0, 1], [0, 0, 3], [1, 1, 4])
    found = busiest(every, 1)
    assert found.names == ("1",)
    assert found.row.tolist() == [0, 0]
    assert found.label == ("event 1", "event 2")
    assert busiest(every, 2) is every


def test_narrow_events_of_one_kind_that_touch_become_one() -> None:
    found = joined(lanes([0, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0, 1, 2, 4, 2], [1, 2, 3, 9, 3]), narrow_s=2.0)
    assert list(zip(found.row, found.kind, found.start_s, found.end_s, strict=True)) == [
        (0, 0, 0, 2), (0, 1, 2, 3), (0, 0, 4, 9), (1, 0, 2, 3),
    ]  # fmt: skip
    assert found.label == ("", "event 2", "event 3", "event 4")


def test_utilisation_is_the_share_of_each_slice() -> None:
    found = utilisation(lanes([0, 1, 1], [0, 0, 1], [0.5, 0, 3], [2.25, 1, 4]), bins=4)
    assert found[0].tolist() == [[0.5, 1.0, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0]]
    assert found[1].tolist() == [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]


def test_events_at_one_time_in_one_row_count_once() -> None:
    found = utilisation(lanes([0, 0, 0], [0, 0, 0], [0, 0, 2], [2, 1, 4]), bins=2)
    assert found[0, 0].tolist() == [1.0, 1.0]
    overlapping = utilisation(lanes([0, 0], [0, 0], [0, 1], [3, 4]), bins=4)
    assert overlapping[0, 0].tolist() == [1.0] * 4


def test_rows_by_device_hold_all_events_and_are_few() -> None:
    count = 1000
    links = tuple(Link(k, (k + 1) % count, 1.0, 0.0) for k in range(count))
    graph = Graph(np.array([1]), initial=Placement.of([(0, k) for k in range(count)]))
    events = [Event(EventKind.TRANSFER, 0.0, 1.0, k, moves=(0,)) for k in range(count)]
    schedule = schedule_from_events(graph, Topology("ring", tuple(range(count)), links), events)
    found = by_device(lanes_of(schedule), (), most_rows=96)
    assert len(found.names) <= 96
    assert len(found.row) == count
    assert found.names[0] == "0\u201310"
    assert found.names[-1].endswith("999")
