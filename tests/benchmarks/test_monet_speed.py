"""How fast MONeT's search looks at keep-sets: `pytest tests/benchmarks/test_monet_speed.py --benchmark-only`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from measured_monet import FULL, GIB, measured
from rates import rate

from gapless import SolveOptions
from gapless.encodings.monet.bounds import relaxation
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.parameters import Cooling, Moves
from gapless.encodings.monet.search.annealing import Annealing
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.encodings.monet.search.retention import last_needs
from gapless.profiles.training.graph import TrainingGraph
from gapless.solvers.registry import solve_model


@pytest.mark.benchmark(timer=time.process_time)  # of this process alone: other work on the machine doesn't count
def test_keep_set_states_of_resnet50(benchmark: Any) -> None:
    """How many keep-sets a second the search looks at on one core; moves that change nothing don't count."""
    graph, budget_bytes, count = measured(f"resnet50_184_{FULL}"), 6 * GIB, 2000
    keeper, start = Keeper(graph, budget_bytes), start_from_the_relaxation(graph, budget_bytes)
    unit_s = sum(min(impl.duration_s for impl in node.implementations) for node in graph.forward)

    def search() -> Annealing:
        annealing = Annealing(keeper, unit_s, 0, Cooling(), Moves())
        annealing.round(start, 100 * count, lambda: annealing.states >= count)
        return annealing

    annealing = benchmark(search)
    assert annealing.best is not None
    judged = evaluate(graph, keeper.decide(annealing.best.keep))
    assert judged.faults == ()
    assert judged.peak_bytes <= budget_bytes
    assert judged.cost_s == pytest.approx(annealing.best.outcome.cost_s, rel=1e-12)
    benchmark.extra_info["states_per_s"] = rate(benchmark, annealing.states)
    print(f"\nResNet-50, {budget_bytes // GIB} GiB: {benchmark.extra_info['states_per_s']} keep-sets a second")


@pytest.mark.benchmark(timer=time.process_time)
def test_keep_sets_of_resnet50_from_scratch(benchmark: Any) -> None:
    """How many keep-sets that have nothing in common one core evaluates a second (100 a round)."""
    graph = measured(f"resnet50_184_{FULL}")
    keeper = Keeper(graph, 6 * GIB)
    random = np.random.default_rng(0)
    variant = np.zeros(len(graph.backward), dtype=np.int64)
    wanted = np.array(last_needs(graph, variant)) > 0
    keeps = [KeepSet.just_in_time(wanted & (random.random(len(wanted)) < 0.5), variant) for _ in range(100)]
    assessed = benchmark(lambda: [keeper.assess(keep) for keep in keeps])
    for plain, outcome in assessed[::10]:
        assert outcome.cost_s == pytest.approx(evaluate(graph, keeper.decide(plain)).cost_s, rel=1e-12)
    benchmark.extra_info["states_per_s"] = rate(benchmark, len(keeps))


def start_from_the_relaxation(graph: TrainingGraph, budget_bytes: int) -> KeepSet:
    """What the solver starts from: the relaxation at nine tenths of the budget."""
    model = relaxation.encode(graph, int(0.9 * budget_bytes), (1,))
    solution = solve_model(model.milp, SolveOptions(gap=0.003, time_limit_s=10.0, threads=1), "highs")
    return relaxation.decode(model, solution.values)
