"""PCIe switches, the NIC's and the nearest CPU are found by copies that slow each other, on simulated machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from gapless.topologies.files import named_node
from gapless.topologies.measured.host import HostStructure, find_host
from gapless.topologies.measured.order import order_as

GPUS, SIZE_BYTES, BYTES_PER_S = 8, 1e7, 12e9


@dataclass
class SimulatedHost:
    """Pairs of GPUs on PCIe switches, two switches a CPU, a NIC on one of them.

    Copies share their switch's link fairly, a loopback takes half of it in either direction. Memory of the other CPU is
    a little slower.
    """

    switches: Sequence[Sequence[int]]
    nic_switch: int
    noise: float = 0.03
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    gpu_count: int = GPUS
    cpu_count: int = 2

    def switch_of(self, gpu: int) -> int:
        return next(number for number, group in enumerate(self.switches) if gpu in group)

    def copy_s(self, gpus: Sequence[int], cpu: int, to_host: bool, beside_loopback: bool) -> np.ndarray:
        switches = [self.switch_of(gpu) for gpu in gpus]
        taken = []
        for switch in switches:
            share = switches.count(switch) + (beside_loopback and switch == self.nic_switch)
            far = 1.1 if switch // 2 != cpu else 1.0
            taken.append(share * far * SIZE_BYTES / BYTES_PER_S)
        late = np.where(self.rng.random(len(gpus)) < 0.1, 3.0, 1.0)
        return np.array(taken) * late * np.exp(self.rng.normal(0, self.noise, len(gpus)))

    def loopback_s(self, cpu: int) -> float:
        return (3e-6 if cpu == self.nic_switch // 2 else 4e-6) * float(np.exp(self.rng.normal(0, self.noise)))


@pytest.mark.parametrize("seed", range(20))
def test_an_ndv2_like_host_is_found_however_its_gpus_are_numbered(seed: int) -> None:
    rng = np.random.default_rng(seed)
    switches = [sorted(pair) for pair in rng.permutation(GPUS).reshape(4, 2).tolist()]
    nic_switch = int(rng.integers(4))
    found = find_host(SimulatedHost(switches, nic_switch, rng=rng))
    assert sorted(found.pcie_switches) == sorted(map(tuple, switches))
    assert found.nearest_cpu == nic_switch // 2
    assert found.near_nic == tuple(switches[nic_switch])
    assert sorted(found.near_first) == list(range(GPUS))
    assert found.near_first[:2] == tuple(switches[nic_switch])


def test_one_node_alone_gets_an_order_with_the_nic_near_gpu_0() -> None:
    node = named_node("ndv2")
    beta = dict.fromkeys(((a, b) for a in range(GPUS) for b in range(GPUS) if a != b), 4e-10)
    beta |= {(link.source, link.target): link.beta_s_per_byte for link in node.links}
    found = find_host(SimulatedHost([(0, 1), (2, 3), (4, 5), (6, 7)], 3))
    order = order_as(node, beta, found.near_first)
    assert order is not None
    assert order[0] in (6, 7)
    for link in node.links:
        assert beta[order[link.source], order[link.target]] == link.beta_s_per_byte


def test_without_a_nic_the_switches_are_found_all_the_same() -> None:
    host = SimulatedHost([(0, 4), (1, 5), (2, 6), (3, 7)], 0, cpu_count=0)
    assert find_host(host) == HostStructure(((0, 4), (1, 5), (2, 6), (3, 7)), None, ())


@pytest.mark.extra("torch")
def test_devices_of_torch_are_timed_and_a_loopback_is_refused() -> None:
    pytest.importorskip("torch")
    from gapless.errors import InputError
    from gapless.torch.links.host import DeviceCopies

    copies = DeviceCopies(["cpu", "cpu"], 4096)
    for to_host in (True, False):
        assert (copies.copy_s([0, 1], 0, to_host, beside_loopback=False) > 0).all()
    with pytest.raises(InputError, match="loop through a NIC"):
        copies.copy_s([0], 0, True, beside_loopback=True)
    assert find_host(copies).near_nic == ()
