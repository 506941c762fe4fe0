"""A schedule in the making is the schedule that its list of events says."""

from __future__ import annotations

import numpy as np

from gapless.checker import check
from gapless.ir.graph import Budget, Implementation, Op
from gapless.ir.schedule import EventKind
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.topologies.topology import Link, Topology

PAIR = Topology("pair", (0, 0), links=(Link(0, 1, 1.0, 0.5),), engines=((0, "compute"), (1, "compute")))


def sent_and_added() -> ScheduleBuilder:
    """Device 0 makes a tensor and sends it; device 1 adds its own part to it."""
    builder = ScheduleBuilder(counts_contributions=True)
    own, made, total = builder.tensor("own", 4), builder.tensor("made", 2.0), builder.tensor("total")
    builder.initial.append((own, 1, 0b10))
    end_s = builder.compute("make", "forward", 0, 0.0, 3.0, (), (made,), adds=0)
    builder.move(0, (made,), end_s, 2.0, freed_on=(0,))
    op = Op("add", (own, made), (total,), (Implementation(0.0),), reduces=True)
    builder.run(op, 1, 5.0, 5.0, [(own, 1), (made, 1)])
    builder.required.append((total, 1, 0b11))
    return builder


def test_tensors_have_numbers_names_and_whole_sizes() -> None:
    graph = sent_and_added().graph((Budget("spent", 1.0),))
    assert graph.tensor_names == ("own", "made", "total")
    assert graph.size_bytes.tolist() == [4, 2, 0]
    assert graph.size_bytes.dtype == np.int64
    assert graph.budgets == (Budget("spent", 1.0),)


def test_what_is_built_replays() -> None:
    report = check(sent_and_added().schedule(PAIR, "pair"))
    assert report.valid
    assert report.makespan_s == 5.0


def test_contributions_count_only_where_they_are_said_to() -> None:
    builder = ScheduleBuilder(initial=[(0, 0, 7)], names=["a"], size_bytes=[1])
    assert builder.graph().initial.contributions is None
    builder.counts_contributions = True
    assert builder.graph().initial.contributions == (7,)


def test_events_stand_by_their_starts_unless_the_list_is_their_order() -> None:
    builder = ScheduleBuilder()
    for name, start_s in (("late", 2.0), ("early", 0.0)):
        builder.compute(name, "", 0, start_s, 1.0, (), (builder.tensor(name),))
    assert builder.schedule(PAIR, "").start_s.tolist() == [0.0, 2.0]
    assert builder.schedule(PAIR, "", as_listed=True).start_s.tolist() == [2.0, 0.0]


def test_of_one_instant_what_takes_no_time_stands_first() -> None:
    builder = ScheduleBuilder()
    first, second = builder.tensor("first"), builder.tensor("second")
    builder.compute("long", "", 0, 0.0, 1.0, (), (second,))
    builder.compute("instant", "", 1, 0.0, 0.0, (), (first,))
    schedule = builder.schedule(PAIR, "")
    assert [schedule.event(number).op for number in range(2)] == [1, 0]


def test_the_event_that_ends_last_frees_what_all_have_read() -> None:
    builder = ScheduleBuilder()
    made = builder.tensor("made")
    builder.compute("make", "", 0, 0.0, 1.0, (), (made,))
    before = len(builder.events)
    for engine, duration_s in ((0, 3.0), (1, 2.0)):
        builder.compute("read", "", engine, 1.0, duration_s, (made,), (builder.tensor("read"),))
    for device in range(2):
        builder.free([made], device, after=before)
    assert [event.frees for event in builder.events] == [(), ((made, 0), (made, 1)), ()]


def test_nothing_is_moved_where_there_is_nothing() -> None:
    builder = ScheduleBuilder()
    builder.move(0, (), 0.0)
    assert builder.events == []
    builder.compute("send", "collective", 0, 0.0, 1.0, (), (), event=EventKind.COLLECTIVE)
    assert builder.events[0].kind is EventKind.COLLECTIVE
