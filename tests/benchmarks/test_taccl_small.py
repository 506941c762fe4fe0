"""Few bytes: plans of aggregated sends over the best bound for any grouping of their chunks.

`pytest tests/benchmarks/test_taccl_small.py` prints the table of docs/taccl-scale.md. No limit of time is set: searches
count their work, so that any machine finds the same figures.
"""

from __future__ import annotations

from typing import Any

import pytest
from result_tables import ResultTables

import gapless
from gapless.encodings.taccl import Problem
from gapless.topologies.files import load_topology

MACHINES = (
    *((name, nodes) for name in ("ndv2", "dgx2", "dgx-a100", "dgx-h100", "mi300x") for nodes in (1, 2)),
    *((name, 1) for name in ("ring:8", "line:8", "torus:4x4", "hypercube:4", "hub-and-spoke:8", "fat-tree:k=4")),
    ("dragonfly:a=4,p=2,h=2", 1),
)  # fmt: skip
SIZES = {"1 KB": 1_000, "64 KB": 64_000}
COLLECTIVES = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast")


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "nodes"), MACHINES, ids=[f"{name} x {nodes}" for name, nodes in MACHINES])
@pytest.mark.shortest("ring:8")
def test_few_bytes(name: str, nodes: int, size: str, tables: ResultTables, sized: Any) -> None:
    topology, cells = load_topology(name, nodes).without_switch_groups(), dict[str, str]()
    for collective in sized(COLLECTIVES, COLLECTIVES[:1]):
        result = gapless.solve(Problem(topology, collective, SIZES[size]))
        assert result.valid
        assert result.report is not None
        chunks = result.details["provenance"]["chunks"]
        bound_s = result.details["bounds_s"][f"{chunks} chunk{'s' if chunks > 1 else ''}, any grouping"]
        ratio = result.report.makespan_s / bound_s
        assert ratio >= 1 - 1e-9
        cells[collective.upper()] = f"{1e6 * result.report.makespan_s:.2f}; {ratio:.2f}"
    machine = f"{name} x {nodes}" if ":" not in name else name
    tables.table("taccl_small", "Few bytes: makespan in us; over the bound for any grouping").add(
        f"{machine}, {size}", machine=machine, size=size, **cells
    )
