"""Machines are found as they are, by flows on a network that is simulated: structure, costs, order, asymmetry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from examples import is_thorough, share
from random_machines import random_machine
from recovered import Recovered, recovered
from simulated_network import SimulatedNetwork

from gapless.topologies.files import read_machine
from gapless.topologies.measured.experiments import Experiments, Flow, OutOfTimeError, Settings
from gapless.topologies.measured.machine import MeasuredMachine, measure_machine
from gapless.topologies.measured.structure import classes_of, near_groups
from gapless.topologies.node import Cluster, LocalLink, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.ports.congestion import Slowdown
from gapless.topologies.topology import Link, Topology
from gapless.topologies.writing import cluster_text

MOST_JOINT = 3
"""Experiments with several links at once, in squares of the number of ranks."""
NOISE = {"noise": 0.02, "outliers": 0.03, "burst_bytes": 2**16}


def measured(truth: Topology, by: str = "class", **network: float) -> tuple[MeasuredMachine, Experiments]:
    experiments = Experiments(SimulatedNetwork(truth, **network), Settings())
    return measure_machine(experiments, by), experiments


def compared(truth: Topology, machine: MeasuredMachine) -> Recovered:
    return recovered(truth, machine.cluster("found", machine.order).topology(), machine.order)


def node(ranks: int, nics: tuple[tuple[int, ...], ...]) -> NodeTemplate:
    switch = SwitchTemplate(tuple(range(ranks)), 2e-6, 1e-9)
    return NodeTemplate("node", ranks, (), (switch,), tuple(NicTemplate(group, 5e-6, 4e-9) for group in nics))


TWO = Cluster("two", (node(2, ((0, 1),)), node(2, ((0, 1),)))).topology()


def permuted(topology: Topology, order: list[int]) -> Topology:
    """Rank k of the topology is called order[k]."""
    links = [replace(link, source=order[link.source], target=order[link.target]) for link in topology.links]
    nodes = [0] * topology.device_count
    for k, place in enumerate(topology.node_of_device):
        nodes[order[k]] = place
    return Topology("permuted", tuple(nodes), tuple(links), topology.resources)


def test_random_machines_are_found_in_spite_of_noise_and_outliers() -> None:
    """Small ones by default."""
    right, tables, sizes = 0, 0, {} if is_thorough() else {"nodes": (2, 3), "ranks": (2, 4)}
    for seed in range(count := share(40)):
        truth = random_machine(np.random.default_rng(seed), **sizes).topology()
        machine, experiments = measured(truth, seed=seed, **NOISE)
        right += compared(truth, machine).is_right
        tables += len(machine.switch_tables) + len(machine.nic_tables)
        assert experiments.joint <= MOST_JOINT * truth.device_count**2
    assert right >= 0.95 * count
    assert tables == 0  # no port of theirs is slower with more connections


SWITCH = Slowdown((1, 2, 3), (1.0, 1.15, 1.4))
NIC = Slowdown((1, 2, 4), (1.0, 1.1, 1.5))


@pytest.mark.thorough("switch1", "switch2")
@pytest.mark.parametrize(("switch", "nic"), [(SWITCH, NIC), (SWITCH, None), (None, NIC)])
def test_connections_that_slow_ports_are_found(switch: Slowdown | None, nic: Slowdown | None) -> None:
    template = replace(node(4, ((0, 1, 2, 3),)), switches=(SwitchTemplate((0, 1, 2, 3), 2e-6, 1e-9, switch),))
    template = replace(template, nics=tuple(replace(one, congestion=nic) for one in template.nics))
    machine, _ = measured(Cluster("two", (template, template)).topology(), seed=1, **NOISE)
    for truth, found in ((switch, machine.switch_tables), (nic, machine.nic_tables)):
        assert len(found) == (truth is not None)
        for one in found if truth is not None else ():
            assert one.slowdown == pytest.approx(truth.at(np.array(one.connections)), rel=0.05)
    (first, second) = machine.cluster("found", machine.order).nodes
    assert first.switches[0].congestion == second.switches[0].congestion == next(iter(machine.switch_tables), None)
    assert {one.congestion for one in first.nics} == {next(iter(machine.nic_tables), None)}


def test_tables_stand_in_the_file_and_come_back_from_it(tmp_path: Path) -> None:
    template = replace(node(4, ((0, 1), (2, 3))), switches=(SwitchTemplate((0, 1, 2, 3), 2e-6, 1e-9, SWITCH),))
    machine, _ = measured(Cluster("one", (template,)).topology())
    cluster = machine.cluster("found", machine.order)
    (tmp_path / "machine.json").write_text(cluster_text(cluster, "measured", {}))
    read = read_machine(tmp_path / "machine.json")
    assert read.congestion == cluster.topology().congestion
    assert [one.table for one in read.congestion] == [*machine.switch_tables]


def test_times_that_are_too_short_by_themselves_dont_count() -> None:
    truth = Cluster("two", (node(4, ((0, 1), (2, 3))),) * 2).topology()
    found = [measured(truth, seed=seed, noise=0.02, early=0.01)[0] for seed in range(5)]
    assert sum(compared(truth, machine).is_right for machine in found) >= 4  # two at once are early in one of 10^4


def test_the_same_times_make_the_same_machine() -> None:
    truth = random_machine(np.random.default_rng(1)).topology()
    first, second = (measured(truth, **NOISE)[0] for _ in range(2))
    assert first == second


@pytest.mark.extra("torch")
def test_a_machine_comes_back_from_another_process_as_it_was() -> None:
    from gapless.torch.processes import built

    truth = random_machine(np.random.default_rng(1)).topology()
    machine, _ = measured(truth, **NOISE)
    assert built(MeasuredMachine, json.loads(json.dumps(asdict(machine)))) == machine


@pytest.mark.parametrize(("inner", "why"), [(5e-9, "contention"), (2e-9, "bandwidth")])
def test_nodes_are_told_apart_by_what_differs(inner: float, why: str) -> None:
    pairs = tuple(LocalLink(a, b, 5e-6, inner) for a, b in permutations(range(3), 2))
    template = NodeTemplate("node", 3, pairs, (), (NicTemplate((0, 1, 2), 5e-6, 5e-9),))
    truth = Cluster("even", (template, template)).topology()
    machine, _ = measured(truth, noise=0.01)
    assert compared(truth, machine).is_right
    assert machine.structure.why_nodes == why


def test_nodes_of_unequal_size_with_mixed_ranks_are_listed_in_an_order() -> None:
    truth = permuted(Cluster("mixed", (node(3, ((0, 1, 2),)), node(2, ((0,), (1,))))).topology(), [0, 2, 4, 1, 3])
    machine, _ = measured(truth)
    assert machine.structure.nodes == ((0, 2, 4), (1, 3))
    assert machine.order == machine.kept_order == (0, 2, 4, 1, 3)
    assert compared(truth, machine).is_right


def test_the_rank_near_the_nic_comes_first() -> None:
    def is_far(link: Link) -> bool:
        return 0 in (link.source, link.target) and abs(link.source - link.target) > 1

    links = tuple(replace(link, alpha_s=9e-6) if is_far(link) else link for link in TWO.links)
    machine, _ = measured(replace(TWO, links=links))
    assert machine.order == (1, 0, 2, 3)
    assert machine.kept_order == (0, 1, 2, 3)


def test_asymmetric_pairs_are_reported_and_each_pair_has_its_cost() -> None:
    links = tuple(Link(a, b, 1e-6, 3e-9 if (a, b) == (2, 0) else 1e-9) for a, b in permutations(range(3), 2))
    truth = Topology("uneven", (0, 0, 0), links)
    machine, _ = measured(truth, by="pair")
    (each,) = machine.asymmetries
    assert (each.source, each.target, each.ratio) == (0, 2, pytest.approx(3, rel=0.05))
    assert len(machine.classes) == 6
    assert compared(truth, machine).is_right


def test_a_written_machine_is_read_as_it_was_found(tmp_path: Path) -> None:
    machine, _ = measured(random_machine(np.random.default_rng(3)).topology())
    cluster = machine.cluster("found", machine.kept_order)
    found = cluster.topology()
    (tmp_path / "machine.json").write_text(cluster_text(cluster, "measured", {"ranks": found.device_count}))
    read = read_machine(tmp_path / "machine.json")
    assert recovered(found, read, range(found.device_count)).beta_off < 1e-9
    assert read.resources == found.resources


@pytest.mark.parametrize("limit", [5, 40])
def test_out_of_time_before_the_structure_is_known_is_an_error(limit: int) -> None:
    prober = SimulatedNetwork(TWO)
    experiments = Experiments(prober, Settings(), lambda: float(limit - prober.times))
    with pytest.raises(OutOfTimeError):
        measure_machine(experiments)
    assert experiments.count == limit


@dataclass
class Clocked:
    """A `Prober` whose flows take time on a clock, warm parts too; `early[k]`: what the k-th of them seems to take."""

    network: SimulatedNetwork
    early: dict[int, float] = field(default_factory=dict)
    now_s: float = 0.0
    longest_s: float = 0.0

    @property
    def rank_count(self) -> int:
        return self.network.rank_count

    def time(self, flows: Sequence[Flow]) -> np.ndarray:
        warm = [replace(flow, size_bytes=flow.size_bytes + flow.warm_bytes, warm_bytes=0) for flow in flows]
        span_s = float(SimulatedNetwork(self.network.topology).time(warm).max())
        self.now_s, self.longest_s = self.now_s + span_s, max(self.longest_s, span_s)
        taken = self.network.time(flows)
        return np.full_like(taken, self.early[self.network.times]) if self.network.times in self.early else taken


def slow_links(bytes_per_s: float) -> Topology:
    """Nodes of 3, 2 and 1 ranks, as an emulated cluster has them: unlike cables that are slow beside switches."""
    kinds = []
    for ranks, width in ((3, 2), (2, 2), (1, 1)):
        nic_s = 1 / (width * bytes_per_s)
        everyone = tuple(range(ranks))
        switches = (SwitchTemplate(everyone, 1e-4, 0.05 * nic_s),) if ranks > 1 else ()
        kinds.append(NodeTemplate(f"{ranks} ranks", ranks, (), switches, (NicTemplate(everyone, 1e-4, nic_s),)))
    return Cluster("3 + 2 + 1", tuple(kinds)).topology()


def limited(prober: Clocked, limit_s: float) -> Experiments:
    return Experiments(prober, Settings(), lambda: limit_s - prober.now_s)


@pytest.mark.parametrize(("bytes_per_s", "limit_s"), [(0.5e6, 60.0), (0.5e6, 30.0), (1.2e6, 30.0)])
def test_slow_links_are_measured_within_the_time_in_spite_of_bursts(bytes_per_s: float, limit_s: float) -> None:
    truth = slow_links(bytes_per_s)
    prober = Clocked(SimulatedNetwork(truth, noise=0.02, burst_bytes=2**14))
    machine = measure_machine(limited(prober, limit_s))
    assert compared(truth, machine).is_right
    assert prober.now_s <= limit_s + prober.longest_s
    assert prober.longest_s < 1.5


def test_a_first_time_that_is_far_too_short_makes_no_message_that_lasts() -> None:
    truth = slow_links(0.5e6)
    prober = Clocked(SimulatedNetwork(truth, noise=0.02), dict.fromkeys((1, 4, 5, 8, 40), 2e-5))
    machine = measure_machine(limited(prober, 120.0))
    assert compared(truth, machine).is_right
    assert prober.longest_s < 2 * 8 * 2**17 / 0.5e6  # 20 us for the first message would be 31 s for the next one


def test_how_long_links_need_is_known_where_the_time_is_over_first() -> None:
    prober = Clocked(SimulatedNetwork(slow_links(0.05e6)))
    experiments = limited(prober, 30.0)
    with pytest.raises(OutOfTimeError):
        measure_machine(experiments)
    assert prober.now_s <= 30.0 + prober.longest_s
    needed_s = experiments.needed_s(prober.now_s)
    again = Clocked(SimulatedNetwork(slow_links(0.05e6)))
    assert measure_machine(limited(again, needed_s)).structure.nodes == ((0, 1, 2), (3, 4), (5,))
    assert needed_s < 2000


def test_a_machine_that_is_stopped_late_has_its_structure_and_wide_intervals() -> None:
    everything = measured(TWO, noise=0.05)[1].count
    prober = SimulatedNetwork(TWO, noise=0.05)
    machine = measure_machine(Experiments(prober, Settings(), lambda: float(everything - 8 - prober.times)))
    assert not machine.is_precise
    assert compared(TWO, machine).same


def test_sizes_that_are_asked_for_are_those_that_are_sent() -> None:
    sizes = (1000, 50_000, 300_000)
    experiments = Experiments(SimulatedNetwork(TWO, noise=0.1), Settings(sizes=sizes))
    measure_machine(experiments)
    sent = [sample.flow.size_bytes for found in experiments.samples.values() for sample in found[1:]]
    assert set(sent) == set(sizes)


def test_values_far_apart_are_in_classes() -> None:
    assert classes_of(np.array([5.0, 1.0, 1.1, 5.2, 20.0]), 1.3).tolist() == [1, 0, 0, 1, 2]


def test_groups_are_near_only_if_all_pairs_are() -> None:
    cost = np.full((4, 4), 9.0)
    cost[0, 1] = cost[1, 2] = cost[0, 2] = 1.0
    assert near_groups(cost, finest=True) == [[0, 1, 2], [3]]
    cost[0, 2] = 9.0  # 0 and 2 are near to 1, but not to each other
    assert near_groups(cost, finest=True) == [[0, 1, 2, 3]]
