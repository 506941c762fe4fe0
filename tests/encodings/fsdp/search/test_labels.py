"""Labels against a model that is written apart, and bounds against its optima."""

from __future__ import annotations

import math

import pytest
from exact_sharded_step import least_step
from examples import examples
from hypothesis import given
from small_steps import FREE, a_step, costs_of

from gapless.encodings.fsdp.search.bounds import tails_of
from gapless.encodings.fsdp.search.labels import search
from gapless.encodings.fsdp.step.costs import Costs, Kind
from gapless.encodings.fsdp.step.timeline import timeline


def longest_s(costs: Costs) -> int:
    """Everything after each other, and every layer alone."""
    all_ = int(costs.parameters.sum())
    each_s = 3 * costs.layers * costs.latency_s + all_ * (2 * costs.gather_s + costs.scatter_s)
    return int(costs.compute_s + each_s) + 1


@examples(500, cases=8)
@given(a_step())
def test_no_bound_is_above_the_optimum_and_labels_find_it(costs: Costs) -> None:
    optimum = least_step(costs, longest_s(costs))
    assert optimum is not None
    relaxed = search(costs.without_gradients(), 300, costs.layers, math.inf, FREE)
    assert tails_of(costs).step_s <= optimum + 1e-6
    assert relaxed.bound_s <= optimum + 1e-6
    found = search(costs, 300, costs.layers, math.inf, FREE)
    assert found.order is not None
    assert found.step_s >= optimum - 1e-6
    assert found.step_s <= optimum * 1.03 + 1e-6  # a label that beats another may meet its gradients sooner


@examples(300)
@given(a_step(most_layers=6, least_backward=0))
def test_a_time_line_ends_when_its_label_did_within_memory(costs: Costs) -> None:
    found = search(costs, 20, 3, math.inf, FREE)
    if found.order is None:
        return
    times = timeline(costs, found.order)
    assert times is not None
    assert times.step_s == pytest.approx(found.step_s)
    assert times.peak_bytes <= costs.memory_bytes


def test_the_last_layer_is_not_gathered_twice_where_there_is_room() -> None:
    costs = costs_of([3, 3], [1, 1], [2, 2], memory_bytes=12.0)
    found = search(costs, 300, 2, math.inf, FREE)
    assert found.order is not None
    assert not [each for each in found.order.collectives if each.kind == Kind.BACKWARD and each.last == 1]


def test_no_order_is_made_where_a_layer_has_no_room() -> None:
    costs = costs_of([3, 3], [1, 1], [2, 2], memory_bytes=5.0)
    assert search(costs, 300, 2, math.inf, FREE).order is None
