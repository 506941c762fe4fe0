"""Large buffers on every built-in machine and network: the plan of `solve` over the exact bandwidth bound.

Run with `pytest tests/benchmarks/test_taccl_quality.py --tables FOLDER`, with `--limit-s S` for another time limit.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from result_tables import ResultTables

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked, Problem
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.topologies.files import load_topology

MACHINES = ("dgx1", "ndv2", "dgx2", "dgx-a100", "dgx-h100", "mi250", "mi300x")
NETWORKS = (
    "ring:8", "line:8", "hub-and-spoke:8", "torus:4x4", "torus:4x4x4", "mesh:3x5", "hypercube:4", "fat-tree:k=4",
    "dragonfly:a=4,p=2,h=2",
)  # fmt: skip
CASES = [*((machine, nodes) for machine in MACHINES for nodes in (1, 2)), *((network, 1) for network in NETWORKS)]
PART_BYTES = {"16 MB": 16 * 10**6, "64 MB": 64 * 10**6}
LIMIT_S = 6.0
WORST = 1.1
TITLE = "Plans for large parts of a rank's own, over the exact bandwidth bound and over the best bound for the chunks"


@pytest.mark.parametrize("collective", ["allgather", "reducescatter"])
@pytest.mark.parametrize(("name", "nodes"), CASES)
@pytest.mark.usefixtures("keep_tables")
def test_large_buffers_are_close_to_the_bandwidth(
    name: str, nodes: int, collective: str, tables: ResultTables, limit_s: Callable[[float], float]
) -> None:
    topology = load_topology(name, nodes).without_switch_groups()
    for title, part_bytes in PART_BYTES.items():
        input_bytes = part_bytes * (1 if collective == "allgather" else topology.device_count)
        result = gapless.solve(
            Problem(topology, collective, input_bytes), SolveOptions(gap=0.01, time_limit_s=limit_s(LIMIT_S))
        )
        assert result.valid
        assert result.report is not None
        whole = Chunked.of(topology, collective, input_bytes).collective
        s_per_byte = bounds_of(Chunked(topology, whole, part_bytes)).s_per_byte
        to_bandwidth = result.report.makespan_s / (s_per_byte * part_bytes)
        tables.table("taccl_quality", TITLE).add(
            f"{name} x {nodes} {collective} {title}",
            topology=f"{name} x {nodes}",
            collective=collective,
            part=title,
            chunks=result.details["provenance"]["chunks"],
            method=result.details["method"],
            makespan_us=round(1e6 * result.report.makespan_s, 1),
            to_bandwidth=round(to_bandwidth, 4),
            to_bound=round(result.details["ratio"], 4),
        )
        assert 1 - 1e-9 <= to_bandwidth <= WORST
