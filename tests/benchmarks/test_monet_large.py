"""Networks of equal blocks at 0.4 of a step's memory: how work and gap grow from 500 to 20,000 operators.

`pytest tests/benchmarks/test_monet_large.py --tables FOLDER`, on one thread, 60 s (`--limit-s`) for each solve, which
ends at a gap of 0.1 %. What is asserted: every plan replays clean within its budget, and no bound is above it.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest
from repeated_blocks import diffusion_unet, lstm, operators, transformer
from result_tables import ResultTables

import gapless
from gapless import SolveOptions
from gapless.encodings.monet import Problem
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph

LIMIT_S = 60.0
GAP = 0.001
SHARE = 0.4
MOST_SHORT = 5000
"""Operators of a network that a short limit is enough for."""
CASES = [
    *((transformer, count) for count in (12, 50, 100, 200, 460)),
    (lstm, 512),
    *((diffusion_unet, count) for count in (4, 16)),
]


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize(("network", "count"), CASES, ids=[f"{network.__name__}-{count}" for network, count in CASES])
def test_a_network_of_equal_blocks_is_planned_and_bounded(
    tables: ResultTables, limit_s: Callable[[float], float], network: Callable[[int], TrainingGraph], count: int
) -> None:
    graph, limit, before_s = network(count), limit_s(LIMIT_S), _cpu_s()
    if limit < LIMIT_S and operators(graph) > MOST_SHORT:
        pytest.skip("a large network takes longer than a short limit for its first plan")
    budget_bytes = int(SHARE * peak_without_saving_bytes(graph))
    options = SolveOptions(gap=GAP, time_limit_s=limit, threads=1)
    result = gapless.solve(Problem(graph, budget_bytes), options)
    cpu_s, found = _cpu_s() - before_s, result.solution
    tables.table("monet_large", "MONeT on networks of equal blocks, at 0.4 of a step's memory").add(
        f"{network.__name__}-{count}", network=graph.name, operators=f"{operators(graph):,}", cpu_s=round(cpu_s, 1),
        overhead=None if found.objective is None else round(100 * float(result.details["overhead"]), 1),
        gap=None if found.gap is None else round(100 * found.gap, 2),
    )  # fmt: skip
    assert found.objective is not None, "no plan within the limit"
    assert result.valid, result.report.summary()
    assert result.report.peak_bytes[0] <= budget_bytes
    assert found.bound is not None
    assert found.bound <= found.objective * (1 + 1e-9)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
