"""What states of an optimiser that travel take and cost at least: no plan is quicker, wherever they live.

A step that ends as it begins carries all that isn't on the device all along once each way. How much that is at least
follows from two moments: the worst step leaves so much for states; the step's borders leave room for those that live on
the device, and the others come in before their update and leave after it.
"""

from __future__ import annotations

from itertools import accumulate

from gapless.encodings.monet.bounds.must_hold import least_backward_rows, least_row_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.optimizer import Updates
from gapless.topologies.host import HostLink

__all__ = ["least_bytes", "travelling_s"]


def least_bytes(graph: TrainingGraph, updates: Updates | None) -> int:
    """What some step of every plan holds: an operator by itself, or an update with its states and gradients."""
    found = least_row_bytes(graph)
    if updates is None:
        return found
    pairs = zip(updates.states_bytes, updates.gradients_bytes, strict=True)
    if updates.are_applied:
        rows = [row + size for row, size in zip(least_backward_rows(graph), updates.states_bytes, strict=True)]
    elif updates.gradients == "offloaded":
        rows = [graph.fixed_bytes + size + gradient for size, gradient in pairs]
    else:
        rows = [max(node.fixed_bytes for node in graph.backward) + size for size, _ in pairs]
    return max(found, *rows)


def travelling_s(graph: TrainingGraph, updates: Updates, budget_bytes: int, link: HostLink, step_s: float) -> float:
    """A bound on the step with its updates; `step_s` is one without them. `graph` counts no states."""
    away_bytes = max(updates.total_bytes + least_row_bytes(graph) - budget_bytes, 0)
    host_bytes = min(max(updates.total_bytes + graph.fixed_bytes - budget_bytes, 0), updates.total_bytes)
    found_s = max(step_s, link.copy_s(min(away_bytes, updates.total_bytes)))
    if not updates.are_applied:
        return max(found_s, step_s + link.copy_s(host_bytes))
    run_s = [
        min(impl.duration_s for variant in node.variants for impl in variant.implementations) for node in graph.backward
    ]
    forward_s = sum(
        min(impl.duration_s for impl in (*node.implementations, *node.in_place))
        for node in graph.forward if node.creator is None
    )  # fmt: skip
    total_s, before = sum(run_s), 0
    for end_s, size_bytes in zip(accumulate(run_s), updates.states_bytes, strict=True):
        size_after = updates.total_bytes - before - size_bytes
        leaves_s = forward_s + end_s + link.copy_s(max(host_bytes - before, 0))  # of this update and later ones
        run_on_s = total_s - end_s + link.copy_s(max(away_bytes - size_after, 0))  # after those up to this one
        found_s, before = max(found_s, leaves_s, run_on_s), before + size_bytes
    return found_s
