"""Checkmate's integer program (Jain et al., MLSys 2020, arXiv 1910.02653, section 4), to compare with.

Forward nodes, loss and backward nodes are one chain of operators v_0 .. v_(n-1), each with one implementation. In stage
t operator t runs for the first time, after whatever is recomputed for it. Where MONeT bounds the memory of a step by
what its row may hold, Checkmate follows it exactly, by a variable that says after which operator a tensor is freed.
Workspace is not part of its memory: a plan that fits here may not fit on the device. `to_decisions` says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.ilp.columns import Entry, add_entries, add_terms, is_set
from gapless.encodings.monet.options import byte_unit, cost_unit
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.joint import optimise
from gapless.encodings.monet.search.retention import tightened
from gapless.encodings.monet.study.ablation import restrict
from gapless.errors import InputError
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.profiles.training.graph import TrainingGraph

__all__ = [
    "CheckmateModel",
    "Rematerialisation",
    "decode",
    "encode",
    "first_point",
    "from_decisions",
    "memory_bytes",
    "search",
    "single_choice",
    "to_decisions",
]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Rematerialisation:
    """A Checkmate plan: `runs[t, i]`, `stored[t, i]` (R and S), bool, shape (n, n).

    In stage t operator i runs; operator i's output is there when stage t begins.
    """

    runs: Mask
    stored: Mask


@dataclass(frozen=True)
class CheckmateModel:
    """The model, the graph with one implementation each, and the columns, -1 where there is none.

    `runs[t, i]`, `stored[t, i]`: R and S. `freed[t, p]`: FREE of `pairs[p]`, a tensor i and the operator k behind which
    it may be freed. `used[t, k]`: U, memory in use when operator k of stage t runs, in units of `unit_bytes`. The
    objective is in units of `unit` seconds.
    """

    milp: Model
    graph: TrainingGraph
    budget_bytes: int
    unit: float
    unit_bytes: float
    runs: Ids
    stored: Ids
    freed: Ids
    used: Ids

    @property
    def count(self) -> int:
        """n, the number of operators."""
        return len(self.runs)

    @cached_property
    def size(self) -> Floats:
        """Of each operator's output, in units of `unit_bytes`."""
        return _output_bytes(self.graph) / self.unit_bytes

    @cached_property
    def edges(self) -> Ids:
        """(operator, what it reads), one a row."""
        return _edges(self.graph)

    @cached_property
    def pairs(self) -> Ids:
        """(tensor i, operator k), one a row: k reads or makes i."""
        return _pairs(self.graph)


def encode(graph: TrainingGraph, budget_bytes: int) -> CheckmateModel:
    """The cheapest plan within a budget, default implementations only; raises `InputError` for a budget below 0."""
    if budget_bytes < 0:
        raise InputError(f"budget_bytes must be >= 0, got {budget_bytes}")
    single = single_choice(graph)
    pairs, unit_bytes = _pairs(single), byte_unit(single)
    milp, count = Model("checkmate"), len(single.forward) + len(single.backward)
    stage, number = np.arange(count)[:, None], np.arange(count)
    model = CheckmateModel(
        milp=milp,
        graph=single,
        budget_bytes=budget_bytes,
        unit=cost_unit(sum(_seconds(single))),
        unit_bytes=unit_bytes,
        runs=_runs(milp, count),
        stored=_columns(milp.binaries("stored", count * (count - 1) // 2), number < stage),
        freed=_columns(milp.binaries("freed", int((count - pairs[:, 1]).sum())), pairs[:, 1] <= stage),
        used=_columns(
            milp.continuous("used", count * (count + 1) // 2, upper=budget_bytes / unit_bytes), number <= stage
        ),
    )  # fmt: skip
    _operator_runs_with_its_inputs(model)
    _stored_was_there(model)
    _stage_begins_with_what_is_stored(model)
    _memory_follows_the_operators(model)
    _freed_if_nothing_wants_it(model)
    _minimise_cost(model)
    return model


def single_choice(graph: TrainingGraph) -> TrainingGraph:
    """The graph with the default implementation of each node only, which Checkmate plans for; nothing runs in place."""
    single = restrict(graph, conv=False, output=False, intermediate=False, in_place=False)
    return replace(single, backward=tuple(replace(node, variants=node.variants[:1]) for node in single.backward))


def decode(model: CheckmateModel, values: Floats) -> Rematerialisation:
    """The plan of a solution."""
    return Rematerialisation(is_set(model.runs, values), is_set(model.stored, values))


def first_point(model: CheckmateModel, plan: Rematerialisation) -> Floats:
    """The model's values of a plan."""
    values = np.zeros(model.milp.column_count)
    freed = _freed(model.graph, plan)
    used = memory_bytes(model.graph, plan) / model.unit_bytes
    for table, point in (
        (model.runs, plan.runs),
        (model.stored, plan.stored),
        (model.freed, freed),
        (model.used, used),
    ):
        values[table[table >= 0]] = point[table >= 0]
    return values


def memory_bytes(graph: TrainingGraph, plan: Rematerialisation) -> Ids:
    """U[t, k]: bytes in use when operator k of stage t runs or is passed over, without any workspace; int64, (n, n).

    `graph` is the one that the plan was made on, `CheckmateModel.graph`. Entries behind operator t are 0.
    """
    size, pairs = _output_bytes(graph), _pairs(graph)
    made = np.cumsum(np.where(plan.runs, size, 0), axis=1)
    gone = np.zeros_like(made)
    np.add.at(gone.T, pairs[:, 1], np.where(_freed(graph, plan), size[pairs[:, 0]], 0).T)
    gone_before = np.cumsum(gone, axis=1) - gone
    start = graph.backward[-1].fixed_bytes + np.where(plan.stored, size, 0).sum(axis=1)
    return np.asarray(np.tril(start[:, None] + made - gone_before), dtype=np.int64)


def to_decisions(graph: TrainingGraph, plan: Rematerialisation) -> Decisions | None:
    """The plan in MONeT's terms, for `evaluate`; None if it recomputes a gradient, or anything in the forward pass.

    The loss is left out of what is stored and recomputed, since nothing reads its output there.
    """
    nodes, stages = len(graph.forward), len(graph.backward) + 1
    again = plan.runs & ~np.eye(len(plan.runs), dtype=np.bool_)
    if again[:nodes].any() or again[:, nodes:].any():
        return None
    stored, recomputed = np.zeros((stages + 1, nodes), dtype=np.bool_), np.ones((stages, nodes), dtype=np.bool_)
    stored[1:stages], recomputed[1:] = plan.stored[nodes:, :nodes], plan.runs[nodes:, :nodes]
    stored[:, graph.loss] = recomputed[1:, graph.loss] = False
    forward_implementation = np.zeros((stages, nodes), dtype=np.int64)
    variant, backward_implementation = np.zeros((2, stages - 1), dtype=np.int64)
    return Decisions(
        stored, recomputed, np.zeros_like(recomputed), forward_implementation, variant, backward_implementation
    )


def from_decisions(graph: TrainingGraph, decisions: Decisions) -> Rematerialisation:
    """Decisions without choices as a plan of Checkmate's, with each gradient there from its making to its last reader.

    `graph` is that of `single_choice`. The inverse of `to_decisions`, where that is not None.
    """
    nodes, count = len(graph.forward), len(graph.forward) + len(graph.backward)
    runs = np.eye(count, dtype=np.bool_)
    runs[nodes:, :nodes] = decisions.recomputed[1:]
    edges = _edges(graph)
    reader, read = edges[(edges[:, 0] < nodes) | (edges[:, 1] >= graph.loss)].T  # the rest is for the decisions to say
    last_reader = np.arange(count)
    np.maximum.at(last_reader, read, reader)
    stage = np.arange(count)[:, None]
    stored = (np.arange(count) < stage) & (stage <= last_reader)
    for forward in stored[: nodes + 1, :nodes]:  # up to the stage of the first backward node
        forward |= decisions.stored[1]
    stored[nodes:, : graph.loss] = decisions.stored[1:-1, : graph.loss]
    return Rematerialisation(runs, stored & (np.arange(count) < stage))


def search(
    graph: TrainingGraph, budget_bytes: int, options: SolveOptions, parameters: Parameters
) -> Rematerialisation | None:
    """A good plan without its integer program, which is large: MONeT's search on Checkmate's graph without workspace.

    `graph` is that of `single_choice`. No gradient is recomputed. MONeT's memory rows are not quite Checkmate's:
    `memory_bytes` says what the plan claims. None where nothing was found that fits.
    """
    bare = _without_workspace(graph)
    decisions = optimise(Problem(bare, budget_bytes), replace(options, on_plan=None), parameters).decisions
    return None if decisions is None else from_decisions(graph, tightened(bare, decisions))


# -- columns -----------------------------------------------------------------------------------------------------------


def _runs(model: Model, count: int) -> Ids:
    """R: in stage t operators up to t may run, and t does (1e and the partition into stages of section 4.8)."""
    is_new = np.eye(count, dtype=np.bool_)[np.tril_indices(count)]
    ids = model.integers("runs", len(is_new), lower=is_new.astype(np.float64), upper=1.0)
    return _columns(ids, np.tril(np.ones((count, count), dtype=np.bool_)))


def _columns(ids: Ids, exists: Mask) -> Ids:
    table = np.full(exists.shape, -1, dtype=np.int64)
    table[exists] = ids
    return table


# -- rows --------------------------------------------------------------------------------------------------------------


def _operator_runs_with_its_inputs(model: CheckmateModel) -> None:
    """An operator runs only where each of its inputs is stored or runs too (1b)."""
    operator, read = model.edges.T
    stage, edge = np.nonzero(model.runs[:, operator] >= 0)
    reader, source = operator[edge], read[edge]
    terms = ((1.0, model.runs[stage, reader]), (-1.0, model.runs[stage, source]), (-1.0, model.stored[stage, source]))
    add_terms(model.milp, "operator_runs_with_its_inputs", terms, upper=0.0, cite="1b")


def _stored_was_there(model: CheckmateModel) -> None:
    """What a stage begins with was stored or run in the stage before (1c, 1d)."""
    stage, tensor = np.nonzero(model.stored >= 0)
    before = stage - 1
    terms = (
        (1.0, model.stored[stage, tensor]),
        (-1.0, model.runs[before, tensor]),
        (-1.0, model.stored[before, tensor]),
    )
    add_terms(model.milp, "stored_was_there", terms, upper=0.0, cite="1c, 1d")


def _stage_begins_with_what_is_stored(model: CheckmateModel) -> None:
    """U_(t,0): input, parameters and their gradients, what is stored, and operator 0 if it runs (2)."""
    stage = np.arange(model.count)
    fixed = model.graph.backward[-1].fixed_bytes / model.unit_bytes
    row, tensor = np.nonzero(model.stored >= 0)
    entries: list[Entry] = [
        (stage, 1.0, model.used[:, 0]),
        (row, -model.size[tensor], model.stored[row, tensor]),
        (stage, -model.size[0], model.runs[:, 0]),
    ]
    add_entries(model.milp, "stage_begins", model.count, entries, lower=fixed, upper=fixed, cite="2")


def _memory_follows_the_operators(model: CheckmateModel) -> None:
    """U_(t,k+1): what was in use, less what is freed behind operator k, plus the output of operator k + 1 (3, 4)."""
    stage, operator = np.nonzero(model.used[:, 1:] >= 0)
    row_of = _columns(np.arange(len(stage)), model.used[:, 1:] >= 0)
    when, pair = np.nonzero(model.freed >= 0)
    tensor, behind = model.pairs[pair].T
    last = behind < when  # nothing follows the stage's last operator
    entries: list[Entry] = [
        (np.arange(len(stage)), 1.0, model.used[stage, operator + 1]),
        (np.arange(len(stage)), -1.0, model.used[stage, operator]),
        (np.arange(len(stage)), -model.size[operator + 1], model.runs[stage, operator + 1]),
        (row_of[when[last], behind[last]], model.size[tensor[last]], model.freed[when[last], pair[last]]),
    ]
    add_entries(model.milp, "memory_follows", len(stage), entries, lower=0.0, upper=0.0, cite="3, 4")


def _freed_if_nothing_wants_it(model: CheckmateModel) -> None:
    """FREE is 1 if and only if nothing stands against it: no run of k, a later run that reads i, i stored (5-7).

    With n_h of these hazards: 1 - FREE <= n_h <= kappa (1 - FREE), where kappa is how many there can be.
    """
    when, pair = np.nonzero(model.freed >= 0)
    tensor, behind = model.pairs[pair].T
    rows, count = np.arange(len(when)), len(when)
    next_stored = np.vstack([model.stored[1:], np.full(model.count, -1)])[when, tensor]
    stays = next_stored >= 0
    reads = np.zeros((model.count, model.count), dtype=np.bool_)
    reads[model.edges[:, 0], model.edges[:, 1]] = True
    after = np.arange(model.count)
    later = reads.T[tensor] & (after > behind[:, None]) & (after <= when[:, None])
    row, user = np.nonzero(later)
    hazards: list[Entry] = [
        (rows, -1.0, model.runs[when, behind]),
        (rows[stays], 1.0, next_stored[stays]),
        (row, 1.0, model.runs[when[row], user]),
    ]
    kappa = 1.0 + stays + later.sum(axis=1)
    free = model.freed[when, pair]
    if_none, if_some = [*hazards, (rows, 1.0, free)], [*hazards, (rows, kappa, free)]
    add_entries(model.milp, "freed_if_nothing_wants_it", count, if_none, lower=0.0, cite="6")
    add_entries(model.milp, "kept_if_something_wants_it", count, if_some, upper=kappa - 1.0, cite="7")


def _minimise_cost(model: CheckmateModel) -> None:
    """The cost of all runs (1a)."""
    cost = np.broadcast_to(np.round(np.array(_seconds(model.graph)) / model.unit, 6), model.runs.shape)
    model.milp.minimize((cost[model.runs >= 0], model.runs[model.runs >= 0]))


# -- helpers -----------------------------------------------------------------------------------------------------------


def _seconds(graph: TrainingGraph) -> list[float]:
    forward = [node.implementations[0].duration_s for node in graph.forward]
    return forward + [node.variants[0].implementations[0].duration_s for node in graph.backward]


def _without_workspace(graph: TrainingGraph) -> TrainingGraph:
    """The graph as Checkmate sees it: no workspace, and all gradients of parameters there from the beginning."""
    bare = graph.with_implementations(lambda _, impl: replace(impl, workspace_bytes=0))
    fixed_bytes = graph.backward[-1].fixed_bytes
    backward = tuple(replace(node, fixed_bytes=fixed_bytes) for node in bare.backward)
    return replace(bare, backward=backward, fixed_bytes=fixed_bytes)


def _freed(graph: TrainingGraph, plan: Rematerialisation) -> Mask:
    """`freed[t, p]`: whether the tensor of pair p goes when its operator of stage t has run (5)."""
    count, pairs = len(plan.runs), _pairs(graph)
    tensor, behind = pairs.T
    next_stored = np.vstack([plan.stored[1:], np.zeros((1, count), dtype=np.bool_)])
    users: list[list[int]] = [[] for _ in range(count)]
    for operator, read in _edges(graph).tolist():
        users[read].append(operator)
    is_read_later = np.array(
        [plan.runs[:, [u for u in users[i] if u > k]].any(axis=1) for i, k in pairs.tolist()], dtype=np.bool_
    ).T
    return np.asarray(plan.runs[:, behind] & ~next_stored[:, tensor] & ~is_read_later)


def _edges(graph: TrainingGraph) -> Ids:
    reads = [node.inputs for node in graph.forward]
    reads += [(*node.gradients, *node.variants[0].needs) for node in graph.backward]
    return np.array([(k, i) for k, read in enumerate(reads) for i in sorted(set(read))], dtype=np.int64).reshape(-1, 2)


def _pairs(graph: TrainingGraph) -> Ids:
    itself = np.arange(len(graph.forward) + len(graph.backward))
    return np.vstack([_edges(graph)[:, ::-1], np.column_stack([itself, itself])])


def _output_bytes(graph: TrainingGraph) -> Ids:
    backward = [node.output_bytes for node in graph.backward]
    return np.concatenate([graph.output_bytes, np.array(backward, dtype=np.int64)])
