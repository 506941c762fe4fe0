"""Bounds for any grouping: never above the best possible, found by exhaustive search, nor above a plan; tight ones."""

from __future__ import annotations

import numpy as np
import pytest
from exact_any import shortest_below_s
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from shapes import SHAPES, complete, pairs_of_nodes

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.aggregate.stage import plan_aggregated
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.bounds.spreading import influence_bound_s
from gapless.encodings.taccl.parameters import Aggregation
from gapless.ir.collective import Collective, collective_by_name
from gapless.options import SolveOptions
from gapless.topologies.fabric import Fabric
from gapless.topologies.files import load_topology
from gapless.topologies.node import NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.topology import Topology

COSTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=6, max_size=6)
TINY = {**SHAPES, "complete": complete}
PARTS = {
    "two gathered": Collective("two", 3, 1, ((0,), (1,), ()), ((0, 1),) * 3),
    "three exchanged": Collective("exchange", 3, 1, ((0, 1), (2,), ()), ((2,), (0,), (1,))),
    "one summed": Collective("sum", 3, 1, ((0,),) * 3, ((0,),) * 3, reduces=True),
}


def grouped_everywhere(topology: Topology, collective: Collective, chunk_bytes: int) -> Chunked:
    """A problem whose chunks the exhaustive search may group on every link."""
    problem = Chunked(topology, collective, chunk_bytes)
    problem.__dict__["may_group"] = np.ones(problem.link_count, dtype=np.bool_)
    return problem


def switches(nodes: int, ranks: int, inner: tuple[float, float], outer: tuple[float, float], share: int) -> Topology:
    """Nodes of a switch each; `share` ranks have a NIC together, 0: one each, on rails."""
    step = share or 1
    nics = tuple(NicTemplate(tuple(range(k, min(k + step, ranks))), *outer) for k in range(0, ranks, step))
    behind = (SwitchTemplate(tuple(range(ranks)), *inner),)
    fabric = {} if share else {"fabric": Fabric(rails=True)}
    return NodeTemplate("switches", ranks, switches=behind, nics=nics, **fabric).cluster(nodes)


FEW = Aggregation(tries=40)


@examples(105)
@given(
    shape=st.sampled_from(sorted(TINY)),
    collective=st.sampled_from([*PARTS, "broadcast", "reduce", "scatter", "gather"]), costs=COSTS,
)  # fmt: skip
def test_no_schedule_of_any_grouping_beats_the_bounds(
    shape: str, collective: str, costs: list[tuple[int, int]]
) -> None:
    topology = TINY[shape](3, lambda k: ((1 + costs[k][0]) * 1e-7, costs[k][1] * 1e-12))
    definition = PARTS[collective] if collective in PARTS else collective_by_name(collective, 3)
    problem = grouped_everywhere(topology, definition, 100_000)
    plan = plan_aggregated(problem, SolveOptions(), FEW)
    assert plan is not None
    best_s = shortest_below_s(problem, plan.end_s * (1 + 1e-9))
    assert bounds_of(problem).any_grouping_s <= best_s * (1 + 1e-9)


@pytest.mark.thorough
@examples(25)
@given(costs=COSTS, name=st.sampled_from(["broadcast", "reduce", "scatter", "sendrecv"]))
def test_no_schedule_between_nodes_beats_the_bounds(costs: list[tuple[int, int]], name: str) -> None:
    topology = pairs_of_nodes(2, lambda k: ((1 + costs[k][0]) * 1e-7, costs[k][1] * 1e-12))
    problem = grouped_everywhere(topology, collective_by_name(name, 4), 100_000)
    plan = plan_aggregated(problem, SolveOptions(), FEW)
    assert plan is not None
    best_s = shortest_below_s(problem, plan.end_s * (1 + 1e-9))
    assert bounds_of(problem).any_grouping_s <= best_s * (1 + 1e-9)


@pytest.mark.thorough
@examples(25)
@given(
    name=st.sampled_from(["allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "gather", "reduce"]),
    nodes=st.integers(1, 3),
    ranks=st.integers(2, 4),
    share=st.integers(0, 3),
    costs=st.tuples(st.integers(1, 30), st.integers(0, 40), st.integers(0, 30), st.integers(1, 100)),
    chunk_bytes=st.sampled_from([100, 20_000]),
)
def test_no_plan_on_switches_and_nics_beats_the_bounds(
    name: str, nodes: int, ranks: int, share: int, costs: tuple[int, ...], chunk_bytes: int
) -> None:
    inner, outer = ((alpha * 1e-7, beta * 1e-12) for alpha, beta in (costs[:2], costs[2:]))
    topology = switches(nodes, ranks, inner, outer, share)
    problem = Chunked(topology, collective_by_name(name, topology.device_count), chunk_bytes)
    plan = plan_aggregated(problem, SolveOptions(), FEW)  # raises where the bound is beaten
    assert plan is not None


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 11, 16])
def test_behind_a_switch_allgather_takes_rounds_and_bytes(ranks: int) -> None:
    topology = switches(1, ranks, (1e-6, 1e-12), (1e-6, 1e-12), 1)
    bounds = bounds_of(Chunked.of(topology, "allgather", 100_000))
    assert bounds.any_grouping["arrival"] == pytest.approx((ranks - 1).bit_length() * 1e-6 + (ranks - 1) * 1e-7)


def test_between_two_nodes_rails_take_all_rounds_and_a_crossing() -> None:
    # Each NIC has time for one message; whenever it comes, what it brings is worth a third of what is needed then.
    bounds = bounds_of(Chunked.of(load_topology("dgx-h100", 2), "allgather", 100))
    assert bounds.any_grouping["spreading"] == pytest.approx(3 * 0.7e-6 + 1.7e-6, rel=0.02)


def test_a_sum_takes_a_turn_for_each_leaf_of_a_hub() -> None:
    bounds = bounds_of(Chunked.of(load_topology("hub-and-spoke:8"), "reduce", 1))
    assert bounds.any_grouping["spreading"] >= 7 * 0.7e-6


@pytest.mark.thorough("dgx2")
@pytest.mark.parametrize("topology", [load_topology("ndv2", 2), load_topology("dgx2", 2)], ids=["ndv2", "dgx2"])
@pytest.mark.parametrize(("name", "size"), [("allgather", 1_000), ("allgather", 10**6), ("reducescatter", 64_000)])
def test_a_bound_that_is_known_spares_work_and_changes_nothing(topology: Topology, name: str, size: int) -> None:
    for phase in bounds_of(Chunked.of(topology, name, size)).phases:
        limits = phase.parameters.time_steps, phase.parameters.most_counted_chunks // 2
        whole_s = influence_bound_s(phase.problem, phase.one_at_a_time, *limits)
        for known_s in (0.5 * whole_s, phase.quick_any_grouping_s, 2 * whole_s):
            found_s = influence_bound_s(phase.problem, phase.one_at_a_time, *limits, known_s)
            assert max(found_s, known_s) == pytest.approx(max(whole_s, known_s))


@pytest.mark.parametrize("name", ["allgather", "allreduce", "alltoall"])
def test_quick_bounds_are_never_larger_than_all_together(name: str) -> None:
    bounds = bounds_of(Chunked.of(load_topology("ndv2", 1), name, 10**6))
    assert 0 < bounds.quick_any_grouping_s <= bounds.any_grouping_s
    assert bounds.quick_asked_s <= bounds.asked_s
