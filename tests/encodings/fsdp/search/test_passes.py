"""Labels over passes against every wrapping of FSDP2, and bounds against the fastest."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from examples import examples
from fsdp2_steps import least_fsdp2_step
from hypothesis import given
from small_steps import FREE, a_step, costs_of

from gapless.encodings.fsdp.search.baselines import fits
from gapless.encodings.fsdp.search.bounds import step_bound_s
from gapless.encodings.fsdp.search.passes import search_passes
from gapless.encodings.fsdp.search.shared import best_grouped, relaxed_bound, starts_of
from gapless.encodings.fsdp.step.costs import Costs, Kind, Replicas


def found_s(costs: Costs) -> float:
    """The end of the best order within memory; inf where there is none."""
    times = (fits(costs, order) for order in best_grouped(costs, starts_of(costs), 10_000, 100, FREE))
    return min((each.step_s for each in times if each is not None), default=math.inf)


BRIEF = a_step(most_layers=3, takes_when_begun=True, least_backward=0)
A_STEP = a_step(most_layers=3, takes_when_begun=True)
TWO_LEVELS = a_step(most_layers=3, takes_when_begun=True, is_two_level=True)
WITH_REPLICAS = a_step(most_layers=2, takes_when_begun=True, is_two_level=True, has_replicas=True)


@examples(500, cases=10)
@given(A_STEP | BRIEF | TWO_LEVELS | WITH_REPLICAS)
def test_no_bound_is_above_the_fastest_wrapping_and_labels_find_it(costs: Costs) -> None:
    optimum_s = least_fsdp2_step(costs)
    assert (optimum_s < math.inf) == (costs.least_bytes <= costs.memory_bytes)
    if optimum_s == math.inf:
        assert found_s(costs) == math.inf
        return
    assert step_bound_s(costs) <= optimum_s + 1e-6
    assert relaxed_bound(costs, 100, math.inf, FREE) <= optimum_s + 1e-6
    most_s = least_fsdp2_step(costs, has_moments=False) * 1.1  # a group takes all its gradients at once
    assert optimum_s - 1e-6 <= found_s(costs) <= most_s + 1e-6


def test_a_node_keeps_shares_where_memory_has_no_room_for_parameters() -> None:
    """Of three layers of four bytes, gathered between nodes at a byte a second, ten bytes hold two, and quarters."""
    costs = costs_of(
        [4, 4, 4], [1, 1, 1], [1, 1, 1], latency_s=0, gather_s=1, scatter_s=1, gradient_bytes=0, memory_bytes=10.0,
        takes_when_begun=True, inner_s=0.01,
    )  # fmt: skip
    quarters, three_quarters = (found_s(replace(costs, replicas=Replicas(share))) for share in (0.25, 0.75))
    assert quarters + 4 < found_s(costs)
    assert quarters < three_quarters < found_s(costs)


def test_replicas_pay_where_gradients_are_short_and_memory_has_room() -> None:
    """Nothing is gathered between nodes, and a gradient of a fifth goes twice."""
    costs = costs_of(
        [4, 4], [1, 1], [1, 1], latency_s=0, gather_s=5, scatter_s=1, gradient_bytes=0, memory_bytes=16.0,
        takes_when_begun=True, inner_s=0.01,
    )  # fmt: skip
    assert 19 < found_s(replace(costs, replicas=Replicas(bytes=1.0))) < 20 < 40 < found_s(costs)
    assert found_s(replace(costs, replicas=Replicas(bytes=5.0))) == found_s(costs)


def test_parts_of_collectives_on_two_networks_overlap() -> None:
    """Three gathers of two seconds on either network, of layers that are kept, take eight; scatters as long after."""
    costs = costs_of(
        [1, 1, 1], [0, 0, 0], [0, 0, 0], latency_s=0, gather_s=2, scatter_s=2, takes_when_begun=True, inner_s=2
    )
    assert found_s(replace(costs, inner=None)) == 12
    assert 12 < found_s(costs) < 24


def test_a_pass_of_no_time_makes_gradients_before_anything_of_its_instant_is_freed() -> None:
    """Layer 1 is freed (1 byte) where both passes of layer 2 happen (3 bytes and 6 of gradients): with layer 0 kept (3)
    that is more than 12 bytes, so that layer 0 is gathered again."""
    costs = costs_of(
        [3, 1, 3], [5, 4, 0], [5, 4, 0], latency_s=0, scatter_s=3, gradient_bytes=2, memory_bytes=12.0,
        takes_when_begun=True,
    )  # fmt: skip
    found = search_passes(costs, 300, 3, math.inf, FREE)
    assert found.order is not None
    assert fits(costs, found.order) is not None
    assert found.step_s == least_fsdp2_step(costs) == 46
    assert fits(replace(costs, memory_bytes=13.0), found.order) is not None
    assert search_passes(replace(costs, memory_bytes=13.0), 300, 3, math.inf, FREE).step_s == 44


def test_what_a_pass_of_no_time_held_is_free_once_the_next_one_has_waited_for_its_gather() -> None:
    """Layer 0 (1 byte) is freed a moment after its pass, when layer 1, which has no size, is gathered: three bytes hold
    layer 2 (3), gathered ahead by the pass of layer 1. Gathered before, it would run while layer 0 is there."""
    costs = costs_of(
        [1, 0, 3], [0, 1, 0], [1, 1, 1], latency_s=0, gather_s=1, scatter_s=1, gradient_bytes=0, memory_bytes=3.0,
        takes_when_begun=True,
    )  # fmt: skip
    assert found_s(costs) == least_fsdp2_step(costs) == 11


def test_a_gather_is_not_begun_before_its_memory_is_free() -> None:
    """Layer 0 (3 bytes) has no room beside layer 1 (2) and its gradients (2) in 6 bytes, though the network is busy."""
    costs = costs_of([3, 2], [1, 3], [1, 3], gather_s=3, scatter_s=1, memory_bytes=6.0, takes_when_begun=True)
    found = search_passes(costs, 300, 2, math.inf, FREE)
    assert found.order is not None
    again = next(each for each in found.order.collectives if each.kind == Kind.BACKWARD and each.first == 0)
    assert again.after == 3
    times = fits(costs, found.order)
    assert times is not None
    assert times.step_s == pytest.approx(found.step_s)
