"""Operations of switches: what they bring and hold, and each way of not being one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from gapless.checker import Report, check
from gapless.errors import InputError
from gapless.ir.graph import Graph, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.ir.simulate import retime
from gapless.ir.switch_ops import SwitchOps
from gapless.topologies.node import NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.ports.switch_groups import Reduction
from gapless.topologies.topology import Topology

# Three ranks behind a switch: alpha 1 s, 10 bytes take 1 s; an operation of the switch costs alpha 2 s besides.
RANKS = 3
REDUCTION = Reduction(alpha_s=2.0, beta_s_per_byte=0.1, reduces_to_all=True)
Op = list[Event]


def machine(reduction: Reduction | None = REDUCTION) -> Topology:
    switch = SwitchTemplate((0, 1, 2), 1.0, 0.1, reduction=reduction)
    return NodeTemplate("three", RANKS, switches=(switch,)).cluster(1)


MACHINE = machine()
LINK = {(link.source, link.target): number for number, link in enumerate(MACHINE.links)}


def send(source: int, target: int, start_s: float, end_s: float, tensor: int = 0, adds: bool = False) -> Event:
    return Event(EventKind.TRANSFER, start_s, end_s, LINK[source, target], moves=(tensor,), reduces=adds)


def reduction(root: int, start_s: float, end_s: float, tensor: int = 0, ranks: Iterable[int] = range(RANKS)) -> Op:
    return [send(rank, root, start_s, end_s, tensor, True) for rank in ranks if rank != root]


def multicast(root: int, start_s: float, end_s: float, tensor: int = 0, ranks: Iterable[int] = range(RANKS)) -> Op:
    return [send(root, rank, start_s, end_s, tensor) for rank in ranks if rank != root]


def to_all(start_s: float, end_s: float, tensor: int = 0) -> Op:
    return [send(a, b, start_s, end_s, tensor, True) for a in range(RANKS) for b in range(RANKS) if a != b]


def summed(tensors: int = 1, where: Iterable[int] = range(RANKS)) -> Graph:
    """Each rank has a part of each tensor; some must have the sum."""
    initial = [(tensor, rank) for tensor in range(tensors) for rank in range(RANKS)]
    required = [(tensor, rank) for tensor in range(tensors) for rank in where]
    return Graph(
        np.full(tensors, 10), (), Placement.of(initial, [1 << rank for _, rank in initial]),
        Placement.of(required, [0b111] * len(required)),
    )  # fmt: skip


def schedule(*ops: Op, plain: Op = (), graph: Graph | None = None, topology: Topology = MACHINE) -> Schedule:  # type: ignore[assignment]
    events = [event for op in ops for event in op] + list(plain)
    numbers = [number for number, op in enumerate(ops) for _ in op] + [-1] * len(plain)
    made = schedule_from_events(summed() if graph is None else graph, topology, events)
    switch_ops = SwitchOps(np.array(numbers, dtype=np.int64), np.zeros(len(ops), dtype=np.int64))
    return replace(made, switch_ops=switch_ops)


def rules(report: Report) -> set[str]:
    return {rule.value for rule in report.violation_counts}


def test_a_reduction_and_a_multicast_are_an_allreduce() -> None:
    report = check(schedule(reduction(0, 0.0, 3.0), multicast(0, 3.0, 6.0)))
    assert report.valid, report.summary()
    assert report.makespan_s == 6.0
    busy = dict(zip(MACHINE.resources, report.busy_s.resources, strict=True))
    # Each port is held once an operation, however many transfers go through it.
    assert busy == {f"node0:switch0:{side}{rank}": 3.0 for side in ("out", "in") for rank in range(RANKS)}


def test_a_reduction_to_all_reads_what_was_there_before() -> None:
    assert check(schedule(to_all(0.0, 3.0))).valid
    again = check(schedule(to_all(0.0, 3.0), to_all(3.0, 6.0)))
    assert rules(again) == {"double-reduction"}


def test_a_reduction_lacks_the_part_of_a_rank_that_it_leaves_out() -> None:
    some = machine(replace(REDUCTION, subsets=True))
    only = reduction(0, 0.0, 3.0, ranks=(0, 1))
    assert rules(check(schedule(only, topology=some, graph=summed(where=[0])))) == {"required-missing"}


def test_operations_of_a_step_share_its_ports() -> None:
    graph = summed(3, where=[])
    at_once = [reduction(root, 0.0, 4.0, tensor=root) for root in range(RANKS)]
    # Each rank sends two of three tensors: 2 s and 2 x 10 bytes at 0.1 s a byte.
    assert check(schedule(*at_once, graph=graph)).valid
    hasty = [reduction(root, 0.0, 3.9, tensor=root) for root in range(RANKS)]
    report = check(schedule(*hasty, graph=graph))
    assert rules(report) == {"duration-too-short"}
    assert "takes 3.9 s, but needs 4 s" in report.violations[0].message


def test_own_data_pass_the_ports_with_loopback() -> None:
    looped = machine(replace(REDUCTION, loopback=True))
    both = (reduction(0, 0.0, 3.0), multicast(0, 0.0, 3.0, tensor=1))
    initial = [(0, 0), (0, 1), (0, 2), (1, 0)]  # tensor 1 is rank 0's
    held = Placement.of(initial, [1 << rank for _, rank in initial])
    graph = replace(summed(2, where=[]), initial=held)
    assert check(schedule(*both, graph=graph)).valid
    # Rank 0 sends both tensors, and receives both.
    assert rules(check(schedule(*both, graph=graph, topology=looped))) == {"duration-too-short"}
    longer = (reduction(0, 0.0, 4.0), multicast(0, 0.0, 4.0, tensor=1))
    assert check(schedule(*longer, graph=graph, topology=looped)).valid
    # A plain transfer out of rank 0 has its port while a reduction to rank 0 needs none of it, unless data loop back.
    plain = [send(0, 1, 0.0, 2.0, tensor=1)]
    assert check(schedule(reduction(0, 0.0, 3.0), plain=plain, graph=graph)).valid
    report = check(schedule(reduction(0, 0.0, 3.0), plain=plain, graph=graph, topology=looped))
    assert rules(report) == {"resource-overlap"}


def test_a_plain_transfer_waits_for_ports_of_an_operation() -> None:
    report = check(schedule(multicast(0, 0.0, 3.0), plain=[send(0, 1, 1.0, 3.0, tensor=1)], graph=summed(2, where=[])))
    assert "resource-overlap" in rules(report)


def test_operations_that_overlap_and_are_no_step_clash() -> None:
    report = check(schedule(reduction(0, 0.0, 3.0), reduction(1, 1.0, 4.0, tensor=1), graph=summed(2, where=[])))
    assert rules(report) == {"resource-overlap"}


def test_nobody_reads_a_copy_while_an_operation_adds_to_it() -> None:
    graph = summed(1, where=[])
    report = check(schedule(reduction(0, 0.0, 3.0), plain=[send(0, 1, 1.0, 3.0)], graph=graph))
    assert "not-free" in rules(report)


def test_no_more_operations_at_once_than_slots() -> None:
    graph, both = summed(2, where=[]), [reduction(root, 0.0, 3.0, tensor=root) for root in (0, 1)]
    assert check(schedule(*both, graph=graph, topology=machine(replace(REDUCTION, slots=2)))).valid is False
    longer = [reduction(root, 0.0, 4.0, tensor=root) for root in (0, 1)]
    assert check(schedule(*longer, graph=graph, topology=machine(replace(REDUCTION, slots=2)))).valid
    report = check(schedule(*longer, graph=graph, topology=machine(replace(REDUCTION, slots=1))))
    assert rules(report) == {"resource-overlap"}
    assert "takes a slot of switch group 0 while all 1 are held" in report.violations[0].message


def _without(op: Op, number: int) -> Op:
    return op[:number] + op[number + 1 :]


SUBSETS = machine(replace(REDUCTION, subsets=True))
COMPUTE = Event(EventKind.COMPUTE, 0.0, 3.0, 0, op=0)


@pytest.mark.parametrize(
    ("broken", "topology", "words"),
    [
        ([*reduction(0, 0.0, 3.0)[:1], send(2, 0, 0.5, 3.0, adds=True)], MACHINE, "don't start together"),
        ([*reduction(0, 0.0, 3.0)[:1], send(2, 0, 0.0, 3.5, adds=True)], MACHINE, "don't end together"),
        ([*reduction(0, 0.0, 3.0)[:1], send(2, 0, 0.0, 3.0, 1, True)], MACHINE, "of different tensors"),
        ([replace(one, moves=(0, 0)) for one in multicast(0, 0.0, 4.0)], MACHINE, "moves a tensor twice"),
        ([*reduction(0, 0.0, 3.0)[:1], send(2, 0, 0.0, 3.0)], MACHINE, "that add and others that don't"),
        ([*reduction(0, 0.0, 3.0), send(1, 0, 0.0, 3.0, adds=True)], MACHINE, "between the same ranks"),
        (reduction(0, 0.0, 3.0)[:1], MACHINE, "is of 2 ranks, must be of all 3"),
        ([send(0, 1, 0.0, 3.0), send(1, 2, 0.0, 3.0)], MACHINE, "has 2 transfers from 2 ranks to 2"),
        ([send(0, 1, 0.0, 3.0, adds=True), send(0, 2, 0.0, 3.0, adds=True)], SUBSETS, "has 2 transfers from 1 ranks"),
        (_without(to_all(0.0, 3.0), 0), MACHINE, "has 5 transfers from 3 ranks to 3"),
        (reduction(0, 0.0, 3.0), machine(replace(REDUCTION, reduces=False)), "reduces is false"),
        (multicast(0, 0.0, 3.0), machine(replace(REDUCTION, multicasts=False)), "multicasts is false"),
        (to_all(0.0, 3.0), machine(replace(REDUCTION, reduces_to_all=False)), "reduces_to_all is false"),
        (reduction(0, 0.0, 3.0), machine(None), "names switch group 0, of 0"),
    ],
)
def test_transfers_that_are_no_operation(broken: Op, topology: Topology, words: str) -> None:
    report = check(schedule(broken, topology=topology, graph=summed(2, where=[])))
    assert rules(report) == {"switch-op-malformed"}
    assert words in report.violations[0].message
    assert report.violation_count == 1  # one an operation, and all its transfers are left out


def test_an_operation_of_unknown_events_or_number_is_none() -> None:
    graph = summed(2, where=[])
    strange = [*reduction(0, 0.0, 3.0)[:1], replace(send(2, 0, 0.0, 3.0, adds=True), place=99)]
    report = check(schedule(strange, graph=graph))
    assert rules(report) == {"unknown-id", "switch-op-malformed"}
    good = schedule(reduction(0, 0.0, 3.0), graph=graph)
    wild = replace(good, switch_ops=SwitchOps(np.array([7, 7]), np.array([0])))
    assert "which must be one of 1" in check(wild).violations[0].message


def test_an_operation_may_not_leave_its_group() -> None:
    switch = SwitchTemplate((0, 1), 1.0, 0.1, reduction=REDUCTION)
    both = NodeTemplate("pairs", 3, switches=(switch, SwitchTemplate((0, 1, 2), 1.0, 0.1))).cluster(1)
    own = {(link.source, link.target): number for number, link in enumerate(both.links)}
    events = [replace(one, place=own[0, target]) for target, one in zip((1, 2), multicast(0, 0.0, 3.0), strict=True)]
    report = check(schedule(events, topology=both, graph=summed(2, where=[])))
    assert rules(report) == {"switch-op-malformed"}
    assert "reaches rank 2, which is not in switch group 0" in report.violations[0].message


def test_a_plan_may_use_so_many_sets_of_ranks() -> None:
    pairs = [reduction(0, 0.0, 3.0, ranks=(0, 1)), reduction(2, 3.0, 6.0, ranks=(1, 2), tensor=1)]
    two = replace(REDUCTION, subsets=True, groups=2)
    assert check(schedule(*pairs, graph=summed(2, where=[]), topology=machine(two))).valid
    report = check(schedule(*pairs, graph=summed(2, where=[]), topology=machine(replace(two, groups=1))))
    assert rules(report) == {"switch-op-malformed"}
    assert "2 sets of ranks use switch group 0, which has 1" in report.violations[0].message


def test_the_rails_of_a_fabric_may_add_up() -> None:
    nics = tuple(NicTemplate((rank,), 1.0, 1.0) for rank in range(2))
    fabric = replace(NodeTemplate("n", 2).fabric, rails=True, reduction=REDUCTION)
    inside = SwitchTemplate((0, 1), 1.0, 0.1)
    cluster = NodeTemplate("n", 2, nics=nics, switches=(inside,), fabric=fabric).cluster(3)
    assert [group.ranks for group in cluster.switch_groups] == [(0, 2, 4), (1, 3, 5)]
    names = [cluster.resources[port] for port in cluster.switch_groups[1].ports[0]]
    assert names == ["node0:nic1:out", "node0:nic1:in"]
    shared = NodeTemplate("n", 2, nics=(NicTemplate((0, 1), 1.0, 1.0),), switches=(inside,), fabric=fabric)
    with pytest.raises(InputError, match=r"n x 2: fabric: reduction needs a NIC for each rank, got one for ranks"):
        shared.cluster(2)


def test_a_schedule_with_operations_of_switches_keeps_its_times() -> None:
    with pytest.raises(InputError, match="retime: a schedule must have no operations of switches"):
        retime(schedule(reduction(0, 0.0, 3.0)))


def test_columns_of_operations_fit_the_schedule() -> None:
    good = schedule(reduction(0, 0.0, 3.0))
    with pytest.raises(InputError, match="of_event must have 2 rows, as kind has, got 1"):
        replace(good, switch_ops=SwitchOps(np.array([0]), np.array([0])))
    with pytest.raises(InputError, match="group must be a list of integers"):
        SwitchOps(np.array([0]), np.array([0.5]))
