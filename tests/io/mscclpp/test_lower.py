"""Every schedule of the covered collectives becomes a plan that is read back alike and runs clean."""

from __future__ import annotations

import dataclasses

import pytest
from examples import examples
from hand_made_collectives import (
    Case,
    chain_broadcast,
    pairs_allreduce,
    pairs_alltoall,
    pairs_reducescatter,
    relayed_alltoall,
    ring_allgather,
    ring_allreduce,
    ring_reducescatter,
    tree_allreduce,
)
from hypothesis import given
from hypothesis import strategies as st
from random_allgathers import allgathers

from gapless.errors import InputError
from gapless.io.mscclpp import judge, lower, parse_plan, plan_text
from gapless.io.mscclpp.program import LIMITS
from gapless.ir.schedule import Schedule

CASES = {
    "allgather": lambda: ring_allgather(5, 2),
    "reducescatter": lambda: pairs_reducescatter(4, 2),
    "reducescatter-ring": lambda: ring_reducescatter(4, 2),
    "allreduce": lambda: pairs_allreduce(4, 1),
    "allreduce-ring": lambda: ring_allreduce(4, 2),
    "allreduce-tree": lambda: tree_allreduce(6, 1, root=2),
    "alltoall": lambda: pairs_alltoall(4, 2),
    "alltoall-relayed": lambda: relayed_alltoall(6),
}


def on_nodes(schedule: Schedule, nodes: int) -> Schedule:
    """The same schedule with the ranks dealt to so many nodes, neighbours together."""
    ranks = len(schedule.topology.node_of_device)
    placed = tuple(rank * nodes // ranks for rank in range(ranks))
    return dataclasses.replace(schedule, topology=dataclasses.replace(schedule.topology, node_of_device=placed))


@pytest.mark.thorough("allreduce-tree", "4-1", "4-3")
@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("placement", ["out-of-place", "in-place"])
@pytest.mark.parametrize("name", CASES)
def test_every_covered_collective_runs_clean_within_and_between_nodes(name, placement, nodes, instances):
    collective, schedule = CASES[name]()
    schedule = on_nodes(schedule, nodes)
    plan = lower(schedule, collective, placement=placement, instances=instances)
    assert parse_plan(plan_text(plan), "text") == plan
    verdict = judge(plan)
    assert verdict.problems == verdict.warnings == ()
    where = "in place" if placement == "in-place" else "out of place"
    assert verdict.summary().endswith(f"on {collective.rank_count} GPUs (MSCCL++ plan): valid, executed {where}")
    node = schedule.topology.node_of_device
    for gpu in plan.gpus:
        for group in gpu.channels:
            is_near = {node[peer] == node[gpu.id] for peer in group.connected_to}
            assert is_near == {group.channel_type == "memory"}


@examples(60)
@given(
    case=allgathers(),
    placement=st.sampled_from(["out-of-place", "in-place"]),
    instances=st.sampled_from([1, 2]),
    nodes=st.integers(1, 6),
)
def test_random_schedules_become_plans_that_run_clean(case, placement, instances, nodes):
    collective, schedule = case
    plan = lower(on_nodes(schedule, nodes), collective, placement=placement, instances=instances)
    assert judge(plan).problems == ()
    assert parse_plan(plan_text(plan), "text") == plan


def test_what_does_not_fit_a_block_is_dealt_to_more_of_them():
    collective, schedule = pairs_allreduce(8, 4)
    plan = lower(schedule, collective, instances=4)
    assert max(len(block.ops) for gpu in plan.gpus for block in gpu.threadblocks) <= LIMITS.operations
    assert judge(plan).is_valid


def test_in_place_no_scratch_is_needed_where_places_are_free_at_once():
    plan = lower(*ring_allgather(4, 2)[::-1], placement="in-place")
    assert {gpu.scratch_chunks for gpu in plan.gpus} == {0}
    # Every receiver says once that it has started, and every rank sends 3 messages of its ring.
    signals = [op for gpu in plan.gpus for block in gpu.threadblocks for op in block.ops if op.name == "signal"]
    assert len(signals) == 4 * (1 + 3 * 1)


def test_the_range_of_sizes_and_the_name_are_written():
    plan = lower(*ring_allgather(4)[::-1], name="mine", min_bytes=1024, max_bytes=4096)
    assert (plan.name, plan.min_message_bytes, plan.max_message_bytes) == ("mine", 1024, 4096)
    assert lower(*ring_allgather(4)[::-1]).max_message_bytes == 2**64 - 1


def refused(case: Case, **how: object) -> str:
    with pytest.raises(InputError) as caught:
        lower(*case[::-1], **how)
    return str(caught.value)


def test_what_is_not_covered_is_refused_in_one_line():
    assert refused(chain_broadcast(4, 1, 0)).startswith(
        "mscclpp: plans are written for allgather, allreduce, alltoall, reducescatter, got broadcast"
    )
    assert "placement: must be one of out-of-place, in-place, got 'both'" in refused(
        ring_allgather(4), placement="both"
    )
    assert "instances: must be >= 1, got 0" in refused(ring_allgather(4), instances=0)
