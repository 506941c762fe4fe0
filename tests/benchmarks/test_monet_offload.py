"""Offloading on a measured UNet: overhead without a link, with one, its bound, and what others do.

`pytest tests/benchmarks/test_monet_offload.py --tables FOLDER`, 90 s (`--limit-s`) on two cores for each plan. What is
asserted: every plan replays clean within the budget, none is below the bound, ours is not behind any other.
"""

from __future__ import annotations

from typing import Any

import pytest
from measured_monet import FULL, measured
from result_tables import ResultTables

import gapless
from gapless import Result, SolveOptions
from gapless.encodings.monet import Problem
from gapless.encodings.monet.offload.copies import Link
from gapless.profiles.training.baseline import peak_without_saving_bytes

LIMIT_S = 90.0
METHODS = {"with": "auto", "all": "offload-all", "layers": "offload-layers"}


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("rate", [25, 400])
@pytest.mark.parametrize("share", [0.4, 0.3])
def test_offloading_is_not_behind_others(tables: ResultTables, limit_s: Any, share: float, rate: int) -> None:
    graph = measured(f"un_11_{FULL}")
    budget_bytes, link = int(share * peak_without_saving_bytes(graph)), Link(rate * 1e9, 64 * 10**9)
    options = SolveOptions(gap=0.0005, time_limit_s=limit_s(LIMIT_S), threads=2)
    found = {
        title: gapless.solve(Problem(graph, budget_bytes, method=method, link=link), options)
        for title, method in METHODS.items()
    }
    ours = found["with"]
    assert ours.solution.bound is not None
    for title, result in found.items():
        assert result.valid, title
        assert ours.solution.bound * (1 - 1e-9) <= seconds(result)
        assert seconds(ours) <= seconds(result) * (1 + 1e-9)
    least_s = ours.details["unlimited_s"]
    row = {title: f"{100 * (seconds(result) / least_s - 1):.1f}" for title, result in found.items()}
    row["without"] = f"{100 * (ours.details['without_offload_s'] / least_s - 1):.1f}"
    row["least"] = f"{100 * ours.details['overhead_bound']:.1f}"
    tables.table("monet_offload", "Overhead in % over a step without a budget").add(f"un_11-{share}-{rate}", **row)


def seconds(result: Result) -> float:
    """What a step takes."""
    assert result.report is not None
    return result.report.makespan_s
