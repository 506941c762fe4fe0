"""What gloo's own algorithms take on a topology, by hand."""

from __future__ import annotations

import pytest
from rails import rails

from gapless.checker import check
from gapless.encodings.taccl.baselines.gloo import gloo_baseline
from gapless.ir.collective import COLLECTIVES, collective_by_name
from gapless.topologies.files import load_topology

CHUNK = 10**6


@pytest.mark.parametrize("name", sorted(set(COLLECTIVES) - {"reduce"}))
def test_its_algorithms_replay_clean(name: str) -> None:
    found = gloo_baseline(rails(2, 2), collective_by_name(name, 4), CHUNK)
    assert found is not None
    assert check(found.schedule).valid


def test_a_ring_takes_a_step_for_each_other_rank() -> None:
    ring = load_topology("ring:4")
    link = ring.links[0]
    found = gloo_baseline(ring, collective_by_name("allgather", 4), CHUNK)
    assert found is not None
    assert found.makespan_s == pytest.approx(3 * (link.alpha_s + CHUNK * link.beta_s_per_byte))


def test_reducescatter_is_an_allreduce() -> None:
    times = [gloo_baseline(load_topology("ring:4"), collective_by_name(name, 4), CHUNK) for name in
             ("reducescatter", "allreduce")]  # fmt: skip
    assert times[0] is not None
    assert times[1] is not None
    assert times[0].makespan_s == times[1].makespan_s


def test_reduce_is_not_modelled() -> None:
    assert gloo_baseline(load_topology("ring:4"), collective_by_name("reduce", 4), CHUNK) is None
