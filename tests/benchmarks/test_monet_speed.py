"""MONeT on the measured graphs: seconds to a proven gap, and the objective, beside the commercial solver's.

`pytest tests/benchmarks/test_monet_speed.py --benchmark-only -s` prints a row for each case.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import planwright
from planwright import Progress, SolveOptions
from planwright.encodings.monet import Problem
from planwright.encodings.monet.keepset import Keeper, KeepSet
from planwright.encodings.monet.retention import last_needs
from planwright.profiles.monet_instances import read_monet_instance
from planwright.profiles.training_graph import TrainingGraph

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "monet" / "instances"
GIB = 2**30

CASES = {  # best objective of the commercial solver after at most 24 hours on 12 threads, in 0.01 ms
    ("resnet50_184", 5): 98_160, ("resnet50_184", 6): 96_105, ("resnet50_184", 8): 92_522, ("resnet50_184", 10): 90_517,
    ("mobilenet_v2_272", 5): 64_099, ("mobilenet_v2_272", 6): 63_238, ("mobilenet_v2_272", 8): 61_513,
    ("mobilenet_v2_272", 10): 59_959, ("un_11", 5): 128_723, ("un_11", 6): 121_617, ("un_11", 8): 115_405,
    ("un_11", 10): 110_933, ("vgg16_176", 6): 149_129, ("vgg16_176", 8): 138_333, ("vgg16_176", 10): 132_400,
}  # fmt: skip
LIMIT_S = 60.0


def measured(name: str) -> TrainingGraph:
    if not DATA.is_dir():
        pytest.skip(f"the measured graphs are not at {DATA}")
    return read_monet_instance(DATA / f"{name}_inplace_conv_multiway_newnode.json.gz")


@pytest.mark.parametrize(("name", "budget_gib"), CASES, ids=[f"{name}-{budget}" for name, budget in CASES])
def test_gap_and_objective(benchmark: Any, name: str, budget_gib: int) -> None:
    reached: dict[float, float] = {}

    def note(progress: Progress) -> None:
        for gap in (0.05, 0.02):
            if progress.gap is not None and progress.gap <= gap:
                reached.setdefault(gap, progress.wall_s)

    problem = Problem(measured(name), budget_gib * GIB)
    options = SolveOptions(gap=0.001, time_limit_s=LIMIT_S, on_progress=note)
    result = benchmark.pedantic(planwright.solve, args=(problem, options), rounds=1)
    assert result.valid
    assert result.report.peak_bytes[0] <= budget_gib * GIB
    objective = result.solution.objective * 1e5
    row = {
        "objective": round(objective),
        "commercial": CASES[name, budget_gib],
        "ratio": round(objective / CASES[name, budget_gib], 4),
        "gap": round(result.solution.gap, 4),
        "to_5_percent_s": round(reached.get(0.05, float("nan")), 1),
        "to_2_percent_s": round(reached.get(0.02, float("nan")), 1),
        "states": result.details["states"],
    }
    benchmark.extra_info |= row
    print(f"\n{name} {budget_gib} GiB: {row}", flush=True)


def test_vgg16_is_proven_not_to_fit_into_5_gib(benchmark: Any) -> None:
    problem = Problem(measured("vgg16_176"), 5 * GIB)
    result = benchmark.pedantic(planwright.solve, args=(problem, SolveOptions(time_limit_s=LIMIT_S)), rounds=1)
    assert result.status is planwright.Status.INFEASIBLE


def test_keep_set_states_of_resnet50(benchmark: Any) -> None:
    """How many keep-sets a second one core looks at (100 a round)."""
    import numpy as np

    graph = measured("resnet50_184")
    keeper = Keeper(graph, 6 * GIB)
    random = np.random.default_rng(0)
    variant = np.zeros(len(graph.backward), dtype=np.int64)
    wanted = np.array(last_needs(graph, variant)) > 0
    keeps = [KeepSet(wanted & (random.random(len(wanted)) < 0.5), wanted & False, variant) for _ in range(100)]
    outcomes = benchmark(lambda: [keeper.assess(keep)[1] for keep in keeps])
    assert all(outcome.cost_s > 0 for outcome in outcomes)
    benchmark.extra_info["states_per_s"] = 100 / benchmark.stats["mean"]
