"""MONeT's integer program (sections 4.2 and 4.3, equations 4.1-4.16), in a sparse form with the same optimum.

The direct form multiplies what is stored with the chosen backward implementation (4.12, 4.13) and writes every memory
row out. Here A[t, j] says that x_j is there when stage t's backward node runs: at least s of the next stage, at least
each chosen implementation's need. Products are gone, since A_j is what both of (4.12)'s sums charge for x_j. And the
rows of a stage share their sums: `level[t, i]` is what is held when the nodes before i are through, so that each row
(4.14) names only its node and the skip tensors alive there.

Left out are variables that can't matter (a tensor that no later backward node needs, directly or through
recomputation), rows that no choice can break, implementations that another beats in cost and
workspace, and p (4.10, 4.11):
A_j <= s_j + r_j and A_j <= 1 - q say what p did.

The rows agree with `evaluate`: decisions that are executed without fault within the budget, and that store nothing
without use, are a point of the model, and every point of it decodes to such decisions (`first_point`, `decode`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.ilp.columns import (
    Data,
    Entry,
    MonetModel,
    add_entries,
    add_terms,
    columns_of,
    data_of,
    is_set,
)
from gapless.encodings.monet.options import Option, option_of
from gapless.errors import InputError
from gapless.model import Model
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["MonetModel", "decode", "encode", "first_point"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def encode(graph: TrainingGraph, budget_bytes: int) -> MonetModel:
    """The model of the fastest training step within a memory budget; of the most frugal one on a `costed` graph.

    Raises `InputError` for a budget below 0.
    """
    if budget_bytes < 0:
        raise InputError(f"budget_bytes must be >= 0, got {budget_bytes}")
    milp = Model("monet")
    data = data_of(graph, budget_bytes)
    model = MonetModel(milp, graph, budget_bytes, data, columns_of(milp, data))
    _stage_begins_with_what_is_stored(model)
    _level_follows_the_nodes(model)
    _run_fits(model)
    _backward_fits(model)
    _recomputation_has_its_inputs(model)
    _intermediate_comes_with_its_creator(model)
    _held_was_stored_or_recomputed(model)
    _held_covers_the_next_stage(model)
    _held_covers_the_chosen_needs(model)
    _run_takes_one_option(model)
    _backward_takes_one_option(model)
    _overwritten_is_not_held(model)
    _overwritten_is_not_read_again(model)
    _minimise_cost(model)
    return model


# -- memory ------------------------------------------------------------------------------------------------------------


def _stage_begins_with_what_is_stored(model: MonetModel) -> None:
    """The first level of a stage is its parameters, gradients and all that is stored (4.15)."""
    data, columns = model.data, model.columns
    stages = np.flatnonzero(columns.level[:, 0] >= 0)
    stored = columns.stored[stages]
    row, tensor = np.nonzero(stored >= 0)
    model.milp.add_sparse(
        "stage_begins_with_what_is_stored",
        len(stages),
        np.r_[np.arange(len(stages)), row],
        np.r_[columns.level[stages, 0], stored[row, tensor]],
        np.r_[np.ones(len(stages)), -data.size[tensor]],
        lower=data.base[stages],
        upper=data.base[stages],
        cite="4.15",
    )


def _level_follows_the_nodes(model: MonetModel) -> None:
    """From one level to the next, each node in between counts as held after it instead of as stored before (4.15)."""
    data, columns = model.data, model.columns
    level, stored, held = columns.level, columns.stored[:-1], columns.held
    row_of = np.full(level.shape, -1, dtype=np.int64)
    stage, position = np.nonzero((level >= 0) & (np.arange(level.shape[1]) > 0))
    row_of[stage, position] = np.arange(len(stage))
    follows = np.flatnonzero(level.reshape(-1) >= 0)
    before = follows[np.searchsorted(follows, stage * level.shape[1] + position) - 1]
    next_row = _next_at_or_behind(row_of)[:, 1:]
    rows, family = np.arange(len(stage)), "level_follows_the_nodes"
    entries: list[Entry] = [(rows, 1.0, level[stage, position]), (rows, -1.0, level.reshape(-1)[before])]
    for table, sign in ((held, -1.0), (stored, 1.0)):
        where = np.nonzero((table >= 0) & (next_row >= 0))
        entries.append((next_row[where], sign * data.size[where[1]], table[where]))
    add_entries(model.milp, family, len(stage), entries, lower=0.0, upper=0.0, cite="4.15")


def _run_fits(model: MonetModel) -> None:
    """A run fits: the level before it, its output and workspace, and all skip tensors alive there (4.1, 4.14)."""
    data, columns = model.data, model.columns
    stage, node = np.nonzero((columns.level[:, :-1] >= 0) & (columns.runs >= 0))
    count, kind = len(stage), np.minimum(stage, 1)
    local = model.graph.local[node]
    own = data.size[node] + (local * data.size).sum(axis=1) + data.workspace[kind, node, 0]
    option_row, number = np.nonzero(columns.option[stage, node] >= 0)
    k, i = kind[option_row], node[option_row]
    more = data.workspace[k, i, number] - data.workspace[k, i, 0]
    skip_row, skip = np.nonzero(local & (columns.held[stage] >= 0))
    again = np.flatnonzero(columns.stored[stage, node] >= 0)
    entries: list[Entry] = [
        (np.arange(count), 1.0, columns.level[stage, node]),
        (np.arange(count), own, columns.runs[stage, node]),
        (option_row, more, columns.option[stage[option_row], i, number]),
        (skip_row, -data.size[skip], columns.held[stage[skip_row], skip]),
        (again, -data.size[node[again]], columns.stored[stage[again], node[again]]),
    ]
    add_entries(model.milp, "run_fits", count, entries, upper=data.budget, cite="4.1, 4.14")


def _backward_fits(model: MonetModel) -> None:
    """A backward node fits: what is held, its output and its workspace (4.12)."""
    data, columns = model.data, model.columns
    stage = np.flatnonzero(columns.level[:, -1] >= 0)
    output = np.array([node.output_bytes for node in model.graph.backward])[stage - 1] / data.unit_bytes
    single = [options[0].workspace_bytes if len(options) == 1 else 0 for options in data.backward]
    only = np.array(single)[stage - 1] / data.unit_bytes
    row, number = np.nonzero(columns.backward[stage - 1] >= 0)
    more = [data.backward[b][o].workspace_bytes for b, o in zip((stage - 1)[row], number, strict=True)]
    entries: list[Entry] = [
        (np.arange(len(stage)), 1.0, columns.level[stage, -1]),
        (row, np.array(more) / data.unit_bytes, columns.backward[stage - 1][row, number]),
    ]
    upper = data.budget - output - only
    add_entries(model.milp, "backward_fits", len(stage), entries, upper=upper, cite="4.12")


# -- checkpointing -----------------------------------------------------------------------------------------------------


def _recomputation_has_its_inputs(model: MonetModel) -> None:
    """A node is recomputed only where each of its inputs is stored or recomputed (4.7)."""
    columns, (reader, read) = model.columns, model.data.edges
    stage, edge = np.nonzero(columns.runs[1:, reader] >= 0)
    t, i, j = stage + 1, reader[edge], read[edge]
    terms = ((1.0, columns.runs[t, i]), (-1.0, columns.stored[t, j]), (-1.0, columns.runs[t, j]))
    add_terms(model.milp, "recomputation_has_its_inputs", terms, upper=0.0, cite="4.7")


def _intermediate_comes_with_its_creator(model: MonetModel) -> None:
    """An intermediate is recomputed only together with the node that creates it (section 4.4)."""
    columns = model.columns
    creator = np.array([node.creator or 0 for node in model.graph.forward])
    stage, node = np.nonzero((columns.runs[1:] >= 0) & model.data.is_side)
    terms = ((1.0, columns.runs[stage + 1, node]), (-1.0, columns.runs[stage + 1, creator[node]]))
    add_terms(model.milp, "intermediate_comes_with_its_creator", terms, upper=0.0, cite="4.4")


def _held_was_stored_or_recomputed(model: MonetModel) -> None:
    """What the backward node needs, or the next stage begins with, was stored or recomputed (4.7, 4.8)."""
    columns = model.columns
    stage, tensor = np.nonzero(columns.held[1:] >= 0)
    t = stage + 1
    terms = ((1.0, columns.held[t, tensor]), (-1.0, columns.stored[t, tensor]), (-1.0, columns.runs[t, tensor]))
    add_terms(model.milp, "held_was_stored_or_recomputed", terms, upper=0.0, cite="4.7, 4.8")


def _held_covers_the_next_stage(model: MonetModel) -> None:
    """A is at least s of the next stage, where it is not that variable itself (for 4.12-4.15)."""
    columns, data = model.columns, model.data
    after = columns.stored[1:]
    where = (after >= 0) & (columns.held != after) & ~data.always_needed
    terms = ((1.0, columns.held[where]), (-1.0, after[where]))
    add_terms(model.milp, "held_covers_the_next_stage", terms, lower=0.0, cite="4.12")


def _held_covers_the_chosen_needs(model: MonetModel) -> None:
    """A is at least the backward node's need of x_j under the chosen implementation (for 4.8, 4.12-4.15)."""
    columns, data = model.columns, model.data
    stage, tensor = np.nonzero((data.needs > 0) & ~data.always_needed)
    row_of = {pair: row for row, pair in enumerate(zip(stage.tolist(), tensor.tolist(), strict=True))}
    pairs = [
        (row_of[number + 1, need], columns.backward[number, k])
        for number, options in enumerate(data.backward)
        for k, option in enumerate(options)
        for need in option.needs
        if (number + 1, need) in row_of
    ]
    row, chosen = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    entries: list[Entry] = [(np.arange(len(stage)), 1.0, columns.held[stage, tensor]), (row, -1.0, chosen)]
    family = "held_covers_the_chosen_needs"
    add_entries(model.milp, family, len(stage), entries, lower=0.0, cite="4.8, 4.12")


# -- implementations ---------------------------------------------------------------------------------------------------


def _run_takes_one_option(model: MonetModel) -> None:
    """A run takes one option; option 0 where it takes none of the others (section 4.2.2)."""
    columns = model.columns
    stage, node = np.nonzero((columns.option >= 0).any(axis=2))
    option = columns.option[stage, node]
    row, number = np.nonzero(option >= 0)
    entries: list[Entry] = [(np.arange(len(stage)), -1.0, columns.runs[stage, node]), (row, 1.0, option[row, number])]
    add_entries(model.milp, "run_takes_one_option", len(stage), entries, upper=0.0, cite="4.2.2")


def _backward_takes_one_option(model: MonetModel) -> None:
    """A backward node takes exactly one option (section 4.2.2)."""
    chosen = model.columns.backward[(model.columns.backward >= 0).any(axis=1)]
    row, number = np.nonzero(chosen >= 0)
    entries: list[Entry] = [(row, 1.0, chosen[row, number])]
    family = "backward_takes_one_option"
    add_entries(model.milp, family, len(chosen), entries, lower=1.0, upper=1.0, cite="4.2.2")


def _overwritten_is_not_held(model: MonetModel) -> None:
    """The input of a run in place is gone: neither stored nor there for the backward node (4.10)."""
    columns = model.columns
    over = np.array([-1 if node.overwrites is None else node.overwrites for node in model.graph.forward])
    stage, node = np.nonzero((columns.held[:, over] >= 0) & (over >= 0) & _may_be_in_place(model))
    _add_in_place(model, "overwritten_is_not_held", stage, node, columns.held[stage, over[node]])


def _overwritten_is_not_read_again(model: MonetModel) -> None:
    """No later node of the stage reads the input of a run in place (4.10)."""
    columns, (reader, read) = model.columns, model.data.edges
    pairs = [
        (number, later)
        for number, node in enumerate(model.graph.forward)
        if node.overwrites is not None
        for later in reader[(read == node.overwrites) & (reader > number)].tolist()
    ]
    node, later = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    stage, pair = np.nonzero(_may_be_in_place(model)[:, node] & (columns.runs[:, later] >= 0))
    _add_in_place(model, "overwritten_is_not_read_again", stage, node[pair], columns.runs[stage, later[pair]])


def _may_be_in_place(model: MonetModel) -> Mask:
    """[stage, node]: whether an option in place has a column."""
    return np.asarray((_in_place_columns(model) >= 0).any(axis=2))


def _in_place_columns(model: MonetModel) -> Ids:
    """The columns of options in place, -1 elsewhere: q is their sum."""
    kind = np.minimum(np.arange(model.data.stages), 1)
    return np.where(model.data.in_place[kind], model.columns.option, -1)


def _add_in_place(model: MonetModel, family: str, stage: Ids, node: Ids, excluded: Ids) -> None:
    """Rows q[stage, node] + excluded <= 1."""
    chosen = _in_place_columns(model)[stage, node]
    row, number = np.nonzero(chosen >= 0)
    entries: list[Entry] = [(np.arange(len(stage)), 1.0, excluded), (row, 1.0, chosen[row, number])]
    add_entries(model.milp, family, len(stage), entries, upper=1.0, cite="4.10")


# -- objective ---------------------------------------------------------------------------------------------------------


def _minimise_cost(model: MonetModel) -> None:
    """The cost of the forward pass, the backward pass and all recomputation (4.9)."""
    data, columns = model.data, model.columns
    kind = np.minimum(np.arange(data.stages), 1)
    runs, option, chosen = columns.runs >= 0, columns.option >= 0, columns.backward >= 0
    more = (data.cost - data.cost[:, :, :1])[kind]
    backward = np.zeros(columns.backward.shape)
    for number, options in enumerate(data.backward):
        backward[number, : len(options)] = np.round([option.duration_s / data.unit for option in options], 6)
    model.milp.minimize(
        (data.cost[kind, :, 0][runs], columns.runs[runs]),
        (more[option], columns.option[option]),
        (backward[chosen], columns.backward[chosen]),
        offset=float(backward[~chosen.any(axis=1), 0].sum()),
    )


# -- points ------------------------------------------------------------------------------------------------------------


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


# -- helpers -----------------------------------------------------------------------------------------------------------


def _next_at_or_behind(row_of: Ids) -> Ids:
    """[stage, position]: the first row number at that position or behind it, -1 where there is none."""
    last = np.iinfo(np.int64).max
    rows = np.where(row_of >= 0, row_of, last)
    following = np.minimum.accumulate(rows[:, ::-1], axis=1)[:, ::-1]
    return np.where(following < last, following, -1)
