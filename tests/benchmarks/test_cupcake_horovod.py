"""Horovod's tensor fusion on the shipped profiles, over all settings that its autotune may find, beside optimal plans.

Horovod looks every cycle for gradients that are ready and sends them together, up to a threshold of bytes. Here that
rule runs in the time line of plans, with plain gradients. Waiting for a cycle and copying into the fusion buffer cost
nothing. `pytest tests/benchmarks/test_cupcake_horovod.py` prints the table of docs/comparisons/gradients.md.
"""

from __future__ import annotations

import math
from itertools import product

import pytest
from result_tables import ResultTables

import gapless
from gapless.profiles.gradients.fusion import Costs, Fusion
from gapless.profiles.gradients.named import load_fusion_profile

THRESHOLDS_MB = (1, 2, 4, 8, 16, 32, 64, 128)
CYCLES_S = (0.5e-3, 1e-3, 2.5e-3, 5e-3, 10e-3, 20e-3, 30e-3, 50e-3, 100e-3)
DEFAULT = (128, 1e-3)
TITLE = "A step with plain gradients (ms): Horovod's rule, DDP's buckets, the best fusion, and what else there is"


def fused_s(costs: Costs, threshold_mb: float, cycle_s: float) -> float:
    """The step in which a cycle sends what is ready, in a message of at most the threshold, once the last is over."""
    ends, free_s, first = list[int](), 0.0, 0
    while first < costs.count:
        begin_s = cycle_s * math.ceil(max(free_s, costs.ready_s[first + 1]) / cycle_s - 1e-9)
        end = first + 1
        while (
            end < costs.count
            and costs.ready_s[end + 1] <= begin_s
            and costs.size_bytes[first : end + 1].sum() <= threshold_mb * 1e6
        ):
            end += 1
        ends.append(end)
        free_s, first = begin_s + float(costs.modes[0].send_s(first, end)), end
    return costs.step_s(Fusion.uniform(ends, "plain"))


def buckets_s(costs: Costs, size_mb: float) -> float:
    """The step in which a group is closed once it holds so many bytes, as DistributedDataParallel does."""
    ends, held = list[int](), 0
    for k, size_bytes in enumerate(costs.size_bytes):
        held += int(size_bytes)
        if held >= size_mb * 1e6 or k + 1 == costs.count:
            ends.append(k + 1)
            held = 0
    return costs.step_s(Fusion.uniform(ends, "plain"))


def planned_s(profile: str, **question: str) -> float:
    result = gapless.cupcake.solve(profile, **question)
    assert result.valid
    assert result.report is not None
    return result.report.makespan_s


@pytest.mark.parametrize("profile", ["resnet50", "resnet101", "bert-base", "gpt2", "vgg16"])
@pytest.mark.usefixtures("keep_tables")
def test_no_setting_of_horovod_is_faster_than_the_best_fusion(profile: str, tables: ResultTables) -> None:
    costs = Costs.of(load_fusion_profile(profile), ["plain"])
    steps_s = {setting: fused_s(costs, *setting) for setting in product(THRESHOLDS_MB, CYCLES_S)}
    best = min(steps_s, key=steps_s.__getitem__)
    optimum_s = planned_s(profile, modes="plain")
    tables.table("cupcake_horovod", TITLE).add(
        profile,
        profile=profile,
        default=round(1e3 * steps_s[DEFAULT], 2),
        best=round(1e3 * steps_s[best], 2),
        threshold_mb=best[0],
        cycle_ms=1e3 * best[1],
        buckets_25_mb=round(1e3 * buckets_s(costs, 25), 2),
        best_fusion=round(1e3 * optimum_s, 2),
        plain_or_dgc=round(1e3 * planned_s(profile), 2),
    )
    assert optimum_s <= min(steps_s.values()) * (1 + 1e-9)
    assert optimum_s <= buckets_s(costs, 25) * (1 + 1e-9)
