"""Whether any plan fits a budget: against a dynamic programme that tries everything, and on measured networks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from monet_proofs import questions
from tiny_training import cheapest_s

from gapless.encodings.monet.bounds.fitting import fits
from gapless.encodings.monet.bounds.must_hold import least_row_bytes
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.parameters import Fitting
from gapless.encodings.monet.search.least_memory import narrowed
from gapless.options import SolveOptions
from gapless.profiles.training.graph import TrainingGraph

OPTIONS = SolveOptions(step_limit=300)
GIB = 2**30


@examples(1500, suppress_health_check=[HealthCheck.too_slow])
@given(question=questions(), share=st.integers(0, 12))
def test_a_plan_fits_where_trying_everything_finds_one_and_nowhere_else(
    question: tuple[TrainingGraph, int], share: int
) -> None:
    graph, high_bytes = question
    low_bytes = least_row_bytes(graph)
    budget_bytes = max(1, low_bytes + (high_bytes - low_bytes) * share // 12)
    found = fits(graph, budget_bytes, OPTIONS)
    assert found.is_possible == (cheapest_s(graph, budget_bytes) is not None)
    assert (found.decisions is not None) == found.is_possible
    if found.decisions is not None:
        judged = evaluate(graph, found.decisions)
        assert not judged.faults
        assert judged.peak_bytes <= budget_bytes


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(question=questions())
def test_the_least_budget_is_narrowed_to_what_trying_everything_says(question: tuple[TrainingGraph, int]) -> None:
    graph, high_bytes = question
    if cheapest_s(graph, high_bytes) is None:
        return
    low_bytes = max(1, least_row_bytes(graph))
    bound, found = narrowed(graph, (low_bytes, high_bytes), Fitting(), OPTIONS)
    assert bound <= found <= high_bytes
    assert cheapest_s(graph, found) is not None
    assert bound <= low_bytes or cheapest_s(graph, bound - 1) is None


def test_no_work_narrows_nothing() -> None:
    graph = TrainingGraph.__new__(TrainingGraph)
    assert narrowed(graph, (5, 9), Fitting(budgets=0), OPTIONS) == (5, 9)


@pytest.mark.thorough
def test_a_measured_unet_s_least_budget_is_proven_within_3_percent(measured: Callable[[str], TrainingGraph]) -> None:
    graph = measured("un_11_inplace_conv_multiway_newnode")
    between = int(3.5 * GIB), int(4.1 * GIB)
    bound, found = narrowed(graph, between, Fitting(), OPTIONS)
    assert 3.8 * GIB < bound <= found <= 1.03 * bound
