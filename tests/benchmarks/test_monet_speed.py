"""MONeT on the measured graphs: seconds to a proven gap, and the objective, beside the commercial solver's.

`pytest tests/benchmarks/test_monet_speed.py --benchmark-only -s` prints a row for each case.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planwright
from planwright import Progress, SolveOptions
from planwright.encodings.monet import Problem, relaxation
from planwright.encodings.monet.evaluate import evaluate
from planwright.encodings.monet.keepset import Keeper, KeepSet
from planwright.encodings.monet.retention import last_needs
from planwright.encodings.monet.search import Annealing
from planwright.profiles.monet_instances import read_monet_instance
from planwright.profiles.training_graph import TrainingGraph
from planwright.solvers.registry import solve_model

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


@pytest.mark.benchmark(timer=time.process_time)  # of this process alone: other work on the machine doesn't count
def test_keep_set_states_of_resnet50(benchmark: Any) -> None:
    """How many keep-sets a second the search looks at on one core; moves that change nothing don't count."""
    graph, budget_bytes, count = measured("resnet50_184"), 6 * GIB, 2000
    keeper, start = Keeper(graph, budget_bytes), start_from_the_relaxation(graph, budget_bytes)
    unit_s = sum(min(way.duration_s for way in node.ways) for node in graph.forward)

    def search() -> Annealing:
        annealing = Annealing(keeper, unit_s, seed=0)
        annealing.round(start, 60.0, lambda: annealing.states >= count)
        return annealing

    annealing = benchmark(search)
    assert annealing.best is not None
    judged = evaluate(graph, keeper.decide(annealing.best.keep))
    assert judged.faults == ()
    assert judged.peak_bytes <= budget_bytes
    assert judged.cost_s == pytest.approx(annealing.best.outcome.cost_s, rel=1e-12)
    benchmark.extra_info["states_per_s"] = round(annealing.states / benchmark.stats["mean"])
    print(f"\nResNet-50, {budget_bytes // GIB} GiB: {benchmark.extra_info['states_per_s']} keep-sets a second")


@pytest.mark.benchmark(timer=time.process_time)
def test_keep_sets_of_resnet50_from_scratch(benchmark: Any) -> None:
    """How many keep-sets that have nothing in common one core evaluates a second (100 a round)."""
    graph = measured("resnet50_184")
    keeper = Keeper(graph, 6 * GIB)
    random = np.random.default_rng(0)
    variant = np.zeros(len(graph.backward), dtype=np.int64)
    wanted = np.array(last_needs(graph, variant)) > 0
    keeps = [KeepSet(wanted & (random.random(len(wanted)) < 0.5), wanted & False, variant) for _ in range(100)]
    assessed = benchmark(lambda: [keeper.assess(keep) for keep in keeps])
    for plain, outcome in assessed[::10]:
        assert outcome.cost_s == pytest.approx(evaluate(graph, keeper.decide(plain)).cost_s, rel=1e-12)
    benchmark.extra_info["states_per_s"] = round(len(keeps) / benchmark.stats["mean"])


def start_from_the_relaxation(graph: TrainingGraph, budget_bytes: int) -> KeepSet:
    """What the solver starts from: the relaxation at nine tenths of the budget."""
    parts = relaxation.encode(graph, int(0.9 * budget_bytes), (1,))
    solution = solve_model(parts.model, SolveOptions(gap=0.003, time_limit_s=10.0, threads=1), "highs")
    start = relaxation.decode(parts, solution.values)
    return KeepSet(start.kept, np.zeros_like(start.kept), start.variant)
