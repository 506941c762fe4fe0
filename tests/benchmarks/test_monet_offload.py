"""Offloading: overhead without a link, with one, its bound, and what others do, on UNet and ResNet-50.

`pytest tests/benchmarks/test_monet_offload.py --tables FOLDER`, 90 s (`--limit-s`) on two cores for each plan. Costs on
a P100 are measured. On an A100 and an H100 they are the built-in networks': a kernel takes what its arithmetic takes at
a share of the data sheet's peak rate in single precision, or what its traffic takes at a share of the bandwidth,
whichever is longer (`gapless/profiles/devices.py`). What is asserted: every plan replays clean within the budget, none
is below the bound, ours is not behind any other.
"""

from __future__ import annotations

from typing import Any

import pytest
from measured_monet import FULL, measured
from result_tables import ResultTables

import gapless
from gapless import Result, SolveOptions
from gapless.encodings.monet import Problem
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.networks import build
from gapless.topologies.host import HostLink

LIMIT_S = 90.0
BUILT_IN = {"un_11": ("unet", 11), "resnet50_184": ("resnet50", 184)}
METHODS = {"with": "auto", "all": "offload-all", "layers": "offload-layers", "blocks": "offload-blocks"}


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("rate", [25, 400])
@pytest.mark.parametrize("share", [0.4, 0.3])
@pytest.mark.parametrize("device", ["p100", "a100", "h100"])
@pytest.mark.parametrize("name", ["un_11", "resnet50_184"])
def test_offloading_is_not_behind_others(
    tables: ResultTables, limit_s: Any, name: str, device: str, share: float, rate: int
) -> None:
    graph = measured(f"{name}_{FULL}") if device == "p100" else build(*BUILT_IN[name], device)
    budget_bytes, link = int(share * peak_without_saving_bytes(graph)), HostLink(rate * 1e9, 64 * 10**9)
    options = SolveOptions(gap=0.0005, time_limit_s=limit_s(LIMIT_S), threads=2)
    found = {
        title: gapless.solve(Problem(graph, budget_bytes, method=method, link=link), options)
        for title, method in METHODS.items()
    }
    ours = found["with"]
    assert ours.solution.bound is not None
    assert ours.valid
    plans = {title: seconds(result) for title, result in found.items() if result.valid}  # the others may have none
    for title, taken_s in plans.items():
        assert ours.solution.bound * (1 - 1e-9) <= taken_s, title
    least_s = ours.details["unlimited_s"]
    row = {title: f"{100 * (plans[title] / least_s - 1):.1f}" if title in plans else "none" for title in METHODS}
    without_s = ours.details.get("without_offload_s")
    row["without"] = "none" if without_s is None else f"{100 * (without_s / least_s - 1):.1f}"
    row["least"] = f"{100 * ours.details['overhead_bound']:.1f}"
    key = f"{name}-{share}-{rate}" if device == "p100" else f"{name}-{device}-{share}-{rate}"
    tables.table("monet_offload", "Overhead in % over a step without a budget").add(key, **row)
    assert plans["with"] == min(plans.values())


def seconds(result: Result) -> float:
    """What a step takes."""
    assert result.report is not None
    return result.report.makespan_s
