"""Points of MONeT's ILP: from a solution to decisions, and from decisions to a point that a solver can start from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.ilp.columns import Data, MonetModel, is_set
from gapless.encodings.monet.options import Option, option_of

__all__ = ["decode", "first_point"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def decode(model: MonetModel, values: Floats) -> Decisions:
    """The decisions of a solution. The loss runs in the forward pass only: nothing needs its output again."""
    data, columns = model.data, model.columns
    stored, runs = is_set(columns.stored, values), is_set(columns.runs, values)
    number = is_set(columns.option, values).argmax(axis=2)  # option 0, which has no column, where none is set
    variant, backward_implementation = np.zeros((2, len(data.backward)), dtype=np.int64)
    for b, options in enumerate(data.backward):
        option = options[int(np.argmax(np.where(columns.backward[b] >= 0, values[columns.backward[b]], 0.0)))]
        variant[b], backward_implementation[b] = option.variant, option.implementation
    in_place, forward_implementation = np.zeros_like(runs), np.zeros(runs.shape, dtype=np.int64)
    for t, i in np.argwhere(runs).tolist():
        option = (data.again if t else data.first)[i][int(number[t, i])]
        in_place[t, i], forward_implementation[t, i] = option.in_place, option.implementation
    return Decisions(stored, runs, in_place, forward_implementation, variant, backward_implementation)


def first_point(model: MonetModel, decisions: Decisions) -> Floats:
    """The model's values of given decisions, a start for a solver.

    What is stored or made without use is left out, and an implementation that another beats is replaced by that, with
    what that one needs, so the point may be cheaper than the decisions. It is feasible if `evaluate` finds no fault and
    no row above the budget.
    """
    decisions.check_against(model.graph)
    data, columns = model.data, model.columns
    stored, held = _without_useless(model, decisions)
    runs = decisions.recomputed & (columns.runs >= 0)
    runs[0] = ~data.is_side | stored[1]
    values = np.zeros(model.milp.column_count)
    for table, point in ((columns.stored, stored), (columns.runs, runs), (columns.held, held)):
        values[table[table >= 0]] = point[table >= 0]
    for t, i in np.argwhere(runs & (columns.option >= 0).any(axis=2)).tolist():
        number = option_of((data.again if t else data.first)[i], _run_given(model, decisions, t, i))
        if number:
            values[columns.option[t, i, number]] = 1.0
    for b in np.flatnonzero((columns.backward >= 0).any(axis=1)).tolist():
        values[columns.backward[b, option_of(data.backward[b], _backward_given(model, decisions, b))]] = 1.0
    level = _levels_of(data, stored, held)
    values[columns.level[columns.level >= 0]] = level[columns.level >= 0]
    return values


def _without_useless(model: MonetModel, decisions: Decisions) -> tuple[Mask, Mask]:
    """(s, A) with nothing stored but what the stage's backward node, a recomputation in it or the next stage wants."""
    data, (reader, read) = model.data, model.data.edges
    stored, held = np.zeros_like(decisions.stored), np.zeros_like(decisions.recomputed)
    for stage in range(data.stages - 1, 0, -1):
        runs = decisions.recomputed[stage] & (model.columns.runs[stage] >= 0)
        held[stage] = stored[stage + 1]
        options = data.backward[stage - 1]
        held[stage, list(options[option_of(options, _backward_given(model, decisions, stage - 1))].needs)] = True
        wants = held[stage].copy()
        wants[read[runs[reader]]] = True
        stored[stage] = decisions.stored[stage] & wants & ~runs
    held[0] = stored[1]
    return stored, held


def _levels_of(data: Data, stored: Mask, held: Mask) -> Floats:
    """`level[t, i]` of given s and A, in the model's unit."""
    change = np.cumsum((held.astype(np.float64) - stored[:-1]) * data.size, axis=1)
    start = data.base + stored[:-1] @ data.size
    return np.column_stack([start, start[:, None] + change])


def _run_given(model: MonetModel, decisions: Decisions, stage: int, node: int) -> Option:
    number, in_place = int(decisions.forward_implementation[stage, node]), bool(decisions.in_place[stage, node])
    impl = decisions.run(model.graph, stage, node)
    return Option(impl.duration_s, impl.workspace_bytes, number, in_place)


def _backward_given(model: MonetModel, decisions: Decisions, node: int) -> Option:
    variant, number = int(decisions.variant[node]), int(decisions.backward_implementation[node])
    chosen = model.graph.backward[node].variants[variant]
    impl = chosen.implementations[number]
    return Option(impl.duration_s, impl.workspace_bytes, number, variant=variant, needs=frozenset(chosen.needs))
