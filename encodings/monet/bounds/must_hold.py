"""What every plan has to hold: proofs that a budget is too small, which need no solver."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.training.graph import TrainingGraph

__all__ = ["is_refuted", "is_refuted_by_variants", "least_backward_rows", "least_row_bytes", "refuted_bytes", "surely"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def least_row_bytes(graph: TrainingGraph) -> int:
    """What the steps that every plan has take at least, each by itself: the forward and the backward nodes."""
    return int(max(_forward_rows(graph, _nothing(graph)).max(), max(least_backward_rows(graph))))


def least_backward_rows(graph: TrainingGraph) -> list[int]:
    """What each backward node takes at least by itself."""
    return [int(row) for row in _backward_rows(graph, _nothing(graph), _all_variants(graph))]


def is_refuted(graph: TrainingGraph, budget_bytes: int) -> bool:
    """Whether no plan fits the budget, by what must be held from one stage to another.

    A node can run again in a stage only if its row, with what is there for later in any plan, fits. What a backward
    node needs and can't be made in its stage must be there before, and so on back to a stage that can make it. So the
    rows grow, until one of those that every plan has passes the budget, or nothing changes.
    """
    return surely(graph, budget_bytes) is None


def is_refuted_by_variants(graph: TrainingGraph, budget_bytes: int) -> bool:
    """The same, each variant of a backward node tried by itself: what is refuted with it is computed from another.

    So what the others need in common is needed, which may refute more of them, until nothing changes. It takes as many
    times the work of `is_refuted` as there are variants.
    """
    variants, runs_again = _all_variants(graph), _RunsAgain(graph)
    held, is_new = _held(graph, budget_bytes, variants, _nothing(graph), runs_again), True
    while held is not None and is_new:
        is_new = False
        for number, choices in enumerate(variants):
            for choice in choices if len(choices) > 1 else ():
                alone = [*variants[:number], (choice,), *variants[number + 1 :]]
                if _held(graph, budget_bytes, alone, held, runs_again) is None:
                    variants[number] = tuple(other for other in variants[number] if other != choice)
                    is_new = True
                if not variants[number]:
                    return True
        if is_new:
            held = _held(graph, budget_bytes, variants, held, runs_again)
    return held is None


def surely(graph: TrainingGraph, budget_bytes: int) -> tuple[Mask, Mask] | None:
    """What every plan that fits has stored when each stage begins, bool, (stages + 1, nodes), and which nodes can't run
    again in each, (stages, nodes); None where `is_refuted`."""
    variants, runs_again = _all_variants(graph), _RunsAgain(graph)
    stored = _held(graph, budget_bytes, variants, _nothing(graph), runs_again)
    if stored is None:
        return None
    return stored, runs_again.rows(stored[1:] | _needed_anyway(graph, variants)) > budget_bytes


def refuted_bytes(graph: TrainingGraph, low_bytes: int, high_bytes: int) -> int:
    """The largest budget from `low_bytes`, which is refuted, up to `high_bytes` that is refuted, too.

    On a graph that isn't too large, then one that is refuted by trying variants, step by step up from there. What is
    refuted holds for all that is smaller.
    """
    most_bytes = high_bytes
    while high_bytes - low_bytes > 1:
        middle = (low_bytes + high_bytes) // 2
        low_bytes, high_bytes = (middle, high_bytes) if is_refuted(graph, middle) else (low_bytes, middle)
    if len(graph.forward) * len(graph.backward) > _MOST_CELLS:
        return low_bytes
    for parts in _STEPS:
        step = max(low_bytes // parts, 1)
        while low_bytes + step < most_bytes and is_refuted_by_variants(graph, low_bytes + step):
            low_bytes += step
    return low_bytes


_MOST_CELLS = 100_000
"""Forward times backward nodes up to which variants are tried: some two processor seconds a budget."""
_STEPS = (256, 1024)
"""The steps between budgets that are refuted by variants, as parts of them: large ones first."""


def _all_variants(graph: TrainingGraph) -> list[tuple[int, ...]]:
    return [tuple(range(len(node.variants))) for node in graph.backward]


def _nothing(graph: TrainingGraph) -> Mask:
    """Nothing stored when any stage begins, bool, (stages + 1, nodes)."""
    return np.zeros((len(graph.backward) + 2, len(graph.forward)), dtype=np.bool_)


def _held(
    graph: TrainingGraph, budget_bytes: int, variants: list[tuple[int, ...]], stored: Mask, runs_again: _RunsAgain
) -> Mask | None:
    """What every plan of these variants that fits has stored when each stage begins, `stored` and more; None where
    none fits."""
    needed = _needed_anyway(graph, variants)
    while True:
        if max(_forward_rows(graph, stored).max(), _backward_rows(graph, stored, variants).max()) > budget_bytes:
            return None
        cannot = runs_again.rows(stored[1:] | needed) > budget_bytes
        held = stored.copy()
        for stage in range(len(graph.backward), 0, -1):
            held[stage] |= (held[stage + 1] | needed[stage]) & cannot[stage]
        if (held == stored).all():
            return stored
        stored = held


class _RunsAgain:
    """The least rows of recomputations."""

    def __init__(self, graph: TrainingGraph) -> None:
        self._size = graph.output_bytes.astype(np.float64)
        self._last = graph.last_reader
        self._creator = np.array(
            [node.creator if node.creator is not None else i for i, node in enumerate(graph.forward)]
        )
        workspace = [
            min(impl.workspace_bytes for impl in (*node.implementations, *node.again, *node.in_place))
            for node in graph.forward
        ]
        self._own = self._size + [self._size[alive].sum() for alive in graph.alive] + workspace
        self._own[graph.loss] = -np.inf  # costs and holds nothing
        self._fixed = np.array([-np.inf, *(float(node.fixed_bytes) for node in graph.backward)])
        self._fixed[1:] += graph.gradient_bytes

    def rows(self, after: Mask) -> Floats:
        """Bytes of a run of each node in each stage (of its creator as well, if it has one), -inf in the forward pass.

        `after`: what is there or needed when the stage's nodes have run, bool, (stages, nodes), as the result.
        """
        beside = np.zeros((after.shape[0], after.shape[1] + 1))
        np.add.at(beside.T, self._last + 1, np.where(after, self._size, 0.0).T)
        rows = self._fixed[:, None] + self._own + beside.cumsum(axis=1)[:, :-1]
        return np.asarray(np.maximum(rows, rows[:, self._creator]))


def _needed_anyway(graph: TrainingGraph, variants: list[tuple[int, ...]]) -> Mask:
    """What each stage's backward node needs in every one of its variants, bool, (stages, nodes)."""
    needed = np.zeros((len(graph.backward) + 1, len(graph.forward)), dtype=np.bool_)
    for number, (node, choices) in enumerate(zip(graph.backward, variants, strict=True)):
        needs = (frozenset(node.variants[choice].needs) for choice in choices)
        needed[number + 1, list(frozenset.intersection(*needs))] = True
    return needed


def _forward_rows(graph: TrainingGraph, stored: Mask) -> Floats:
    """The rows of the forward pass, by what is stored when each stage begins; float, one for each forward node."""
    size, rows = graph.output_bytes.astype(np.float64), np.zeros(len(graph.forward))
    for number, node in enumerate(graph.forward):
        if node.creator is None:
            held = graph.local[number] | stored[1]
            workspace = min(impl.workspace_bytes for impl in (*node.implementations, *node.in_place))
            rows[number] = graph.fixed_bytes + size[number] + size[:number][held[:number]].sum() + workspace
    return rows


def _backward_rows(graph: TrainingGraph, stored: Mask, variants: list[tuple[int, ...]]) -> Floats:
    """The same of the backward pass; float, one for each backward node."""
    size, rows = graph.output_bytes.astype(np.float64), np.zeros(len(graph.backward))
    for number, node in enumerate(graph.backward):
        held = stored[number + 2]
        least = min(
            sum(size[need] for need in set(variant.needs) if not held[need])
            + min(impl.workspace_bytes for impl in variant.implementations)
            for variant in (node.variants[choice] for choice in variants[number])
        )
        rows[number] = node.fixed_bytes + graph.gradient_bytes[number] + node.output_bytes + size[held].sum() + least
    return rows
