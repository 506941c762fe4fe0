"""A machine after a failure: which links are gone, what is slower, and names that nothing has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.io.plan_sections import read_topology, topology_data
from gapless.io.record import Record
from gapless.topologies.files import load_topology
from gapless.topologies.node import NodeTemplate, SwitchTemplate
from gapless.topologies.ports.switch_groups import Reduction, SwitchGroup
from gapless.topologies.topology import Topology

MACHINE = load_topology("dgx-a100", 2)


def pairs(topology: Topology) -> set[tuple[int, int]]:
    return set(zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("3-7", {(3, 7), (7, 3)}),
        ("3>7", {(3, 7)}),
        ("3->7", {(3, 7)}),
        ("node1:nic2", {(10, 2), (2, 10)}),
        ("node1:nic2:out", {(10, 2)}),
        ("nic2", {(10, 2), (2, 10)}),
        ("node0:switch0:in5", {(rank, 5) for rank in range(8) if rank != 5}),
    ],
)
def test_what_is_named_is_gone(name: str, gone: set[tuple[int, int]]) -> None:
    left = MACHINE.without([name])
    assert pairs(MACHINE) - pairs(left) == gone
    assert left.resources == MACHINE.resources
    assert left.name == f"dgx-a100 x 2 without {name}"


def test_a_rank_that_leaves_takes_its_links_and_no_number() -> None:
    left = MACHINE.without(ranks=[5, 9])
    assert left.node_of_device == MACHINE.node_of_device
    assert pairs(left) == {pair for pair in pairs(MACHINE) if not {5, 9} & {*pair}}
    assert not {5, 9} & {rank for group in (*left.nics, *left.switches) for rank in group.ranks}


def test_degraded_is_the_share_of_bandwidth_that_is_left_and_the_smallest_counts() -> None:
    left = MACHINE.without(degraded={"10-2": 0.5, "node1:nic2:out": 0.25})
    factor = left.beta_s_per_byte / MACHINE.beta_s_per_byte
    by_pair = dict(zip(zip(left.link_source.tolist(), left.link_target.tolist(), strict=True), factor, strict=True))
    assert by_pair[10, 2] == pytest.approx(4)
    assert by_pair[2, 10] == pytest.approx(2)
    assert sorted(by_pair.values())[-3] == 1
    assert np.array_equal(left.alpha_s, MACHINE.alpha_s)


def test_links_keep_their_order_and_what_they_hold() -> None:
    left = MACHINE.without(["0-1"], [6])
    kept = [
        link for link in MACHINE.links if {link.source, link.target} != {0, 1} and 6 not in (link.source, link.target)
    ]
    assert list(left.links) == kept


def test_what_is_left_goes_through_a_plan_file() -> None:
    left = load_topology("dgx2-congested", 1).without(["0-1", "switch0:in3"], [2], {"switch0:out4": 0.5})
    assert read_topology(Record(topology_data(left), "topology")) == left


@pytest.mark.parametrize(
    ("links", "ranks", "stay"),
    [((), (3,), (0, 1, 2)), (["switch0:out3"], (), (0, 1, 2)), (["0-1"], (), (1, 2, 3)), ((), (0, 1, 2), None)],
)
def test_a_switch_that_adds_up_goes_on_without_those_who_lack_a_link(
    links: list[str], ranks: tuple[int, ...], stay: tuple[int, ...] | None
) -> None:
    adding = Reduction(True, True, alpha_s=1e-6, beta_s_per_byte=1e-9)
    whole = NodeTemplate("four", 4, switches=(SwitchTemplate((0, 1, 2, 3), 1e-6, 1e-9),)).cluster(1)
    names = {name.rpartition(":")[2]: number for number, name in enumerate(whole.resources)}
    ports = tuple((names[f"out{rank}"], names[f"in{rank}"]) for rank in range(4))
    left = replace(whole, switch_groups=(SwitchGroup((0, 1, 2, 3), adding, ports),)).without(
        links, ranks, {"1-2": 0.5} if stay else {}
    )
    assert [group.ranks for group in left.switch_groups] == ([stay] if stay else [])
    for group in left.switch_groups:
        assert group.ports == tuple(ports[rank] for rank in group.ranks)
        assert group.reduction.beta_s_per_byte == pytest.approx(2e-9)


def test_nothing_named_is_the_same_machine() -> None:
    assert MACHINE.without() is MACHINE


@pytest.mark.parametrize(
    ("links", "ranks", "degraded", "message"),
    [
        (["0-9"], (), {}, "without_links: must be links of the topology, got '0-9'; rank 0 has links to 1-8"),
        (["0-99"], (), {}, "rank 0 has links to 1-8"),
        (["99-0"], (), {}, "rank 99 has no links"),
        (["node1:nik2"], (), {}, "got 'node1:nik2'; did you mean 'node1:nic2'"),
        (["nic"], (), {}, "or resources of the topology, got 'nic'"),
        ((), [16], {}, "without_ranks: must be in 0..15, got 16"),
        ((), (), {"nic2": 4.0}, "left, in .0, 1., got 4 for nic2; 4 times slower is 0.25"),
        ((), (), {"0-1": 0.0}, "got 0 for 0-1"),
        ((), (), {"nic9": 0.5}, "degraded: must be links"),
    ],
)
def test_what_is_not_there_is_named(
    links: list[str], ranks: list[int], degraded: dict[str, float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        MACHINE.without(links, ranks, degraded)
