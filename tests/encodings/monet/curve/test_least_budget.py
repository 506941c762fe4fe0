"""The least budget for a time: found by bisection, bounded by proof."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from examples import examples
from hand_training import chain
from hypothesis import given
from hypothesis import strategies as st
from tiny_training import MIB, cheapest_s, keep_all, training_graphs

from gapless.encodings.monet.curve.least_budget import least_budget
from gapless.encodings.monet.evaluate import evaluate
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.training.graph import TrainingGraph

GIB = 2**30
QUICK = SolveOptions(gap=1e-6, time_limit_s=0.2, threads=1)
PATIENT = SolveOptions(gap=1e-6, time_limit_s=10, threads=1)


@pytest.mark.thorough
@examples(10)
@given(graph=training_graphs(), more=st.integers(0, 5))
def test_nothing_as_fast_fits_into_the_bound(graph: TrainingGraph, more: int) -> None:
    kept = evaluate(graph, keep_all(graph))
    cost_s = kept.cost_s + more * 1e-5
    found = least_budget(graph, cost_s, (1, kept.peak_bytes + 2), QUICK, MIB)
    if found.bound_bytes:
        least_s = cheapest_s(graph, found.bound_bytes)
        assert least_s is None or least_s > cost_s - 1e-12
    if found.report is not None:
        assert found.budget_bytes is not None
        assert found.report.makespan_s <= cost_s
        assert found.report.peak_bytes[0] <= found.budget_bytes
        assert found.bound_bytes < found.budget_bytes


def test_chain_without_time_to_spare_needs_all_of_its_memory() -> None:
    graph = chain(5)
    kept = evaluate(graph, keep_all(graph))
    found = least_budget(graph, kept.cost_s, (kept.peak_bytes // 2, kept.peak_bytes), PATIENT, 5)
    slower = least_budget(graph, kept.cost_s + 2, (kept.peak_bytes // 2, kept.peak_bytes), PATIENT, 5)
    assert found.budget_bytes is not None
    assert slower.budget_bytes is not None
    assert slower.budget_bytes < found.budget_bytes <= kept.peak_bytes


def test_time_that_no_plan_can_take_leaves_only_a_bound() -> None:
    found = least_budget(chain(4), 7.5, (1, 1000), PATIENT, 1)
    assert (found.bound_bytes, found.budget_bytes, found.schedule, found.solves) == (1000, None, None, 1)


@pytest.mark.parametrize(("between", "tolerance"), [((0, 5), 1), ((5, 5), 1), ((1, 5), 0)])
def test_range_must_ascend(between: tuple[int, int], tolerance: int) -> None:
    with pytest.raises(InputError, match="budgets must ascend from 1 and the tolerance be >= 1"):
        least_budget(chain(4), 8.0, between, QUICK, tolerance)


def test_vgg16_lies_between_its_infeasible_and_its_published_budget(measured: Callable[[str], TrainingGraph]) -> None:
    graph = measured("vgg16_176_inplace_conv_multiway_newnode")
    options = SolveOptions(gap=0.001, time_limit_s=10, threads=1)
    found = least_budget(graph, 1.4, (5 * GIB, 20 * GIB), options, 8 * GIB)
    assert found.budget_bytes is not None
    assert found.budget_bytes <= 12.5 * GIB
    assert found.bound_bytes <= found.budget_bytes
