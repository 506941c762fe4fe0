"""Servers on machines of their own, on the trainers' network, or in the trainers: times, topology and replay agree."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from bagpipe_batches import find_cluster
from bagpipe_counts import random_counts, steady_counts
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless.checker import Rule, check
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.pipeline import pipeline
from gapless.encodings.bagpipe.lowering.machine import Machine
from gapless.encodings.bagpipe.lowering.schedule import to_schedule
from gapless.encodings.bagpipe.problem import problem
from gapless.encodings.bagpipe.question import BASELINES, DESIGNS, LAYOUTS, SHARDED
from gapless.errors import InputError

SHARED = ("prefetch", "peer_fetch", "sync_now", "sync_later", "write_early", "write_late")
"""What one network carries."""
SLOW = {"server_bandwidth": 1e6, "trainer_bandwidth": 3e6, "fetch_latency": 1e-3, "model": "wide-and-deep"}


def cluster(trainers: int, placement: str, **changes: float) -> Cluster:
    servers = trainers if placement == "colocated" else 1
    return replace(Cluster(trainers), servers=servers, placement=placement, **changes)  # type: ignore[arg-type]


@given(
    seed=st.integers(0, 2**32 - 1),
    batches=st.integers(1, 12),
    trainers=st.integers(1, 4),
    design=st.sampled_from(tuple(LAYOUTS)),
    placement=st.sampled_from(["same-network", "colocated"]),
    latency_s=st.sampled_from([0.0, 1e-3]),
)
@examples(100)
def test_one_network_carries_one_thing_at_a_time_and_nothing_early(
    seed: int, batches: int, trainers: int, design: str, placement: str, latency_s: float
) -> None:
    counts = random_counts(np.random.default_rng(seed), batches, trainers)
    found = pipeline(counts, cluster(trainers, placement, fetch_latency_s=latency_s), design)
    carried = sorted(
        (start, end)
        for name in SHARED
        for start, end in zip(getattr(found, name).start_s.tolist(), getattr(found, name).end_s.tolist(), strict=True)
        if end > start
    )
    assert all(end <= start + 1e-12 for (_, end), (start, _) in pairwise(carried))
    written_s = np.maximum(found.write_early.end_s, found.write_late.end_s)
    late = (counts.prefetch_after >= 0) & (found.prefetch.duration_s > 0)
    assert (found.prefetch.start_s[late] >= written_s[counts.prefetch_after[late]] + latency_s - 1e-12).all()
    assert (found.peer_fetch.start_s >= found.prefetch.end_s - 1e-12).all()
    assert (found.peer_fetch.start_s[1:] >= found.sync_now.end_s[:-1]).all()
    assert (found.sync_now.start_s >= found.backward.end_s).all()
    assert (found.sync_now.start_s[1:] >= found.sync_later.end_s[:-1] - 1e-12).all()
    assert (found.write_late.start_s >= found.sync_later.end_s - 1e-12).all()
    assert (found.prefetch.start_s[1:] >= found.prefetch.end_s[:-1] - 1e-12).all()


@pytest.mark.parametrize("design", [*DESIGNS, *BASELINES, *SHARDED])
@pytest.mark.parametrize(("placement", "servers"), [("apart", 3), ("same-network", 2), ("colocated", None)])
def test_runs_replay_clean_wherever_the_servers_are(design: str, placement: str, servers: int | None) -> None:
    asked = {"cache_rows": 120} if design in BASELINES else {} if design in SHARDED else {"lookahead": 2}
    found = problem(
        "zipf", table_rows=(40, 300, 5), examples=240, trainers=3, batch_size=24, batches=10, design=design,
        placement=placement, servers=servers, **SLOW, **asked,
    )  # fmt: skip
    result = gapless.solve(found)
    assert result.valid, result.report
    assert result.report is not None
    assert result.report.makespan_s == pytest.approx(result.solution.objective, rel=1e-9)


def test_times_of_separate_networks_overlap_on_one() -> None:
    """The batch's prefetch waits for nothing but rows there; the replay finds what the one network can't carry."""
    asked = problem(
        "zipf", table_rows=(40, 300, 5), examples=240, trainers=3, batch_size=24, lookahead=2, dimension=4096, **SLOW
    )
    run = gapless.solve(asked).windows
    machine, actions = run.machine, [run.actions(number) for number in range(run.count)]
    moved = Machine(replace(machine.cluster, placement="same-network"), machine.share, machine.cache_rows)
    assert Rule.RESOURCE_OVERLAP in check(to_schedule(actions, run.times, moved)).violation_counts


def test_more_servers_are_as_many_times_faster_until_a_trainer_can_take_no_more() -> None:
    one, three = (Cluster(2, servers=servers, latency_s=0.0, server_bytes_per_s=1e6) for servers in (1, 3))
    assert one.server_s(900.0) == pytest.approx(3 * three.server_s(900.0))
    many = replace(one, servers=10**6)
    assert many.server_s(900.0, 500.0) == pytest.approx(500 * 192 / many.trainer_bytes_per_s)


def test_a_colocated_server_gives_its_own_trainer_its_slice_without_a_network() -> None:
    rows = cluster(4, "colocated", latency_s=0.0).server_s(4000.0, 1000.0)
    assert rows == pytest.approx(3 / 4 * 1000 * 192 / (10e9 / 8))
    assert cluster(1, "colocated").server_s(4000.0) == 0
    counts = steady_counts(6)
    assert not pipeline(counts, cluster(2, "colocated"), "replicated").write_late.duration_s.any()
    assert pipeline(counts, cluster(2, "colocated"), "partitioned").write_late.duration_s.all()


def test_sharing_a_network_takes_longer() -> None:
    counts = steady_counts(40, lookahead=4)
    slow = {"row_bytes": 10**6, "dense_bytes": 10**6}
    apart, same = (
        pipeline(counts, cluster(2, placement, **slow), "lrpp-delayed").iteration_s
        for placement in ("apart", "same-network")
    )
    assert same > apart


def test_the_topology_has_a_network_for_each_server() -> None:
    for placement, servers in (("apart", 3), ("colocated", 2)):
        machine = Machine(replace(Cluster(2), servers=servers, placement=placement), np.array([1, 1]), 10)
        topology = machine.topology()
        assert len(topology.resources) == 2 * servers
        held = {len(topology.links[machine.link("fetch", trainer)].resources) for trainer in range(2)}
        assert held == {1 if placement == "colocated" else 3}


def test_servers_that_cannot_be_are_named() -> None:
    assert find_cluster(4, placement="colocated").servers == 4
    with pytest.raises(InputError, match="colocated servers must be 4, one a trainer, got 3"):
        find_cluster(4, placement="colocated", servers=3)
    with pytest.raises(InputError, match="placement: must be one of apart, same-network, colocated"):
        find_cluster(4, placement="apartt")
