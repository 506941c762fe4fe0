"""Every rule of the checker: a small valid schedule, broken on purpose in one way, breaks that rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gapless.checker import Report, Rule, check
from gapless.checker import copies as copies_module
from gapless.checker.report import STORED_PER_RULE
from gapless.ir.graph import Budget, Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Ragged, Schedule, schedule_from_events
from gapless.topologies.ports.congestion import Congestion, Slowdown
from gapless.topologies.topology import Link, Topology

COMPUTE, TRANSFER = EventKind.COMPUTE, EventKind.TRANSFER

# Two devices; both links hold one port. x is moved to device 1, where f makes y of it; y moves back.
TOPOLOGY = Topology(
    name="pair",
    node_of_device=(0, 0),
    links=(Link(0, 1, 1.0, 0.1, (0,)), Link(1, 0, 1.0, 0.1, (0,))),
    resources=("port",),
    memory_bytes=(30.0, 33.0),
)
X, Y = 0, 1
GRAPH = Graph(
    size_bytes=np.array([10, 20]),
    ops=(Op("f", (X,), (Y,), (Implementation(2.0, workspace_bytes=3),)),),
    initial=Placement.of([(X, 0)]),
    required=Placement.of([(Y, 0)]),
    tensor_names=("x", "y"),
)
SEND = Event(TRANSFER, 0.0, 2.0, 0, moves=(X,))
RUN = Event(COMPUTE, 2.0, 4.0, 1, op=0, frees=((X, 1),))
RETURN = Event(TRANSFER, 4.0, 7.0, 1, moves=(Y,))


def replay(*events: Event, graph: Graph = GRAPH, topology: Topology = TOPOLOGY) -> Report:
    return check(schedule_from_events(graph, topology, events))


def rules(report: Report) -> set[str]:
    return {violation.rule.value for violation in report.violations}


def test_the_unbroken_schedule_is_valid_and_its_numbers_are_recomputed() -> None:
    report = replay(SEND, RUN, RETURN)
    assert report.valid
    assert report.violations == ()
    assert report.makespan_s == 7.0
    assert report.peak_bytes == (30, 33)
    assert report.busy_s.links == (2.0, 3.0)
    assert report.busy_s.engines == (0.0, 2.0)
    assert report.busy_s.resources == (5.0,)
    assert report.event_count == 3


def test_reading_what_was_never_there_is_input_missing() -> None:
    assert rules(replay(RUN)) == {"input-missing", "required-missing"}


def test_reading_a_freed_copy_is_input_missing() -> None:
    again = replace(RUN, start_s=7.0, end_s=9.0, frees=())
    report = replay(SEND, RUN, RETURN, again)
    assert rules(report) == {"input-missing"}
    (violation,) = report.violations
    assert (violation.event, violation.tensor, violation.device) == (3, X, 1)
    assert (violation.start_s, violation.end_s) == (7.0, 9.0)
    assert violation.message == "event 3 (op f): reads tensor x on device 1, which is not there"


def test_reading_an_overwritten_copy_is_input_missing() -> None:
    in_place = Op("g", (X,), (Y,), (Implementation(1.0, overwrites=(X,)), Implementation(1.0)))
    graph = replace(GRAPH, ops=(in_place,), required=Placement.of([(Y, 0)]))
    first = Event(COMPUTE, 0.0, 1.0, 0, op=0)
    assert replay(first, graph=graph).valid
    again = replace(first, start_s=1.0, end_s=2.0, implementation=1)
    assert rules(replay(first, again, graph=graph)) == {"input-missing"}


def test_freeing_what_is_not_there_is_input_missing() -> None:
    report = replay(SEND, RUN, replace(RETURN, frees=((X, 1),)))
    assert rules(report) == {"input-missing"}
    assert "frees tensor x on device 1, which is not there" in report.violations[0].message


def test_starting_before_the_input_arrives_is_input_late() -> None:
    report = replay(SEND, replace(RUN, start_s=1.5), RETURN)
    assert rules(report) == {"input-late"}
    assert report.violations[0].event == 1


def test_an_update_of_a_copy_that_nobody_else_writes_is_input_missing_not_late() -> None:
    graph = Graph(np.array([4]), ops=(Op("u", (0,), (0,), (Implementation(1.0),)),))
    assert rules(replay(Event(COMPUTE, 0.0, 1.0, 0, op=0), graph=graph)) == {"input-missing"}


def test_a_reduction_onto_nothing_is_input_missing() -> None:
    report = replay(replace(SEND, reduces=True), RUN, RETURN)
    assert rules(report) == {"input-missing"}


@pytest.mark.parametrize(
    ("place", "holder"), [(0, "link 0->1"), (1, "resource port")], ids=["the same link", "another link on its port"]
)
def test_taking_what_another_event_holds_is_resource_overlap(place: int, holder: str) -> None:
    graph = replace(GRAPH, initial=Placement.of([(X, 0), (X, 1), (Y, 0), (Y, 1)]))
    report = replay(Event(TRANSFER, 0.0, 3.0, 0, moves=(Y,)), Event(TRANSFER, 2.0, 4.0, place, moves=(X,)), graph=graph)
    assert rules(report) == {"resource-overlap"}
    assert f"takes {holder} while event 0 holds it until 3 s" in {v.message.split(": ")[1] for v in report.violations}


def test_two_ops_at_once_on_an_engine_are_resource_overlap() -> None:
    graph = replace(GRAPH, ops=(Op("f", (), (X,), (Implementation(2.0),)), Op("g", (), (Y,), (Implementation(2.0),))))
    first, second = Event(COMPUTE, 0.0, 2.0, 0, op=0), Event(COMPUTE, 1.0, 3.0, 0, op=1)
    graph = replace(graph, initial=Placement.of([]))
    assert rules(replay(first, second, graph=graph)) == {"resource-overlap"}
    assert replay(first, replace(second, start_s=2.0, end_s=4.0), graph=graph).valid


@pytest.mark.parametrize("event", [0, 1, 2])
def test_taking_less_time_than_it_needs_is_duration_too_short(event: int) -> None:
    events = [SEND, RUN, RETURN]
    events[event] = replace(events[event], start_s=events[event].start_s + 0.01)
    report = replay(*events)
    assert rules(report) == {"duration-too-short"}
    assert report.violations[0].event == event


def test_a_second_link_through_a_port_makes_both_transfers_too_short() -> None:
    graph = Graph(np.array([10, 10]), (), Placement.of([(0, 0), (1, 0)]), Placement.of([(0, 1)]))
    sides = Congestion(((0,), (1,), (2,)), Slowdown((1, 2), (1.0, 1.5)))
    links = (Link(0, 1, 1.0, 0.1, (0, 1)), Link(0, 2, 1.0, 0.1, (0, 2)))
    star = Topology("star", (0, 0, 0), links, resources=("out0", "in1", "in2"), congestion=(sides,))
    first = Event(TRANSFER, 0.0, 2.0, 0, moves=(0,))
    assert replay(first, replace(first, start_s=2.0, end_s=4.0), graph=graph, topology=star).valid  # one link, twice
    second = Event(TRANSFER, 2.0, 4.0, 1, moves=(1,))
    report = replay(first, second, graph=graph, topology=star)
    assert [violation.message for violation in report.violations] == [
        "event 0 (transfer on link 0->1): takes 2 s, but needs 2.5 s",
        "event 1 (transfer on link 0->2): takes 2 s, but needs 2.5 s",
    ]
    slow = replace(first, end_s=2.5), replace(second, start_s=2.5, end_s=5.0)
    assert replay(*slow, graph=graph, topology=star).valid


def test_several_tensors_in_one_transfer_pay_alpha_once() -> None:
    graph = replace(GRAPH, initial=Placement.of([(X, 0), (Y, 0)]))
    both = Event(TRANSFER, 0.0, 4.0, 0, moves=(X, Y))
    assert replay(both, graph=graph).valid
    assert rules(replay(replace(both, end_s=3.9), graph=graph)) == {"duration-too-short"}


@pytest.mark.parametrize("device", [0, 1])
def test_a_peak_above_capacity_is_memory_exceeded(device: int) -> None:
    capacity = [30.0, 33.0]
    capacity[device] -= 1
    report = replay(SEND, RUN, RETURN, topology=replace(TOPOLOGY, memory_bytes=tuple(capacity)))
    assert rules(report) == {"memory-exceeded"}
    (violation,) = report.violations
    assert violation.device == device
    assert violation.event == (2, 1)[device]
    assert f"holds {(30, 33)[device]} bytes at {(4, 2)[device]} s, and has {(29, 32)[device]}" in violation.message


def test_a_required_copy_that_is_not_there_at_the_end_is_required_missing() -> None:
    freeing = replace(SEND, start_s=7.0, end_s=9.0, frees=((Y, 0),))
    for report in (replay(SEND, RUN), replay(SEND, RUN, RETURN, freeing)):
        assert rules(report) == {"required-missing"}
        assert (report.violations[0].tensor, report.violations[0].device) == (Y, 0)


def test_an_empty_schedule_lacks_what_is_required_and_is_valid_where_nothing_is() -> None:
    assert rules(replay()) == {"required-missing"}
    bare = Graph(np.array([1]), required=Placement.of([(0, 0)]))
    assert rules(replay(graph=bare)) == {"required-missing"}
    assert replay(graph=replace(GRAPH, required=GRAPH.initial)).valid


@pytest.mark.parametrize(
    "event",
    [
        Event(TRANSFER, 2.5, 5.0, 0, moves=(X,)),
        Event(COMPUTE, 3.0, 3.5, 3, op=1, frees=((X, 1),)),
        Event(COMPUTE, 3.0, 3.5, 3, op=2),
    ],
    ids=["written", "freed", "overwritten"],
)
def test_changing_a_copy_that_another_event_reads_is_not_free(event: Event) -> None:
    ops = (
        *GRAPH.ops,
        Op("short", (), (), (Implementation(0.5),)),
        Op("in place", (X,), (), (Implementation(0.5, overwrites=(X,)),)),
    )
    topology = replace(TOPOLOGY, engines=((0, "a"), (1, "a"), (0, "b"), (1, "b")))
    events = [SEND, replace(RUN, frees=()), replace(RETURN, start_s=5.0, end_s=8.0), event]
    report = replay(*events, graph=replace(GRAPH, ops=ops), topology=topology)
    assert rules(report) == {"not-free"}
    (violation,) = report.violations
    assert (violation.event, violation.tensor, violation.device) == (3, X, 1)
    assert "while event 1 still uses it" in violation.message


def test_reading_a_copy_that_is_being_written_again_is_not_free() -> None:
    second = replace(SEND, start_s=2.0, end_s=4.0)
    report = replay(SEND, second, replace(RUN, start_s=3.0, end_s=5.0), replace(RETURN, start_s=5.0, end_s=8.0))
    assert [(violation.rule, violation.event) for violation in report.violations] == [(Rule.NOT_FREE, 2)]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (replace(SEND, place=2), "its place must be one of the topology's 2 links"),
        (replace(SEND, place=-1), "its place must be one of the topology's 2 links"),
        (replace(SEND, moves=()), "moves no tensor"),
        (replace(SEND, moves=(X, 2)), "moves a tensor not among the graph's 2"),
        (replace(SEND, moves=(-1,)), "moves a tensor not among the graph's 2"),
        (replace(SEND, frees=((2, 0),)), "frees a tensor not among the graph's 2"),
        (replace(SEND, frees=((X, 2),)), "frees on a device not among the topology's 2"),
        (replace(SEND, end_s=-1.0), "ends before it starts"),
        (replace(SEND, start_s=-1.0), "starts before time 0"),
        (replace(RUN, place=2), "its place must be one of the topology's 2 engines"),
        (replace(RUN, op=1), "its op must be one of the graph's 1 ops"),
        (replace(RUN, op=-1), "its op must be one of the graph's 1 ops"),
        (replace(RUN, implementation=1), "its op has no such implementation"),
        (replace(RUN, implementation=-1), "its op has no such implementation"),
    ],
)
def test_an_event_that_names_what_is_not_there_is_unknown_id_and_left_out(event: Event, text: str) -> None:
    graph = replace(GRAPH, required=GRAPH.initial)
    report = replay(event, graph=graph)
    assert rules(report) == {"unknown-id"}
    assert report.violations[0].event == 0
    assert report.violations[0].message.endswith(text)
    assert report.makespan_s == 0.0
    assert report.event_count == 1


def test_an_event_of_no_kind_is_unknown_id() -> None:
    schedule = schedule_from_events(GRAPH, TOPOLOGY, [SEND, RUN, RETURN])
    report = check(replace(schedule, kind=np.array([1, 7, 1])))
    assert "unknown-id" in rules(report)
    assert report.violation_counts[Rule.UNKNOWN_ID] == 1


def test_placements_on_devices_that_the_topology_lacks_are_unknown_id() -> None:
    graph = replace(GRAPH, initial=Placement.of([(X, 0), (X, 5)]), required=Placement.of([(Y, 0), (Y, 6)]))
    report = replay(SEND, RUN, RETURN, graph=graph)
    assert rules(report) == {"unknown-id"}
    assert [violation.device for violation in report.violations] == [5, 6]


def test_wild_numbers_are_violations_and_never_exceptions() -> None:
    wild = np.array([-(2**63), -(2**31), -1, 0, 1, 2**31, 2**63 - 1])
    count = len(wild)
    lists = Ragged(np.arange(count + 1), wild)
    times = np.array([-1e308, -1.0, 0.0, 1.0, 1e-300, 1e308, 1.7e308])
    for kind in (0, 1, 2):
        schedule = Schedule(
            graph=GRAPH,
            topology=TOPOLOGY,
            kind=np.full(count, kind),
            start_s=times,
            end_s=times[::-1].copy(),
            place=wild,
            op=wild,
            implementation=wild,
            reduces=np.ones(count, dtype=np.bool_),
            moves=lists,
            freed_tensor=lists,
            freed_device=lists,
        )
        assert not check(schedule).valid


def test_costs_beyond_all_numbers_are_too_short_durations_not_warnings() -> None:
    topology = replace(TOPOLOGY, links=(Link(0, 1, 1.0, 1e308), Link(1, 0, 1.0, 0.1)))
    assert "duration-too-short" in rules(replay(SEND, RUN, RETURN, topology=topology))


def test_violations_are_all_counted_and_the_first_of_each_rule_kept() -> None:
    events = [replace(SEND, start_s=3.0 * number, end_s=3.0 * number + 1) for number in range(STORED_PER_RULE + 50)]
    report = replay(*events)
    assert report.violation_counts == {Rule.DURATION_TOO_SHORT: STORED_PER_RULE + 50, Rule.REQUIRED_MISSING: 1}
    assert report.violation_count == STORED_PER_RULE + 51
    assert len(report.violations) == STORED_PER_RULE + 1
    assert not report.valid
    assert "duration-too-short (150): event 0 (transfer on link 0->1): takes 1 s, but needs 2 s" in report.summary()


def test_the_summary_of_a_valid_schedule_says_so_with_makespan_and_peak() -> None:
    report = replay(SEND, RUN, RETURN)
    assert report.summary() == "3 events: valid\nmakespan 7 s, peak memory 33 B on device 1"
    assert report.summary(("device", "host")).endswith("peak memory 33 B on host")


def test_what_runs_spends_no_more_than_a_budget() -> None:
    spending = (Implementation(2.0, spends=((0, 0.5), (1, 3.0))), Implementation(2.0, spends=((0, 0.25),)))
    op = Op("f", (X,), (Y,), spending)
    for limit, implementation, spent in ((0.5, 0, (0.5, 3.0)), (0.4, 0, (0.5, 3.0)), (0.4, 1, (0.25, 0.0))):
        graph = replace(GRAPH, ops=(op,), budgets=(Budget("error", limit), Budget("words", 3.0)))
        report = replay(SEND, replace(RUN, implementation=implementation), RETURN, graph=graph)
        assert report.spent == spent
        assert rules(report) == ({"budget-exceeded"} if spent[0] > limit else set())
    assert (
        "budget 'error': 0.5 is spent of 0.4"
        in replay(
            SEND, RUN, RETURN, graph=replace(GRAPH, ops=(op,), budgets=(Budget("error", 0.4), Budget("words", 3.0)))
        ).summary()
    )


def test_rules_have_exactly_the_names_of_the_design() -> None:
    assert [rule.value for rule in Rule] == [
        "input-missing",
        "input-late",
        "input-stale",
        "resource-overlap",
        "duration-too-short",
        "memory-exceeded",
        "double-reduction",
        "required-missing",
        "not-free",
        "budget-exceeded",
        "decision-broken",
        "switch-op-malformed",
        "unknown-id",
    ]


def test_the_verdict_does_not_depend_on_the_size_of_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [SEND, replace(SEND, start_s=2.5, end_s=5.0), RUN, RETURN, replace(RUN, start_s=9.0, end_s=11.0)]
    whole = replay(*broken)
    for size in (1, 2, 3, 5):
        monkeypatch.setattr(copies_module, "BLOCK", size)
        assert replay(*broken) == whole
    assert rules(whole) == {"not-free", "resource-overlap"}


# Ties: what happens at one instant happens in a fixed order.


def test_at_one_instant_ends_come_before_starts_whatever_the_listing() -> None:
    assert replay(RETURN, RUN, SEND).valid


def test_float_noise_between_back_to_back_events_is_no_time() -> None:
    noise = 3e-10
    late = [replace(SEND, end_s=2.0 + noise), replace(RUN, end_s=4.0 + noise), RETURN]
    assert replay(*late).valid
    assert not replay(replace(SEND, end_s=2.0 + 1e-6), RUN, RETURN).valid


def test_events_of_no_duration_at_one_instant_follow_the_listing() -> None:
    chain = tuple(Op(f"o{k}", (k,), (k + 1,), (Implementation(0.0),)) for k in range(3))
    graph = Graph(np.array([1, 1, 1, 1]), ops=chain, initial=Placement.of([(0, 0)]), required=Placement.of([(3, 0)]))
    events = [Event(COMPUTE, 5.0, 5.0, 0, op=k) for k in range(3)]
    assert replay(*events, graph=graph).valid
    assert rules(replay(*events[::-1], graph=graph)) == {"input-late"}


def test_two_events_that_end_together_may_free_what_the_other_read() -> None:
    both = (Op("a", (0, 1), (2,), (Implementation(1.0),)), Op("b", (0, 1), (3,), (Implementation(1.0),)))
    graph = Graph(np.array([1, 1, 1, 1]), ops=both, initial=Placement.of([(0, 0), (1, 0)]))
    topology = Topology("two engines", (0,), engines=((0, "a"), (0, "b")))
    events = [Event(COMPUTE, 0.0, 1.0, k, op=k, frees=((k, 0),)) for k in range(2)]
    assert replay(*events, graph=graph, topology=topology).valid


def test_bytes_freed_at_an_instant_are_there_for_what_starts_then() -> None:
    graph = Graph(
        np.array([10, 10, 10]),
        ops=tuple(Op(f"o{k}", (k,), (k + 1,), (Implementation(1.0),)) for k in range(2)),
        initial=Placement.of([(0, 0)]),
    )
    events = [Event(COMPUTE, 1.0 * k, 1.0 + k, 0, op=k, frees=((k, 0),)) for k in range(2)]
    assert replay(*events[::-1], graph=graph).peak_bytes == (20, 0)
