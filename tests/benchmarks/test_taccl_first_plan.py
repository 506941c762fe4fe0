"""The first plan of 1 MB on the shipped machines: how long it takes, and which algorithm it is.

Run with `pytest tests/benchmarks/test_taccl_first_plan.py --tables FOLDER`. The least processor time of three counts.
"""

from __future__ import annotations

import time

import pytest
from result_tables import ResultTables

from gapless.checker import check
from gapless.encodings.taccl import Problem
from gapless.encodings.taccl.flow.first import first_plan
from gapless.options import Deadline, SolveOptions
from gapless.topologies.files import load_topology

MACHINES = [("ndv2", 1), ("ndv2", 2), ("dgx2", 2), ("ndv2", 8), ("dgx-a100", 8), ("dgx2", 4)]
TITLE = "The first plan of 1 MB: processor seconds, and which algorithm it is"


@pytest.mark.parametrize("collective", ["allgather", "allreduce", "alltoall", "broadcast"])
@pytest.mark.parametrize(("machine", "nodes"), MACHINES)
@pytest.mark.usefixtures("keep_tables")
def test_it_replays_clean(machine: str, nodes: int, collective: str, tables: ResultTables) -> None:
    topology = load_topology(machine, nodes)
    root = 0 if collective == "broadcast" else None
    cpu_s, plan = [], None
    for _ in range(3):
        problem = Problem(topology, collective, 10**6, root=root).coarsest
        begin_s = time.process_time()
        plan = first_plan(problem, Deadline(SolveOptions()))
        cpu_s.append(time.process_time() - begin_s)
    assert plan is not None
    report = check(plan.schedule)
    assert report.valid
    tables.table("taccl_first_plan", TITLE).add(
        f"{machine} x {nodes} {collective}",
        machine=f"{machine} x {nodes}",
        ranks=topology.device_count,
        collective=collective.upper(),
        cpu_s=f"{min(cpu_s):.2f}",
        plan_us=f"{1e6 * report.makespan_s:,.1f}",
        method=plan.method,
        variant=plan.variant,
    )
