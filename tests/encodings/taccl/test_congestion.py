"""Congestion in plans: what every method says replays, and the policies of switch-hyperedges (Figures 5.2 and 5.12)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from little import LITTLE

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked, Sketch, load_sketch
from gapless.encodings.taccl.question import Method
from gapless.encodings.taccl.sketch.format import InterNode, Policy
from gapless.ir.simulate import retime
from gapless.result import Result
from gapless.topologies.files import load_topology
from gapless.topologies.node import NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.ports.congestion import Slowdown
from gapless.topologies.topology import Topology

POLICIES: tuple[Policy, ...] = ("uc-min", "uc-max")
FALLING = Slowdown((1, 2, 5), (1.0, 1.1, 1.5))


def switched(ranks: int, nodes: int, table: Slowdown | None) -> Topology:
    """A switch and NICs for two ranks each, with the costs of a DGX-2."""
    switch = SwitchTemplate(tuple(range(ranks)), 0.7e-6, 8e-12, table)
    nics = tuple(NicTemplate((rank, rank + 1), 1.7e-6, 106e-12) for rank in range(0, ranks, 2))
    return NodeTemplate("node", ranks, switches=(switch,), nics=nics).cluster(nodes)


def solved(problem: Chunked) -> Result:
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0), LITTLE)
    assert result.valid
    return result


def sketched(policy: Policy, size_bytes: int, ranks: int = 4, nodes: int = 2) -> Result:
    """ALLGATHER by the MILP; of the two ranks of a NIC, the odd one sends and the even one receives."""
    inter_node = InterNode({rank + 1: (rank,) for rank in range(0, ranks, 2)})
    symmetry = ((2, ranks), (ranks, 0))
    sketch = Sketch("test", (tuple(range(ranks)),), (policy,), inter_node, symmetry)
    return solved(Chunked.of(switched(ranks, nodes, FALLING), "allgather", size_bytes, sketch, method="milp"))


def makespan_s(result: Result) -> float:
    assert result.report is not None
    return result.report.makespan_s


def links_used(result: Result) -> int:
    assert result.schedule is not None
    return len(np.unique(result.schedule.place))


def test_few_connections_are_faster_for_large_sizes_and_many_for_small_ones() -> None:
    few, many = ([makespan_s(sketched(policy, size)) for size in (1_000, 2_000_000)] for policy in POLICIES)
    assert few[0] > 1.02 * many[0]
    assert many[1] > 1.02 * few[1]


@pytest.mark.thorough
def test_dgx2_sk_1_has_few_connections_for_large_sizes_and_many_for_small_ones() -> None:
    cluster = load_topology("dgx2-congested", 2)
    few, many = (
        [
            makespan_s(
                gapless.solve(
                    Chunked.of(cluster, "allgather", size, load_sketch(f"dgx2-sk-1:{policy}"), method="milp"),
                    SolveOptions(threads=1, gap=0.0),
                )
            )
            for size in (1_000, 2_000_000)
        ]
        for policy in POLICIES
    )
    assert few[0] > 1.1 * many[0]
    assert many[1] > 1.1 * few[1]


def test_policy_decides_how_many_links_are_used() -> None:
    few, many = (links_used(sketched(policy, 1_000_000, 6, nodes=1)) for policy in POLICIES)
    assert few == 6  # a ring, Figure 5.5
    assert many == 6 * 5  # all of them, Figure 5.4


@pytest.mark.thorough("alltoall-auto", "allreduce-milp")
@pytest.mark.parametrize("method", ["milp", "greedy", "auto"])
@pytest.mark.parametrize("collective", ["allgather", "allreduce", "alltoall"])
def test_plans_of_every_method_replay_and_no_bound_is_beaten(method: Method, collective: str) -> None:
    congested, free = (
        solved(Chunked.of(switched(4, 1, table), collective, 600_000, method=method)) for table in (FALLING, None)
    )
    bound_s = congested.solution.bound
    assert bound_s is not None
    assert bound_s <= makespan_s(free) * (1 + 1e-6)  # it holds without congestion
    assert makespan_s(congested) >= makespan_s(free) * (1 - 1e-9)
    assert makespan_s(congested) == pytest.approx(congested.solution.objective)


def test_a_table_that_slows_nothing_down_changes_no_time() -> None:
    tables = (Slowdown((1,), (1.0,)), None)
    same, free = (solved(Chunked.of(switched(4, 2, table), "allgather", 600_000)).schedule for table in tables)
    assert same is not None
    assert free is not None
    assert same.start_s.tolist() == pytest.approx(free.start_s.tolist())
    assert same.end_s.tolist() == pytest.approx(free.end_s.tolist())


def test_plans_of_the_free_network_are_too_hasty_for_the_congested_one() -> None:
    schedule = solved(Chunked.of(switched(4, 1, None), "allgather", 600_000)).schedule
    assert schedule is not None
    report = gapless.check(replace(schedule, topology=switched(4, 1, FALLING)))
    assert {violation.rule.value for violation in report.violations} == {"duration-too-short"}
    again = retime(schedule, switched(4, 1, FALLING))
    assert gapless.check(again).valid
    assert again.end_s.max() > schedule.end_s.max()
