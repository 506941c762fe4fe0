"""The aggregated relaxation: a lower bound on the step's cost from a small MILP, and a good place to start a search.

The backward pass is cut into a few windows of stages. Of what the full problem decides stage by stage, only this is
left: what is stored where a window begins, whether a tensor is recomputed at least once within a window, and how the
forward pass and every backward operator run. Every executable schedule within the budget gives a feasible point of no
larger cost: it recomputes a tensor in a window or it doesn't, and where it doesn't, what the window still needs of it
must be held from the window's start to that need, which is what the memory rows charge. So the optimum, or any bound
that a solver proves for it, is a lower bound for MONeT's problem (4.1-4.16).

A window of one stage is modelled nearly as in the full problem, with the memory rows of its recomputations
(`windows`); the longer a window, the less its rows know. Short windows belong where memory is short.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.bounds.holding import changes_by_stage, hold, needs_of
from gapless.encodings.monet.bounds.travel import away_columns, minimise_end
from gapless.encodings.monet.bounds.windows import Again, Relaxation, Rows, Span, add_level, add_run_rows
from gapless.encodings.monet.evaluate import unlimited_s
from gapless.encodings.monet.options import Option, backward_options, byte_unit, cost_unit, forward_options
from gapless.encodings.monet.search.stretches import KeepSet
from gapless.model import Model
from gapless.profiles.training.graph import TrainingGraph
from gapless.topologies.host import HostLink

__all__ = ["Relaxation", "decode", "encode"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def encode(
    graph: TrainingGraph, budget_bytes: int | None, cuts: tuple[int, ...] = (1,), link: HostLink | None = None
) -> Relaxation:
    """The relaxation with windows that begin at the stages `cuts`, ascending from 1; with tensors that travel a link.

    Without a budget, the model minimises the budget instead of the cost: a bound on what any plan has to have.
    """
    milp = Model("monet_relaxation")
    shape = (len(cuts), len(graph.forward))
    useful = _useful(graph, cuts)
    stored, again = np.full(shape, -1, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    stored[useful] = milp.binaries("stored", int(useful.sum()), labels=_labels(useful))
    again[useful] = milp.binaries("recomputed", int(useful.sum()), labels=_labels(useful))
    model = Relaxation(
        milp=milp,
        graph=graph,
        budget_bytes=budget_bytes or 0,
        budget=-1 if budget_bytes is not None else int(milp.continuous("budget")),
        unit_s=100 * cost_unit(unlimited_s(graph)),
        unit_bytes=byte_unit(graph),
        cuts=cuts,
        stored=stored,
        again=again,
        forward=_options(milp, "forward", [_forward(graph, node) for node in range(len(graph.forward))]),
        backward=_options(milp, "backward", [backward_options(node) for node in graph.backward]),
        away=None if link is None else away_columns(milp, graph, cuts),
    )
    _one_option_each(model)
    _forward_pass_fits(model)
    _overwritten_is_not_stored(model)
    _stored_was_there(model)
    _recomputation_has_its_inputs(model)
    _needed_is_there(model)
    spans = hold(model)
    _backward_fits(model, spans)
    again_implementations = add_run_rows(model, spans)
    if model.budget >= 0:
        milp.minimize((1.0, [model.budget]))
    elif link is not None:
        minimise_end(model, link, spans, again_implementations, _made_when_kept(model))
    else:
        _minimise_cost(model, again_implementations)
    return model


def decode(model: Relaxation, values: Floats) -> KeepSet:
    """What a solution suggests to begin a search from."""
    kept = model.stored[0] >= 0
    kept[kept] = values[model.stored[0][kept]] > 0.5
    variant = [
        next(option.variant for option, column in options if column < 0 or values[column] > 0.5)
        for options in model.backward
    ]
    return KeepSet.just_in_time(kept, np.array(variant, dtype=np.int64))


# -- columns -----------------------------------------------------------------------------------------------------------


def window_of(cuts: tuple[int, ...], stage: int) -> int:
    """The window that a stage is in."""
    return int(np.searchsorted(cuts, stage, side="right")) - 1


def _useful(graph: TrainingGraph, cuts: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether x_i can matter in window w or later: some backward node needs it, or what it is recomputed for."""
    last_need = np.zeros(len(graph.forward), dtype=np.int64)
    for number, backward in enumerate(graph.backward):
        for variant in backward.variants:
            last_need[list(variant.needs)] = number + 1
    for node in range(graph.loss, -1, -1):
        op = graph.forward[node]
        for source in (*op.inputs, *([] if op.creator is None else [op.creator])):
            last_need[source] = max(last_need[source], last_need[node])
    last_need[graph.loss] = 0
    return np.stack([last_need >= cut for cut in cuts])


def _labels(useful: NDArray[np.bool_]) -> list[str]:
    return [f"w{window}_x{node}" for window, node in np.argwhere(useful).tolist()]


def _forward(graph: TrainingGraph, node: int) -> list[Option]:
    """The options of a node in the forward pass; an intermediate's cost is charged with keeping it."""
    return forward_options(graph, node) if graph.forward[node].creator is None else [Option(0.0, 0, 0)]


def _options(model: Model, name: str, options: list[list[Option]]) -> tuple[tuple[tuple[Option, int], ...], ...]:
    """A binary for each option of a node that has several."""
    labels = [f"{node}_{k}" for node, group in enumerate(options) if len(group) > 1 for k in range(len(group))]
    columns = iter(model.binaries(name, len(labels), labels=labels).tolist())
    return tuple(tuple((option, next(columns) if len(group) > 1 else -1) for option in group) for group in options)


# -- rows --------------------------------------------------------------------------------------------------------------


def _one_option_each(model: Relaxation) -> None:
    """Every operator has exactly one implementation (section 4.2.2)."""
    groups = [[column for _, column in group] for group in (*model.forward, *model.backward) if len(group) > 1]
    rows = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    model.milp.add_sparse(
        "one_option", len(groups), rows, [c for group in groups for c in group], 1.0, lower=1.0, upper=1.0
    )


def _forward_pass_fits(model: Relaxation) -> None:
    """m_i <= M for every node of the forward pass (4.1, 4.4).

    Tensors of L_i are there whether they are stored or not; of the others before i, `level` is the sum that is stored.
    Those of L_i are in it, too, and are taken off in the row, but for those that last: they come when L_i is left.
    """
    graph, rows, levels = model.graph, Rows(), Rows()
    size = graph.output_bytes / model.unit_bytes
    stored = model.stored[0]
    most = np.cumsum(np.where(stored >= 0, size, 0.0)) - np.where(stored >= 0, size, 0.0)
    come_after = np.where(graph.lasting, graph.last_reader, np.arange(len(stored)))
    order = np.argsort(come_after, kind="stable")
    level, since = -1, 0
    for node, op in enumerate(graph.forward):
        if op.creator is not None:
            continue
        alive = graph.alive[node]
        constant = (graph.fixed_bytes + op.output_bytes) / model.unit_bytes + size[alive].sum()
        workspace = max(option.workspace_bytes for option, _ in model.forward[node]) / model.unit_bytes
        beside = most[node] - size[alive][stored[alive] >= 0].sum()
        if not model.may_pass(constant + workspace + beside):
            continue
        upto = int(np.searchsorted(come_after, node, sorter=order))
        change = {int(stored[k]): size[k] for k in order[since:upto].tolist() if stored[k] >= 0}
        level, since = add_level(model, levels, f"stored_before_x{node}", level, 0.0, change), upto
        rows.begin_memory(model, constant)
        rows.put(level, 1.0)
        for option, column in model.forward[node]:
            rows.put(column, option.workspace_bytes / model.unit_bytes)
        rows.put_away(None if model.away is None else model.away.forward[node])
        for skip in alive[(stored[alive] >= 0) & ~graph.lasting[alive]].tolist():
            rows.put(int(stored[skip]), -size[skip])
    levels.add_to(model.milp, "stored_before", "4.1", equal=True)
    rows.add_to(model.milp, "forward_fits", "4.1, 4.4")


def _overwritten_is_not_stored(model: Relaxation) -> None:
    """A tensor that an operator of the forward pass overwrites is not stored (4.10)."""
    rows = Rows()
    for node, options in enumerate(model.forward):
        over = model.graph.forward[node].overwrites
        in_place = [column for option, column in options if option.in_place]
        if over is not None and in_place and model.stored[0, over] >= 0:
            rows.begin(1.0)
            rows.put(int(model.stored[0, over]), 1.0)
            for column in in_place:
                rows.put(column, 1.0)
    rows.add_to(model.milp, "overwritten_not_stored", "4.10")


def _stored_was_there(model: Relaxation) -> None:
    """What a window begins with was stored when the last one began, or recomputed in it (4.7)."""
    rows = Rows()
    for window in range(1, len(model.cuts)):
        for node in np.flatnonzero(model.stored[window] >= 0).tolist():
            rows.begin(0.0)
            rows.put(int(model.stored[window, node]), 1.0)
            rows.put(int(model.stored[window - 1, node]), -1.0)
            rows.put(int(model.again[window - 1, node]), -1.0)
    rows.add_to(model.milp, "stored_was_there", "4.7")


def _recomputation_has_its_inputs(model: Relaxation) -> None:
    """A recomputation reads what is stored or recomputed in its window; an intermediate has its creator (4.7)."""
    rows = Rows()
    for window, node in np.argwhere(model.again >= 0).tolist():
        op = model.graph.forward[node]
        if op.creator is not None:
            rows.begin(0.0)
            rows.put(int(model.again[window, node]), 1.0)
            rows.put(int(model.again[window, op.creator]), -1.0)
            continue
        for source in op.inputs:
            rows.begin(0.0)
            rows.put(int(model.again[window, node]), 1.0)
            rows.put(int(model.stored[window, source]), -1.0)
            rows.put(int(model.again[window, source]), -1.0)
    rows.add_to(model.milp, "recomputation_has_inputs", "4.7")


def _needed_is_there(model: Relaxation) -> None:
    """What a backward operator needs is stored or recomputed in its window (4.8)."""
    rows = Rows()
    for number in range(len(model.graph.backward)):
        window = window_of(model.cuts, number + 1)
        for node, columns in needs_of(model, number).items():
            rows.begin(0.0)
            for column in columns:
                rows.put(column, 1.0)
            rows.put(int(model.stored[window, node]), -1.0)
            rows.put(int(model.again[window, node]), -1.0)
    rows.add_to(model.milp, "needed_is_there", "4.8")


def _backward_fits(model: Relaxation, spans: list[list[Span]]) -> None:
    """m^_k <= M for every backward operator (4.4, 4.12), charging what must be held there: `level` is its sum."""
    graph, rows, levels = model.graph, Rows(), Rows()
    size, changes = graph.output_bytes / model.unit_bytes, changes_by_stage(model, spans)
    level, since, most = -1, dict[int, float](), 0.0
    for number, node in enumerate(graph.backward):
        for tensor, column, sign in changes[number]:
            since[column] = since.get(column, 0.0) + sign * size[tensor]
            most += sign * size[tensor]
        constant = (node.fixed_bytes + node.output_bytes + graph.gradient_bytes[number]) / model.unit_bytes
        workspace = max(option.workspace_bytes for option, _ in model.backward[number]) / model.unit_bytes
        if not model.may_pass(constant + workspace + most):
            continue
        since = {column: value for column, value in since.items() if value}
        if level < 0 or since:
            level, since = add_level(model, levels, f"held_at_stage{number + 1}", level, 0.0, since), {}
        rows.begin_memory(model, constant)
        rows.put(level, 1.0)
        for option, column in model.backward[number]:
            rows.put(column, option.workspace_bytes / model.unit_bytes)
        rows.put_away(None if model.away is None else model.away.backward[number])
    levels.add_to(model.milp, "held_at_stage", "4.12", equal=True)
    rows.add_to(model.milp, "backward_fits", "4.4, 4.12")


def _minimise_cost(model: Relaxation, again: list[Again]) -> None:
    """The forward pass, the backward pass, and each recomputation once a window (4.9)."""
    columns, costs, offset = [], [], 0.0
    for options in (*model.forward, *model.backward, *(group for window in again for group in window)):
        for option, column in options:
            if column < 0:
                offset += option.duration_s
            else:
                columns.append(column)
                costs.append(option.duration_s)
    for column, cost_s in _made_when_kept(model).values():
        columns.append(column)
        costs.append(cost_s)
    model.milp.minimize((np.array(costs) / model.unit_s, columns), offset=offset / model.unit_s)


def _made_when_kept(model: Relaxation) -> dict[int, tuple[int, float]]:
    """The intermediates, which are made in the forward pass if they are kept at all: their columns, what they cost."""
    graph = model.graph
    return {
        node: (int(model.stored[0, node]), min(option.duration_s for option in forward_options(graph, node)))
        for node, op in enumerate(graph.forward)
        if op.creator is not None and model.stored[0, node] >= 0
    }
