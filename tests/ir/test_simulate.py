from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.checker import check
from gapless.errors import InputError
from gapless.ir.collective import allgather
from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.ir.simulate import retime
from gapless.topologies.topology import Link, Topology

COMPUTE, TRANSFER = EventKind.COMPUTE, EventKind.TRANSFER
PAIR = Topology("pair", (0, 0), links=(Link(0, 1, 1.0, 0.1), Link(1, 0, 1.0, 0.1)))


def chain_schedule(*start_s: float) -> Schedule:
    """x goes from 0 to 1, where f makes y of it, which comes back."""
    graph = Graph(
        np.array([10, 20]),
        ops=(Op("f", (0,), (1,), (Implementation(2.0),)),),
        initial=Placement.of([(0, 0)]),
        required=Placement.of([(1, 0)]),
    )
    events = [
        Event(TRANSFER, 0.0, 0.0, 0, moves=(0,)),
        Event(COMPUTE, 0.0, 0.0, 1, op=0, frees=((0, 1),)),
        Event(TRANSFER, 0.0, 0.0, 1, moves=(1,)),
    ]
    timed = [replace(event, start_s=start, end_s=start) for event, start in zip(events, start_s, strict=True)]
    return schedule_from_events(graph, PAIR, timed)


def test_a_schedule_whose_times_only_number_its_events_gets_earliest_times() -> None:
    retimed = retime(chain_schedule(0.0, 1.0, 2.0))
    assert retimed.start_s.tolist() == [0.0, 2.0, 4.0]
    assert retimed.end_s.tolist() == [2.0, 4.0, 7.0]
    assert check(retimed).valid


def test_events_at_one_instant_keep_the_listed_order() -> None:
    assert retime(chain_schedule(0.0, 0.0, 0.0)).start_s.tolist() == [0.0, 2.0, 4.0]


def test_other_link_costs_and_sizes_give_other_times_in_the_same_order() -> None:
    fast = replace(PAIR, links=(Link(0, 1, 0.5, 0.0), Link(1, 0, 0.0, 1.0)))
    retimed = retime(chain_schedule(0.0, 1.0, 2.0), fast, np.array([100, 3]))
    assert retimed.start_s.tolist() == [0.0, 0.5, 2.5]
    assert retimed.end_s[-1] == 5.5
    assert retimed.topology == fast
    assert retimed.graph.size_bytes.tolist() == [100, 3]
    assert check(retimed).valid


def test_grouping_is_kept_and_links_work_side_by_side() -> None:
    graph = allgather(2, chunks_per_rank=2).graph(10)
    events = [Event(TRANSFER, 5.0, 9.0, 0, moves=(0, 1)), Event(TRANSFER, 9.0, 12.0, 1, moves=(2,))]
    events.append(Event(TRANSFER, 12.0, 15.0, 1, moves=(3,)))
    retimed = retime(schedule_from_events(graph, PAIR, events))
    assert [(event.start_s, event.end_s, event.moves) for event in retimed.events()] == [
        (0.0, 2.0, (2,)),
        (0.0, 3.0, (0, 1)),
        (2.0, 4.0, (3,)),
    ]


def test_events_on_a_shared_resource_keep_their_order() -> None:
    links = (Link(0, 1, 1.0, 0.0, (0,)), Link(0, 2, 1.0, 0.0, (0,)))
    port = Topology("port", (0, 0, 0), links=links, resources=("port",))
    graph = Graph(np.array([1]), initial=Placement.of([(0, 0)]))
    events = [Event(TRANSFER, 5.0, 6.0, 1, moves=(0,)), Event(TRANSFER, 8.0, 9.0, 0, moves=(0,))]
    retimed = retime(schedule_from_events(graph, port, events))
    assert [(event.place, event.start_s) for event in retimed.events()] == [(1, 0.0), (0, 1.0)]


def two_stream_schedule(long_s: float, short_s: float) -> Schedule:
    """The long op frees x at its end, which the short one, starting later on the other stream, reads before."""
    ops = (Op("long", (), (), (Implementation(long_s),)), Op("short", (0,), (), (Implementation(short_s),)))
    graph = Graph(np.array([1]), ops=ops, initial=Placement.of([(0, 0)]))
    topology = Topology("streams", (0,), engines=((0, "a"), (0, "b")))
    events = [Event(COMPUTE, 0.0, 9.0, 0, op=0, frees=((0, 0),)), Event(COMPUTE, 1.0, 6.0, 1, op=1)]
    return schedule_from_events(graph, topology, events)


@pytest.mark.parametrize(
    ("long_s", "short_s", "end_s"),
    [(5.0, 2.0, 5.0), (1.0, 4.0, 4.0), (0.0, 4.0, 4.0), (3.0, 0.0, 3.0), (0.0, 0.0, 0.0)],
)
def test_what_is_freed_is_freed_after_its_earlier_readers_end(long_s: float, short_s: float, end_s: float) -> None:
    retimed = retime(two_stream_schedule(long_s, short_s))
    report = check(retimed)
    assert report.valid, report.summary()
    assert report.makespan_s == end_s


def mutual_schedule(durations_s: tuple[float, float]) -> Schedule:
    """Two ops that end together; each frees what the other reads."""
    ops = tuple(Op(f"o{k}", (0, 1), (), (Implementation(durations_s[k]),)) for k in range(2))
    graph = Graph(np.array([1, 1]), ops=ops, initial=Placement.of([(0, 0), (1, 0)]))
    topology = Topology("streams", (0,), engines=((0, "a"), (0, "b")))
    events = [Event(COMPUTE, 0.0, 9.0, k, op=k, frees=((k, 0),)) for k in range(2)]
    return schedule_from_events(graph, topology, events)


def test_two_events_that_free_what_the_other_reads_still_end_together() -> None:
    retimed = retime(mutual_schedule((3.0, 1.0)))
    assert sorted(retimed.start_s.tolist()) == [0.0, 2.0]
    assert check(retimed).valid


def test_an_order_that_no_times_can_keep_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"event 0 frees what another uses .* free the tensor in a later event"):
        retime(mutual_schedule((3.0, 0.0)))


def test_an_event_that_names_what_is_not_there_is_an_input_error() -> None:
    schedule = chain_schedule(0.0, 1.0, 2.0)
    with pytest.raises(InputError, match=r"event 1 .*its op must be one of the graph's 1 ops"):
        retime(replace(schedule, op=np.array([-1, 4, -1])))


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (Topology("three", (0, 0, 0), links=PAIR.links), "must have 2 devices, got 3"),
        (Topology("one way", (0, 0), links=PAIR.links[:1]), "the same 2 links with the same ends, got 1 links"),
        (Topology("turned", (0, 0), links=PAIR.links[::-1]), "the same 2 links with the same ends"),
        (replace(PAIR, engines=((0, "only"),)), "must have the engines"),
    ],
)
def test_a_topology_that_does_not_fit_is_an_input_error(topology: Topology, message: str) -> None:
    with pytest.raises(InputError, match=message):
        retime(chain_schedule(0.0, 1.0, 2.0), topology)


def test_sizes_of_the_wrong_number_are_an_input_error() -> None:
    with pytest.raises(InputError, match="size_bytes must have 2 elements, got 3"):
        retime(chain_schedule(0.0, 1.0, 2.0), size_bytes=np.array([1, 2, 3]))


def test_an_empty_schedule_stays_empty() -> None:
    assert len(retime(schedule_from_events(Graph(np.array([1])), PAIR, []))) == 0


@examples(200)
@given(seed=st.integers(0, 2**32))
def test_a_clean_schedule_stays_clean_is_never_longer_and_does_not_move_again(
    seed: int, random_schedule: Callable[[random.Random], Schedule]
) -> None:
    schedule = random_schedule(random.Random(seed))
    retimed = retime(schedule)
    report = check(retimed)
    assert report.violations == ()
    assert report.makespan_s <= check(schedule).makespan_s * (1 + 1e-9)
    assert list(retime(retimed).events()) == list(retimed.events())


@examples(200)
@given(seed=st.integers(0, 2**32))
def test_a_clean_schedule_stays_clean_under_other_costs(
    seed: int, random_schedule: Callable[[random.Random], Schedule]
) -> None:
    chance = random.Random(seed)
    schedule = random_schedule(chance)
    links = tuple(
        replace(link, alpha_s=chance.choice([0.0, 0.3, 1.0]), beta_s_per_byte=chance.choice([0.0, 0.1, 0.7]))
        for link in schedule.topology.links
    )
    sizes = np.array([chance.randint(0, 5) for _ in range(schedule.graph.tensor_count)])
    retimed = retime(schedule, replace(schedule.topology, links=links), sizes)
    assert check(retimed).violations == ()
    assert len(retimed) == len(schedule)
