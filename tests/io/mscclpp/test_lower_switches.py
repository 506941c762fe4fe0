"""Plans of operations of switches as MSCCL++ plans: executed, they do what they should; others are refused."""

from __future__ import annotations

import pytest

from gapless.encodings.taccl import Problem
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.parameters import Switches
from gapless.encodings.taccl.switches.plans import switched_plan
from gapless.errors import InputError
from gapless.io.mscclpp import judge, lower
from gapless.io.mscclpp.program import Plan
from gapless.options import Deadline, SolveOptions
from gapless.topologies.node import NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.ports.switch_groups import Reduction

SWITCH = Reduction(alpha_s=1e-6, beta_s_per_byte=1e-12)


def planned(
    collective: str, ranks: int = 4, nodes: int = 1, size_bytes: int = 10**7, reduction: Reduction = SWITCH
) -> Candidate:
    switch = SwitchTemplate(tuple(range(ranks)), 1e-6, 1e-12, reduction=reduction)
    nics = tuple(NicTemplate((rank,), 2e-6, 10e-12) for rank in range(ranks))
    topology = NodeTemplate("node", ranks, switches=(switch,), nics=nics).cluster(nodes)
    problem = Problem(topology, collective, size_bytes, root=0 if collective == "broadcast" else None)
    found = switched_plan(problem, Deadline(SolveOptions()), Switches())
    assert found is not None
    return found


def lowered(found: Candidate, placement: str = "out-of-place", instances: int = 1) -> Plan:
    return lower(found.schedule, found.problem.collective, placement=placement, instances=instances)


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("placement", ["in-place", "out-of-place"])
@pytest.mark.parametrize(("collective", "operation"), [("allreduce", "glres"), ("allgather", "gstore")])
def test_the_switch_stores_what_the_plan_says(collective: str, operation: str, placement: str, instances: int) -> None:
    plan = lowered(planned(collective), placement, instances)
    verdict = judge(plan)
    assert verdict.is_valid, verdict.problems
    assert verdict.collective is not None
    assert not verdict.warnings
    used = {each.name for gpu in plan.gpus for block in gpu.threadblocks for each in block.ops}
    assert used == {"signal", "wait", "nop", operation}


def test_a_reduction_to_all_is_shared_by_all_ranks() -> None:
    only = Reduction(False, False, True, alpha_s=1e-6, beta_s_per_byte=1e-12)
    plan = lowered(planned("allreduce", reduction=only))
    assert judge(plan).is_valid
    sums = [[each for block in gpu.threadblocks for each in block.ops if each.name == "glres"] for gpu in plan.gpus]
    assert [len(each) for each in sums] == [1] * 4


def test_many_pieces_take_several_blocks() -> None:
    plan = lowered(planned("allreduce", size_bytes=10**10))
    assert max(len(gpu.threadblocks) for gpu in plan.gpus) > 1
    assert judge(plan).is_valid


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"collective": "reducescatter"}, "written for allreduce and allgather"),
        ({"collective": "allreduce", "nodes": 2}, r"alone, or none, got \d+ transfers besides"),
        ({"collective": "allgather", "ranks": 20}, "a block takes 16 channels, to meet all other ranks it needs 19"),
        ({"collective": "broadcast"}, "got broadcast"),
    ],
)
def test_what_msccl_plus_plus_has_no_operation_for(found: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lowered(planned(**found))  # type: ignore[arg-type]
