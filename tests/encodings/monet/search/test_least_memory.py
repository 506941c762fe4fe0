"""The least budget: what is found fits, what is proven is never above it, and the two meet on a transformer."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import HealthCheck, given
from monet_proofs import questions
from tiny_training import cheapest_s

import gapless
from gapless import SolveOptions, Status
from gapless.encodings.monet import Problem
from gapless.encodings.monet.parameters import Nesting, Parameters
from gapless.encodings.monet.search.least_memory import least_nested, needed_bytes
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build, transformers


@examples(100, suppress_health_check=[HealthCheck.too_slow])
@given(question=questions())
def test_a_plan_fits_into_what_is_found_and_none_below_what_is_proven(question: tuple[TrainingGraph, int]) -> None:
    graph, _ = question
    result = gapless.solve(Problem(graph, 1), SolveOptions(threads=1, gap=0.0), Parameters(least_budget_steps=200))
    if result.status is not Status.INFEASIBLE:  # a graph of a byte or less
        return
    bound, found = (result.details[f"least_budget_{title}_bytes"] for title in ("bound", "found"))
    assert isinstance(bound, int)
    assert bound <= 1 or cheapest_s(graph, bound - 1) is None
    if isinstance(found, int):
        assert bound <= found
        assert cheapest_s(graph, found) is not None


def test_a_small_transformer_s_least_budget_is_proven_within_3_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"_BASE": transformers.Size(layers=3, features=64), "_HEAD_FEATURES": 16, "_GPT2_VOCABULARY": 64}
    for name, value in small.items():
        monkeypatch.setattr(transformers, name, value)
    graph = build("gpt2_small", 2, input_size=64)
    result = gapless.solve(
        Problem(graph, 1),
        SolveOptions(threads=1, gap=0.0),
        Parameters(nesting=Nesting(most_places=32, levels=100), least_budget_steps=4000),
    )
    bound, found = (result.details[f"least_budget_{title}_bytes"] for title in ("bound", "found"))
    assert isinstance(bound, int)
    assert isinstance(found, int)
    assert bound <= found <= 1.03 * bound


def test_nested_checkpoints_need_less_than_keeping_all_and_as_much_as_they_say() -> None:
    graph = build("mobilenet_v2", 8)
    keeps_all = peak_without_saving_bytes(graph)
    nesting = Nesting(most_places=24, levels=100)
    found = least_nested(graph, (keeps_all // 8, keeps_all), nesting, lambda: False)
    assert found is not None
    assert found[0] == needed_bytes(graph, found[1]) < keeps_all // 2
    assert least_nested(graph, (1, 2), nesting, lambda: False) is None
