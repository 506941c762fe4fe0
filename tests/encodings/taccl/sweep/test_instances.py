"""Instances: one thread block doesn't fill a fast link, many fill it and cost latency."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.checker import check
from gapless.encodings.taccl.baselines.library import baselines
from gapless.encodings.taccl.sweep.request import InstanceCosts, with_instances
from gapless.errors import InputError
from gapless.ir.collective import allgather
from gapless.ir.simulate import retime
from gapless.topologies.files import load_topology


def test_a_block_caps_fast_links_and_leaves_slow_ones_alone() -> None:
    topology = load_topology("ndv2", 2)
    one = with_instances(topology, 1)
    fast = topology.beta_s_per_byte < 1 / 20e9
    assert fast.any()
    assert not fast.all()
    assert one.beta_s_per_byte[fast] == pytest.approx(1 / 20e9)
    assert np.array_equal(one.beta_s_per_byte[~fast], topology.beta_s_per_byte[~fast])
    assert np.array_equal(one.alpha_s, topology.alpha_s)


def test_enough_instances_give_the_bandwidth_back_and_cost_latency() -> None:
    topology = load_topology("dgx2", 1)
    many = with_instances(topology, 8, InstanceCosts(alpha_growth=0.1))
    assert np.array_equal(many.beta_s_per_byte, topology.beta_s_per_byte)
    assert many.alpha_s == pytest.approx(1.7 * topology.alpha_s)
    assert many.resources == topology.resources


def test_six_blocks_keep_the_six_links_of_a_dgx2_gpu_nearly_busy() -> None:
    """Section 5.8.3: several thread blocks are needed for the six NVLinks of a V100."""
    topology = load_topology("dgx2", 1)
    shares = [float((topology.beta_s_per_byte / with_instances(topology, n).beta_s_per_byte)[0]) for n in (1, 4, 6, 7)]
    assert shares == pytest.approx([0.16, 0.64, 0.96, 1.0])


def test_few_bytes_want_one_instance_and_many_bytes_several() -> None:
    topology = load_topology("ndv2", 2)
    schedule = baselines(topology, allgather(16), 1_000_000)["hierarchical"]
    best = []
    for chunk_bytes in (10, 10_000_000):
        sizes = np.full(schedule.graph.tensor_count, chunk_bytes, dtype=np.int64)
        times = {}
        for instances in (1, 2, 4, 8):
            again = retime(schedule, with_instances(topology, instances), sizes)
            assert check(again).valid
            times[instances] = float(again.end_s.max())
        best.append(min(times, key=times.__getitem__))
    assert best[0] == 1
    assert best[1] > 1


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="instances must be >= 1, got 0"):
        with_instances(load_topology("dgx2", 1), 0)
    with pytest.raises(InputError, match="block_bytes_per_s must be > 0, got 0"):
        InstanceCosts(block_bytes_per_s=0)
    with pytest.raises(InputError, match="alpha_growth must be >= 0, got -1"):
        InstanceCosts(alpha_growth=-1)
