"""How fast MONeT's search looks at keep-sets: `pytest tests/benchmarks/test_monet_speed.py --benchmark-only`."""

from __future__ import annotations

from typing import Any

import numpy as np
from measured_monet import FULL, GIB, measured

from planwright.encodings.monet.keepset import Keeper, KeepSet
from planwright.encodings.monet.retention import last_needs


def test_keep_set_states_of_resnet50(benchmark: Any) -> None:
    """How many keep-sets a second one core looks at (100 a round)."""
    graph = measured(f"resnet50_184_{FULL}")
    keeper = Keeper(graph, 6 * GIB)
    random = np.random.default_rng(0)
    variant = np.zeros(len(graph.backward), dtype=np.int64)
    wanted = np.array(last_needs(graph, variant)) > 0
    keeps = [KeepSet(wanted & (random.random(len(wanted)) < 0.5), wanted & False, variant) for _ in range(100)]
    outcomes = benchmark(lambda: [keeper.assess(keep)[1] for keep in keeps])
    assert all(outcome.cost_s > 0 for outcome in outcomes)
    benchmark.extra_info["states_per_s"] = 100 / benchmark.stats["mean"]
