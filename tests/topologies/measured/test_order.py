"""Orders of devices: a node is recognised as a known machine however its ranks are numbered, near the NIC first."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from simulated_network import SimulatedNetwork

from gapless.topologies.files import named_node
from gapless.topologies.measured.experiments import Experiments, Settings
from gapless.topologies.measured.machine import measure_machine
from gapless.topologies.measured.order import order_as
from gapless.topologies.node import NodeTemplate
from gapless.topologies.topology import Link, Topology

NDV2 = named_node("ndv2")
NVLINK = {(link.source, link.target): link.beta_s_per_byte for link in NDV2.links}
PCIE = 4e-10
"""Between ranks that no NVLink joins, s/byte."""


def paces(image: tuple[int, ...]) -> dict[tuple[int, int], float]:
    """Those of a node whose rank `image[k]` is rank k of an NDv2."""
    return {(image[a], image[b]): NVLINK.get((a, b), PCIE) for a, b in permutations(range(8), 2)}


def is_ndv2(order: tuple[int, ...], found: dict[tuple[int, int], float]) -> bool:
    return all(found[order[a], order[b]] == NVLINK.get((a, b), PCIE) for a, b in permutations(range(8), 2))


AUTOMORPHISMS = [image for image in permutations(range(8)) if is_ndv2(image, paces((*range(8),)))]


def test_an_ndv2_has_four_automorphisms_and_any_numbering_is_undone() -> None:
    assert len(AUTOMORPHISMS) == 4
    rng = np.random.default_rng(0)
    for _ in range(10):
        found = paces(tuple(rng.permutation(8).tolist()))
        order = order_as(NDV2, found, range(8))
        assert order is not None
        assert is_ndv2(order, found)


def test_of_all_orders_the_one_with_a_rank_near_the_nic_in_front_is_taken() -> None:
    found = paces((*range(8),))
    fronts = {image[0] for image in AUTOMORPHISMS}
    for near in range(8):
        order = order_as(NDV2, found, [near, *(rank for rank in range(8) if rank != near)])
        assert order is not None
        assert is_ndv2(order, found)
        assert (order[0] == near) == (near in fronts)


@pytest.mark.parametrize("changed", [(0, 1), (0, 7)])
def test_a_node_that_is_wired_otherwise_is_none(changed: tuple[int, int]) -> None:
    found = paces((*range(8),))
    other = PCIE if changed in NVLINK else NVLINK[0, 1]
    found[changed] = found[changed[::-1]] = other
    assert order_as(NDV2, found, range(8)) is None
    assert order_as(NDV2, found, range(4)) is None


def test_ranks_behind_a_switch_go_in_any_order() -> None:
    node = NodeTemplate("switch", 4, switches=(replace(named_node("dgx2").switches[0], ranks=(0, 1, 2, 3)),))
    found = dict.fromkeys(permutations(range(4), 2), 1e-11)
    assert order_as(node, found, [2, 0, 3, 1]) == (2, 0, 3, 1)


@pytest.mark.thorough
def test_a_measured_ndv2_with_its_gpus_mixed_is_put_in_order() -> None:
    rng, image, near = np.random.default_rng(1), [], []
    for node in range(2):
        mixed = (rng.permutation(8) + 8 * node).tolist()
        image += mixed
        near += mixed[:2]  # ranks 0 and 1 of an NDv2 are near its NIC
    links = []
    for a, b in permutations(range(16), 2):
        if a // 8 == b // 8:
            links.append(Link(image[a], image[b], 1e-6, NVLINK.get((a % 8, b % 8), PCIE)))
        else:
            alpha_s = 4e-6 + 3e-6 * ((image[a] not in near) + (image[b] not in near))
            links.append(Link(image[a], image[b], alpha_s, 2e-9, (a // 8, 2 + b // 8)))
    nodes = tuple(number // 8 for number in range(16))
    truth = Topology("mixed", nodes, tuple(links), ("out0", "out1", "in0", "in1"))
    machine = measure_machine(Experiments(SimulatedNetwork(truth, noise=0.02), Settings()))
    beta = {pair: each.line.beta_s_per_byte for each in machine.classes for pair in each.pairs}
    for node in range(2):
        near_first = [rank for rank in machine.order if rank // 8 == node]
        assert set(near_first[:2]) == set(near[2 * node : 2 * node + 2])
        order = order_as(NDV2, beta, near_first)
        assert order is not None
        kept = {(image[8 * node + a], image[8 * node + b]): pace for (a, b), pace in NVLINK.items()}
        found = {(a, b): kept.get((a, b), PCIE) for a, b in permutations(near_first, 2)}
        assert is_ndv2(order, found)
        assert order[0] in near
