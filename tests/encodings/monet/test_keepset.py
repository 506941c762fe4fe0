"""Keep-sets: what the fast evaluation says is what the evaluator finds in the plan spelled out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_training import training_graphs

from planwright.encodings.monet.evaluate import evaluate
from planwright.encodings.monet.keepset import Keeper, KeepSet
from planwright.profiles.training_graph import TrainingGraph


def random_keep(graph: TrainingGraph, seed: int) -> KeepSet:
    random = np.random.default_rng(seed)
    nodes = len(graph.forward)
    variant = np.array([random.integers(len(node.variants)) for node in graph.backward], dtype=np.int64)
    share = random.random()
    return KeepSet(random.random(nodes) < share, random.random(nodes) < 0.3, variant)


def agree(graph: TrainingGraph, budget_bytes: int, keep: KeepSet) -> None:
    keeper = Keeper(graph, budget_bytes)
    plain, outcome = keeper.assess(keep)
    judged = evaluate(graph, keeper.decide(plain))
    assert judged.faults == ()
    assert outcome.cost_s == pytest.approx(judged.cost_s, rel=1e-12)
    overflow = max(judged.peak_bytes - budget_bytes, 0)
    made_in_place = any(
        graph.forward[k].creator is not None and graph.forward[k].in_place for k in np.flatnonzero(plain.kept)
    )
    if made_in_place:  # charged more strictly than in the paper's rows, as a run would be
        assert outcome.overflow_bytes >= overflow
    else:
        assert outcome.overflow_bytes == pytest.approx(overflow)
    assert keeper.assess(plain)[1] == outcome


@settings(max_examples=150, deadline=None)
@given(graph=training_graphs(), seed=st.integers(0, 2**31), budget=st.integers(1, 400))
def test_fast_evaluation_agrees_with_the_evaluator(graph: TrainingGraph, seed: int, budget: int) -> None:
    agree(graph, budget, random_keep(graph, seed))


@pytest.mark.parametrize("name", ["vgg16_176", "un_11", "mobilenet_v2_272", "resnet50_184"])
def test_fast_evaluation_agrees_on_measured_graphs(measured: Callable[[str], TrainingGraph], name: str) -> None:
    graph = measured(f"{name}_inplace_conv_multiway_newnode")
    for seed in range(12):
        agree(graph, 6 * 2**30, random_keep(graph, seed))
