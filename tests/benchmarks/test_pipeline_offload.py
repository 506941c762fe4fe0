"""GPT of 175 billion parameters on eight groups of eight devices: what copies to hosts gain beside recomputation.

`pytest tests/benchmarks/test_pipeline_offload.py --tables FOLDER` writes the table of docs/pipeline.md.
A group has room for less than half of what a plan without a limit keeps. Orders are made with a fiftieth of the
default work, so that the figures are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from result_tables import ResultTables

import gapless
from gapless.encodings.pipeline.parameters import DEFAULTS
from gapless.options import SolveOptions

TITLE = "GPT of 175 billion parameters, 8 groups of 8 devices, 16 micro-batches, 569 GB a group"
PROFILE = "gpt:layers=96,hidden=12288,sequence=2048,vocabulary=51200,micro_batch=1,tensor_parallel=8,heads=96"
SHARE = 0.02
CASES: dict[str, dict[str, Any]] = {
    "no limit": {"memory": None},
    "keep all": {},
    "recompute": {"recomputation": "auto"},
    "offload at 200 GB/s": {"recomputation": "auto", "offload": "200GB/s", "host_memory": "2TB"},
    "offload at 400 GB/s": {"recomputation": "auto", "offload": "400GB/s", "host_memory": "2TB"},
}


@pytest.mark.shortest("keep all")
@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("name", CASES)
def test_copies_beside_recomputation(name: str, tables: ResultTables, sized: Callable[[int, int], int]) -> None:
    asked = {"memory": "569GB", **CASES[name]}
    question = gapless.pipeline.problem(
        profile=PROFILE, ranks=8, micro_batches=sized(16, 4), bandwidth="200Gbps", **asked
    )
    found = gapless.solve(question, SolveOptions(threads=1, time_limit_s=3600.0), DEFAULTS.with_share(SHARE))
    assert found.valid
    assert found.report is not None
    step_s, bound_s = found.report.makespan_s, found.solution.bound
    assert bound_s is not None
    assert bound_s <= step_s
    tables.table("pipeline_offload", TITLE).add(
        name, step=f"{step_s:.2f} s", bound=f"{bound_s:.2f} s",
        offloaded=f"{found.details.get('offloaded_stashes', 0)}", recomputed=f"{len(found.details['recomputed'])}",
        kept=f"{max(found.report.peak_bytes[:8]) / 1e9:.0f} GB",
    )  # fmt: skip
