"""The columns of MONeT's ILP: which decisions exist at all, and what every one of them costs and takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.options import Option, backward_choices, byte_unit, cost_unit, forward_choices
from gapless.model import Model
from gapless.profiles.training.graph import TrainingGraph

__all__ = [
    "Columns",
    "Data",
    "Entry",
    "MonetModel",
    "add_entries",
    "add_terms",
    "columns_of",
    "data_of",
    "is_set",
    "wanted_tensors",
]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Data:
    """The numbers of the model. Stage 0 is the forward pass, stage t > 0 ends with backward node t - 1.

    `wanted[t, j]`: whether x_j can be of use in stage t or later; `size[j]`, `base[t]` (parameters and gradients) and
    `budget` are in units of `unit_bytes`. `first`, `again`, `backward`: the options of each node. `cost[k, i, o]`,
    `workspace[k, i, o]`, `in_place[k, i, o]`: those of option o of forward node i, k = 0 in the forward pass and 1 when
    it runs again; the cost is in units of `unit`. `needs[t, j]`: how many options of the backward node of stage t need
    x_j.
    """

    graph: TrainingGraph
    budget: float
    unit: float
    unit_bytes: float
    wanted: Mask
    size: Floats
    base: Floats
    first: tuple[tuple[Option, ...], ...]
    again: tuple[tuple[Option, ...], ...]
    backward: tuple[tuple[Option, ...], ...]
    cost: Floats
    workspace: Floats
    in_place: Mask
    needs: Ids

    @property
    def stages(self) -> int:
        """The number of stages, one more than backward nodes."""
        return len(self.backward) + 1

    @property
    def nodes(self) -> int:
        """The number of forward nodes, the loss included."""
        return len(self.size)

    @cached_property
    def is_side(self) -> Mask:
        """Whether each forward node is an intermediate, made on the side by its creator."""
        return np.array([node.creator is not None for node in self.graph.forward], dtype=np.bool_)

    @cached_property
    def edges(self) -> tuple[Ids, Ids]:
        """(reader, read): the forward tensors that each node must find when it runs; intermediates read nothing."""
        pairs = [(i, j) for i, node in enumerate(self.graph.forward) if node.creator is None for j in set(node.inputs)]
        reader, read = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
        return reader, read

    @cached_property
    def always_needed(self) -> Mask:
        """Whether every option of the backward node of stage t needs x_j; (stages, nodes)."""
        count = np.array([1, *(len(options) for options in self.backward)])
        return np.asarray(self.needs == count[:, None])


@dataclass(frozen=True)
class Columns:
    """Where the variables are, as column ids; -1 where there is none.

    `stored[t, j]`: s, x_j is there when stage t begins. `runs[t, i]`: r, node i runs in stage t; fixed to 1 in the
    forward pass, where an intermediate runs if and only if it is stored. `option[t, i, o]`: delta and q, that run uses
    option o; option 0 has no column, it is what is left of r. `backward[b, o]`: delta-hat, none where there is one
    option. `held[t, j]`: A, x_j is there when the backward node of stage t runs, because it needs x_j or because the
    next stage does. `level[t, i]`: memory in use in stage t once the nodes before i are through, without what node i
    and its neighbours take: parameters, gradients, A_j for j < i and s_j for j >= i; `level[t, nodes]` is the last.
    """

    stored: Ids
    runs: Ids
    option: Ids
    backward: Ids
    held: Ids
    level: Ids


@dataclass(frozen=True)
class MonetModel:
    """The model, its numbers and its columns. One unit of its objective is `unit` seconds."""

    milp: Model
    graph: TrainingGraph
    budget_bytes: int
    data: Data
    columns: Columns

    @property
    def unit(self) -> float:
        """What 1 in the model's objective is, in seconds."""
        return self.data.unit


def data_of(graph: TrainingGraph, budget_bytes: int) -> Data:
    """The numbers of the model, scaled."""
    first = tuple(forward_choices(node, True) for node in graph.forward)
    again = tuple(forward_choices(node, False) for node in graph.forward)
    backward = tuple(backward_choices(node) for node in graph.backward)
    unit = cost_unit(sum(min(option.duration_s for option in options) for options in (*first, *backward)))
    both, unit_bytes = (first, again), byte_unit(graph)
    return Data(
        graph=graph,
        budget=budget_bytes / unit_bytes,
        unit=unit,
        unit_bytes=unit_bytes,
        wanted=wanted_tensors(graph),
        size=graph.output_bytes / unit_bytes,
        base=_base(graph) / unit_bytes,
        first=first,
        again=again,
        backward=backward,
        cost=np.round(
            _padded(both, lambda option: option.duration_s) / unit, 6
        ),  # 6 digits: whole multiples stay whole
        workspace=_padded(both, lambda option: option.workspace_bytes) / unit_bytes,
        in_place=_padded(both, lambda option: option.in_place) > 0,
        needs=_needs(backward, len(graph.forward)),
    )


def columns_of(model: Model, data: Data) -> Columns:
    """Adds all variables to the model."""
    stored = np.full((data.stages + 1, data.nodes), -1, dtype=np.int64)
    stored[: data.stages] = _binaries(model, "stored", data.wanted, "tj")
    runs = _runs(model, data, stored)
    held = _held(model, data, stored)
    return Columns(
        stored=stored,
        runs=runs,
        option=_options(model, data, runs),
        backward=_backward_options(model, data),
        held=held,
        level=_levels(model, data, stored, held, runs),
    )


def wanted_tensors(graph: TrainingGraph) -> Mask:
    """`wanted[t, j]`: whether a backward node of stage t or later needs x_j, directly or to recompute what it needs."""
    wanted = np.zeros((len(graph.backward) + 1, len(graph.forward)), dtype=np.bool_)
    now: set[int] = set()
    for stage in range(len(graph.backward), 0, -1):
        now.update(need for variant in graph.backward[stage - 1].variants for need in variant.needs)
        for number in range(graph.loss, -1, -1):
            if number in now:
                node = graph.forward[number]
                now.update(node.sources)
        wanted[stage, list(now)] = True
    return wanted


# -- the families of variables -----------------------------------------------------------------------------------------


def _runs(model: Model, data: Data, stored: Ids) -> Ids:
    """r: whatever is wanted may be recomputed; the forward pass is fixed, an intermediate in it is what is stored."""
    runs = _binaries(model, "runs", data.wanted, "ti")
    runs[0] = np.where(data.is_side, stored[1], -1)
    runs[0, ~data.is_side] = model.continuous("forward", int((~data.is_side).sum()), lower=1.0, upper=1.0)
    return runs


def _held(model: Model, data: Data, stored: Ids) -> Ids:
    """A: a variable of its own only where the backward node may need x_j, else what the next stage begins with."""
    may_need = data.needs > 0
    held = np.where(may_need, -1, stored[1:])
    stage, tensor = np.nonzero(may_need)
    lower = data.always_needed[stage, tensor].astype(np.float64)
    names = [f"t{t}_j{j}" for t, j in zip(stage.tolist(), tensor.tolist(), strict=True)]
    held[may_need] = model.continuous("held", len(stage), lower=lower, upper=1.0, labels=names)
    return held


def _options(model: Model, data: Data, runs: Ids) -> Ids:
    """delta: where a run has options besides option 0; fixed to 0 where one can't fit whatever else is decided."""
    count = np.array([[len(options) for options in table] for table in (data.first, data.again)])
    kind = np.minimum(np.arange(data.stages), 1)
    number = np.arange(data.cost.shape[2])
    exists = (number > 0) & (number < count[kind][:, :, None]) & (runs >= 0)[:, :, None]
    needed = np.where(data.always_needed, data.size, 0.0)
    local = data.graph.local
    least = data.base[:, None] + data.size + local @ data.size + np.cumsum(needed, axis=1) - needed - needed @ local.T
    fits = least[:, :, None] + data.workspace[kind] <= data.budget
    return _binaries(model, "option", exists, "tio", fits)


def _backward_options(model: Model, data: Data) -> Ids:
    """delta-hat: where a backward node has several options; fixed to 0 where one can't fit whatever else is decided."""
    count = np.array([len(options) for options in data.backward])
    exists = (np.arange(int(count.max())) < count[:, None]) & (count[:, None] > 1)
    fits = np.zeros(exists.shape, dtype=np.bool_)
    for b, (node, options) in enumerate(zip(data.graph.backward, data.backward, strict=True)):
        for k, option in enumerate(options):
            own = (option.workspace_bytes + node.output_bytes) / data.unit_bytes
            fits[b, k] = data.base[b + 1] + own + data.size[list(option.needs)].sum() <= data.budget
    return _binaries(model, "backward", exists, "bo", fits)


def _levels(model: Model, data: Data, stored: Ids, held: Ids, runs: Ids) -> Ids:
    """The levels that a memory row refers to: those of the steps that could exceed the budget at all (4.15).

    They are at most the budget: what a stage holds counts even while nothing runs.
    """
    before = np.where(stored[:-1] >= 0, data.size, 0.0)
    after = np.where(held >= 0, data.size, 0.0)
    local = np.where(data.graph.local, data.size, 0.0)
    exists = np.zeros((data.stages, data.nodes + 1), dtype=np.bool_)
    for stage in range(data.stages):
        kind = min(stage, 1)
        behind = before[stage].sum() - np.cumsum(before[stage])
        skipped = np.where(held[stage] >= 0, 0.0, local).sum(axis=1)
        most = np.cumsum(after[stage]) - after[stage] + skipped + behind + data.size + data.workspace[kind].max(axis=1)
        exists[stage, :-1] = (runs[stage] >= 0) & (data.base[stage] + most > data.budget)
    exists[1:, -1] = data.base[1:] + after[1:].sum(axis=1) + _most_backward(data) > data.budget
    exists[:, 0] |= exists.any(axis=1)
    level = np.full(exists.shape, -1, dtype=np.int64)
    level[exists] = model.continuous("level", int(exists.sum()), upper=data.budget, labels=_named(exists, "ti"))
    return level


def _most_backward(data: Data) -> Floats:
    """The most that each backward node takes besides what is held: workspace and output."""
    return np.array(
        [
            (max(option.workspace_bytes for option in options) + node.output_bytes) / data.unit_bytes
            for node, options in zip(data.graph.backward, data.backward, strict=True)
        ]
    )


# -- helpers -----------------------------------------------------------------------------------------------------------


def _binaries(model: Model, name: str, exists: Mask, axes: str, may_be_set: Mask | None = None) -> Ids:
    """A 0/1 variable wherever one exists, fixed to 0 where it may not be set."""
    upper = 1.0 if may_be_set is None else may_be_set[exists].astype(np.float64)
    ids = np.full(exists.shape, -1, dtype=np.int64)
    ids[exists] = model.integers(name, int(exists.sum()), upper=upper, labels=_named(exists, axes))
    return ids


def _named(exists: Mask, axes: str) -> Callable[[int], str]:
    """Names such as t1_i0, made only when somebody asks for them."""
    where = np.argwhere(exists)
    return lambda k: "_".join(f"{axis}{number}" for axis, number in zip(axes, where[k].tolist(), strict=True))


def _base(graph: TrainingGraph) -> Ids:
    fixed = [graph.fixed_bytes, *(node.fixed_bytes for node in graph.backward)]
    return np.asarray(np.array(fixed, dtype=np.int64) + np.r_[0, graph.gradient_bytes], dtype=np.int64)


def _padded(tables: tuple[tuple[tuple[Option, ...], ...], ...], read: Callable[[Option], float]) -> Floats:
    """[table, node, option], with option 0 in place of those that a node doesn't have."""
    most = max(len(options) for table in tables for options in table)
    return np.array(
        [[[read(options[k if k < len(options) else 0]) for k in range(most)] for options in table] for table in tables],
        dtype=np.float64,
    )


def _needs(backward: tuple[tuple[Option, ...], ...], nodes: int) -> Ids:
    needs = np.zeros((len(backward) + 1, nodes), dtype=np.int64)
    for number, options in enumerate(backward):
        for option in options:
            needs[number + 1, list(option.needs)] += 1
    return needs


Entry: TypeAlias = tuple[Ids, "Floats | float", Ids]
"""(row numbers, coefficients, column ids) of nonzeros; one coefficient may stand for all."""


def add_entries(
    model: Model, family: str, count: int, entries: Sequence[Entry], lower: Floats | float = -np.inf,
    upper: Floats | float = np.inf, cite: str = "",
) -> None:  # fmt: skip
    """Add `count` rows; what entries say of one row and column is summed."""
    rows = np.concatenate([rows for rows, _, _ in entries])
    columns = np.concatenate([columns for _, _, columns in entries])
    values = np.concatenate([np.broadcast_to(value, columns.shape) for _, value, columns in entries])
    model.add_sparse(family, count, rows, columns, values, lower=lower, upper=upper, cite=cite)


def add_terms(
    model: Model, family: str, terms: Sequence[tuple[float, Ids]], lower: float = -np.inf, upper: float = np.inf,
    cite: str = "",
) -> None:  # fmt: skip
    """Add one row per place of the terms' ids: the sum of coefficient times column, without columns that are -1."""
    count = len(terms[0][1])
    entries = [(np.flatnonzero(columns >= 0), value, columns[columns >= 0]) for value, columns in terms]
    add_entries(model, family, count, entries, lower=lower, upper=upper, cite=cite)


def is_set(table: Ids, values: Floats) -> NDArray[np.bool_]:
    """Where the column of a table exists and is 1."""
    return np.asarray((table >= 0) & (values[np.maximum(table, 0)] > 0.5), dtype=np.bool_)
