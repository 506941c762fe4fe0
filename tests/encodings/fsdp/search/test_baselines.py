"""What is done today, as orders."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from small_steps import a_step, costs_of

from gapless.encodings.fsdp.search.baselines import BUILDERS, fits
from gapless.encodings.fsdp.step.costs import Costs, Kind, Replicas
from gapless.encodings.fsdp.step.timeline import timeline


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_every_layer_is_gathered_and_scattered_within_any_memory(name: str) -> None:
    costs = costs_of([2, 3, 1, 4], [3] * 4, [5] * 4, inner_s=0.1, replicas=Replicas(0.5, 1.0))
    order = BUILDERS[name](costs)
    assert order is not None
    times = timeline(costs, order)
    assert times is not None
    assert times.step_s >= costs.compute_s
    scattered = [k for each in order.collectives if each.kind == Kind.SCATTER for k in range(each.first, each.last + 1)]
    assert sorted(scattered) == [0, 1, 2, 3]


def test_what_is_not_offered_is_no_baseline() -> None:
    costs = costs_of([2, 3, 1, 4], [3] * 4, [5] * 4)
    assert [name for name in BUILDERS if BUILDERS[name](costs) is None] == ["secondary", "hybrid"]


def test_nodes_hold_a_share_of_each_layer_or_replicas_of_all() -> None:
    """Without gradients FSDP2's default holds two layers of ten parameters at most, and shares or replicas of four."""
    costs = costs_of([10] * 4, [50] * 4, [50] * 4, gradient_bytes=0, inner_s=0.1, replicas=Replicas(0.25, 0.5))
    times = {name: fits(costs, BUILDERS[name](costs)) for name in ("fsdp2", "secondary", "hybrid")}
    assert {name: each and each.peak_bytes for name, each in times.items()} == {
        "fsdp2": 20, "secondary": 20 + 4 * 2.5, "hybrid": 20 + 40 * 0.5,
    }  # fmt: skip


@examples(200)
@given(a_step())
def test_one_by_one_fits_wherever_there_is_a_plan(costs: Costs) -> None:
    assert fits(costs, BUILDERS["one-by-one"](costs)) is not None


def test_one_ahead_holds_two_layers_and_their_gradients() -> None:
    costs = costs_of([5] * 6, [20] * 6, [40] * 6)
    order = BUILDERS["fsdp2"](costs)
    assert order is not None
    times = timeline(costs, order)
    assert times is not None
    assert times.peak_bytes <= 2 * 5 + 2 * 5
    kept = BUILDERS["kept"](costs)
    assert kept is not None
    assert sum(each.kind == Kind.BACKWARD for each in kept.collectives) == 0
    assert fits(costs, order) is not None
    assert costs.memory_bytes == math.inf


@examples(100)
@given(a_step(takes_when_begun=True))
def test_what_fsdp2_needs_at_least_is_what_one_by_one_takes(costs: Costs) -> None:
    order = BUILDERS["one-by-one"](costs)
    assert order is not None
    times = timeline(costs, order)
    assert times is not None
    if costs.latency_s:
        assert times.peak_bytes == costs.least_bytes
    assert times.peak_bytes >= timeline_peak_of_any(costs)


def timeline_peak_of_any(costs: Costs) -> float:
    """Of one by one, had a gather's memory been taken when the network is free."""
    order = BUILDERS["one-by-one"](costs)
    times = None if order is None else timeline(replace(costs, takes_when_begun=False), order)
    assert times is not None
    return times.peak_bytes
