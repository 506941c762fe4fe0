"""ALLREDUCE of a byte on up to 8 ranks, exactly: the least rounds by CP-SAT, the bound, and the plan.

Where all messages take the same time, a byte's plan is one in rounds. The table has how many rounds a schedule needs by
a model that knows nothing but the rules of sums, how many the bound proves, and how many the plan takes. Run with
`pytest tests/benchmarks/test_taccl_rounds.py --tables FOLDER`.
"""

from __future__ import annotations

import pytest
from exact_rounds import schedule_in_rounds
from result_tables import ResultTables

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Problem
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.topologies.files import load_topology

TOPOLOGIES = [
    "ring:4", "ring:5", "ring:6", "ring:7", "ring:8", "line:8", "mesh:2x4", "hypercube:3", "hub-and-spoke:8", "dgx1",
    "ndv2", "mi300x",
]  # fmt: skip
SIZE = 8
"""Bytes: one a rank, so that no byte of theirs has a chunk of its own in fewer rounds."""
WORK = 20.0
"""CP-SAT's deterministic time, some seconds."""
TITLE = "Rounds of ALLREDUCE of a few bytes on up to 8 ranks: least by an exact model, proven by the bound, of the plan"


def least_rounds(ranks: int, links: list[tuple[int, int]]) -> int:
    """The least that the exact model finds."""
    rounds = 1
    while schedule_in_rounds(ranks, links, rounds, WORK) is None:
        rounds += 1
    return rounds


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.usefixtures("keep_tables")
def test_no_bound_is_above_the_least_and_no_plan_below(name: str, tables: ResultTables) -> None:
    topology = load_topology(name)
    round_s = float(topology.alpha_s.min())
    links = sorted(set(zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True)))
    least = least_rounds(topology.device_count, links)
    problem = Problem(topology, "allreduce", SIZE)
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0))
    assert result.report is not None
    bound, plan = bounds_of(problem.coarsest).asked_s / round_s, result.report.makespan_s / round_s
    row = {"topology": name, "least": least, "bound": round(bound, 2), "plan": round(plan, 2)}
    tables.table("taccl_rounds", TITLE).add(name, **row)
    assert bound <= least * 1.01
    assert plan >= least
    assert bound >= least * 0.99
