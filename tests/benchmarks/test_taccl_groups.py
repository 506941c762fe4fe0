"""Process groups: eight ALLGATHERs of eight ranks planned together, and each alone and then run at the same time.

Run with `pytest tests/benchmarks/test_taccl_groups.py --tables FOLDER`. What is planned alone may use all links, also
where another group's chunks use them; run together, each send starts as soon as what it needs, and its ports, are free.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from little import LITTLE
from result_tables import ResultTables

from gapless import SolveOptions
from gapless.encodings.taccl.problem import Problem, problem
from gapless.encodings.taccl.solve import solve
from gapless.ir.graph import Graph, Placement
from gapless.ir.process_groups import Groups
from gapless.ir.schedule import Ragged, Schedule
from gapless.ir.simulate import retime
from gapless.system import Plan

SIZE_BYTES = 16_000_000
CASES = {
    "dgx-a100 x 8, one rank of each node": ("dgx-a100", 8, "gpu=8,node=8"),
    "dgx-a100 x 8, the ranks of a node": ("dgx-a100", 8, "gpu=8"),
    "mesh:8x8, rows": ("mesh:8x8", None, "x=8"),
}
OPTIONS = SolveOptions(gap=0.02)
TITLE = "Eight ALLGATHERs (us): planned together; each alone, run at once, and by itself; over the joint bound"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("keep_tables")
def test_groups_planned_together_are_no_slower_than_alone(case: str, tables: ResultTables) -> None:
    name, nodes, group = CASES[case]
    begin_s = time.process_time()
    joint = problem(name, nodes=nodes, group=[group], size=SIZE_BYTES)
    plan = solve(joint, OPTIONS, LITTLE)
    cpu_s = time.process_time() - begin_s
    assert isinstance(joint.collective, Groups)
    alone = [_alone(joint, number) for number in range(len(joint.collective.groups))]
    at_once = _at_once([each.schedule for each in alone if each.schedule is not None])
    together_s, slowest_s = float(at_once.end_s.max()), max(_end_s(each) for each in alone)
    bound_s = plan.solution.bound
    assert bound_s is not None
    tables.table("taccl_groups", TITLE).add(
        case,
        case=case,
        together_us=round(1e6 * _end_s(plan), 2),
        at_once_us=round(1e6 * together_s, 2),
        to_at_once=round(_end_s(plan) / together_s, 3),
        alone_us=round(1e6 * slowest_s, 2),
        to_bound=round(_end_s(plan) / bound_s, 4),
        method=plan.details["method"],
        cpu_s=round(cpu_s, 1),
    )
    assert _end_s(plan) <= together_s * (1 + 1e-9)


def _alone(joint: Problem, number: int) -> Plan:
    assert isinstance(joint.collective, Groups)
    group = joint.collective.groups[number]
    return solve(Problem(joint.topology, Groups((group,)), joint.size_bytes), OPTIONS, LITTLE)


def _at_once(schedules: list[Schedule]) -> Schedule:
    """All events in the order of their starts, each as early as it can be."""
    first = np.cumsum([0, *(schedule.graph.tensor_count for schedule in schedules)]).tolist()
    graphs = [schedule.graph for schedule in schedules]
    graph = Graph(
        size_bytes=np.concatenate([graph.size_bytes for graph in graphs]),
        initial=_shifted([graph.initial for graph in graphs], first),
        required=_shifted([graph.required for graph in graphs], first),
    )
    moves = [
        schedule.moves[event] + offset
        for schedule, offset in zip(schedules, first[:-1], strict=True)
        for event in range(len(schedule))
    ]
    count = len(moves)
    columns = {
        name: np.concatenate([getattr(schedule, name) for schedule in schedules])
        for name in ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces")
    }
    lengths = np.cumsum([0, *map(len, moves)])
    together = Schedule(
        graph=graph,
        topology=schedules[0].topology,
        moves=Ragged(lengths, np.concatenate(moves)),
        freed_tensor=Ragged.empty(count),
        freed_device=Ragged.empty(count),
        name="at once",
        **columns,
    )
    return retime(together)


def _shifted(placements: list[Placement], first: list[int]) -> Placement:
    pairs = [
        (tensor + offset, device)
        for placement, offset in zip(placements, first[:-1], strict=True)
        for tensor, device in zip(placement.tensors.tolist(), placement.devices.tolist(), strict=True)
    ]
    return Placement.of(pairs)


def _end_s(plan: Plan) -> float:
    assert plan.solution.objective is not None
    return plan.solution.objective
