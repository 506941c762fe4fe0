"""What must be held over the stages of a relaxation's windows.

In a window, x_i must be held up to a stage at which it is needed unless it is recomputed in the window; at the need
itself it is held in any case. What the next window begins with is held through this one unless it is recomputed, and
at its last stage. Each such span of stages has one column, so that sums over tensors change in few places from one
stage to the next.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gapless.encodings.monet.bounds.windows import Relaxation, Rows, Span

__all__ = ["changes_by_stage", "hold", "needs_of"]


def hold(model: Relaxation) -> list[list[Span]]:
    """Adds the columns and rows of what is held; returns the spans of each window, those of a tensor descending."""
    rows, spans = Rows(), list[list[Span]]()
    needs: list[list[tuple[int, list[int]]]] = [[] for _ in model.graph.forward]
    for number in range(len(model.graph.backward)):
        for tensor, columns in needs_of(model, number).items():
            needs[tensor].append((number + 1, columns))
    for window in range(len(model.cuts)):
        first, last = model.span(window)
        found: list[Span] = []
        for tensor in np.flatnonzero(model.stored[window] >= 0).tolist():
            while needs[tensor] and needs[tensor][0][0] < first:
                needs[tensor].pop(0)
            inside = [need for need in needs[tensor] if need[0] <= last]
            found += (span for span in _hold_one(model, rows, window, tensor, inside) if span.first <= span.last)
        spans.append(found)
    rows.add_to(model.milp, "held_until_needed")
    return spans


def _hold_one(
    model: Relaxation, rows: Rows, window: int, tensor: int, needs: list[tuple[int, list[int]]]
) -> Iterator[Span]:
    """The spans of one tensor in one window, the last first."""
    first, last = model.span(window)
    again, later, end = int(model.again[window, tensor]), -1, last
    leaves = model.leaves(window, tensor)
    if leaves >= 0:
        later = int(model.milp.continuous(f"through_w{window}_x{tensor}", upper=1.0))
        _at_least(rows, later, [leaves], again)
        if not needs or needs[-1][0] < last:
            yield Span(tensor, last, last, leaves)
        end = last - 1
    for stage, columns in reversed(needs):
        if later >= 0:
            yield Span(tensor, stage + 1, end, later)
        now = int(model.milp.continuous(f"needed_w{window}_x{tensor}_{stage}", upper=1.0))
        _at_least(rows, now, columns, -1)
        before = int(model.milp.continuous(f"held_w{window}_x{tensor}_{stage}", upper=1.0))
        _at_least(rows, before, columns, again)
        if later >= 0:
            _at_least(rows, now, [later], -1)
            _at_least(rows, before, [later], -1)
        yield Span(tensor, stage, stage, now, is_need=True)
        later, end = before, stage - 1
    if later >= 0:
        yield Span(tensor, first, end, later)


def _at_least(rows: Rows, column: int, terms: list[int], unless: int) -> None:
    """column >= sum of terms - unless."""
    rows.begin(0.0)
    for term in terms:
        rows.put(term, 1.0)
    rows.put(column, -1.0)
    if unless >= 0:
        rows.put(unless, -1.0)


def changes_by_stage(model: Relaxation, spans: list[list[Span]]) -> list[list[tuple[int, int, float]]]:
    """For each backward node: tensor, column and sign of the spans that begin there, or ended right before."""
    changes: list[list[tuple[int, int, float]]] = [[] for _ in range(len(model.graph.backward) + 1)]
    for span in (span for window in spans for span in window):
        changes[span.first - 1].append((span.tensor, span.column, 1.0))
        changes[span.last].append((span.tensor, span.column, -1.0))
    return changes


def needs_of(model: Relaxation, number: int) -> dict[int, list[int]]:
    """For each tensor that backward node `number` may need, the columns of the options that need it."""
    needs: dict[int, list[int]] = {}
    for option, column in model.backward[number]:
        for tensor in model.graph.backward[number].variants[option.variant].needs:
            needs.setdefault(tensor, []).append(column)
    return needs
