"""What has to come after a moment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_steps import costs_of

from gapless.encodings.fsdp.search.bounds import room_of, step_bound_s, tails_of
from gapless.encodings.fsdp.step.costs import Replicas


def test_without_a_limit_the_first_gather_all_passes_and_the_last_scatter_bound_a_step() -> None:
    costs = costs_of([1, 1, 1], [50, 50, 50], [90, 90, 90])
    assert tails_of(costs).step_s == pytest.approx(3 + 150 + 270 + 3)


def test_what_memory_cannot_keep_is_gathered_twice() -> None:
    """Four layers of ten parameters, two of which fit beside the gradients of the last."""
    costs = costs_of([10] * 4, [1] * 4, [1] * 4, memory_bytes=30.0)
    network_s = 2 + 80 + 40 + 80  # each once, two of them again, and all gradients, with a latency of either kind
    assert tails_of(costs).step_s >= network_s


def test_room_is_for_whole_layers() -> None:
    costs = costs_of([4, 4, 4], [1] * 3, [1] * 3, memory_bytes=10.0)
    assert (room_of(costs), room_of(costs, 3.0)) == (8.0, 4.0)


def test_what_is_idle_inside_nodes_counts() -> None:
    """Two layers of two parameters: the first is gathered between nodes before all else, and summed after it."""
    costs = costs_of([2, 2], [1, 1], [1, 1], latency_s=0, gather_s=3, scatter_s=4, inner_s=10)
    inside_s = tails_of(costs.networks[1]).step_s
    assert step_bound_s(costs) == inside_s + 2 * 3 + 2 * 4
    assert step_bound_s(replace(costs, inner=None)) == tails_of(costs.networks[0]).step_s
    assert step_bound_s(replace(costs, replicas=Replicas(bytes=1.0))) == inside_s + 2 * 4
