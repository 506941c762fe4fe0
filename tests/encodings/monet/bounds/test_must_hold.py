"""Proofs that a budget is too small, against a dynamic programme that tries everything, and on a real network."""

from __future__ import annotations

from collections.abc import Callable

from examples import examples
from hypothesis import HealthCheck, given
from monet_proofs import questions
from tiny_training import cheapest_s, training_graphs

import gapless
from gapless import SolveOptions, Status
from gapless.encodings.monet import Problem
from gapless.encodings.monet.bounds.must_hold import (
    is_refuted,
    is_refuted_by_variants,
    least_row_bytes,
    refuted_bytes,
)
from gapless.encodings.monet.parameters import Parameters
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build

UNET = build("unet", 11)


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(question=questions())
def test_nothing_fits_what_is_refuted(question: tuple[TrainingGraph, int]) -> None:
    graph, budget_bytes = question
    refuted = refuted_bytes(graph, least_row_bytes(graph) - 1, budget_bytes)
    assert is_refuted(graph, refuted) or is_refuted_by_variants(graph, refuted)
    if refuted > 0:
        assert cheapest_s(graph, refuted) is None


@examples(1500, suppress_health_check=[HealthCheck.too_slow])
@given(graph=training_graphs())
def test_nothing_fits_what_variants_refute(graph: TrainingGraph) -> None:
    low_bytes = least_row_bytes(graph) - 1
    high_bytes = 4 * low_bytes + 8
    without = _largest_refuted(graph, low_bytes, high_bytes, is_refuted)
    refuted = _largest_refuted(graph, without, high_bytes, is_refuted_by_variants)
    if refuted > without:  # in some four of 1,500
        assert cheapest_s(graph, refuted) is None


def _largest_refuted(graph: TrainingGraph, low: int, high: int, refutes: Callable[[TrainingGraph, int], bool]) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if refutes(graph, middle) else (low, middle)
    return low


def test_variants_tried_one_by_one_refute_more() -> None:
    budget_bytes = int(0.26 * peak_without_saving_bytes(UNET))
    assert not is_refuted(UNET, budget_bytes)
    assert is_refuted_by_variants(UNET, budget_bytes)


def test_skips_whose_gradients_pile_up_ask_for_more_than_any_step_by_itself() -> None:
    peak_bytes = peak_without_saving_bytes(UNET)
    assert least_row_bytes(UNET) < 0.21 * peak_bytes
    assert is_refuted(UNET, int(0.25 * peak_bytes))
    assert not is_refuted(UNET, int(0.3 * peak_bytes))


def test_a_refuted_budget_is_infeasible_and_the_bound_on_the_least_is_no_smaller() -> None:
    budget_bytes = int(0.25 * peak_without_saving_bytes(UNET))
    result = gapless.solve(
        Problem(UNET, budget_bytes), SolveOptions(threads=1, gap=0.0), Parameters(least_budget_steps=0)
    )
    assert result.status is Status.INFEASIBLE
    assert result.details["least_budget_bound_bytes"] > 1.01 * budget_bytes
