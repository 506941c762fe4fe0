"""What the relaxation is made of: windows with their columns and rows, and what recomputations need in them (4.14).

In a window of one stage the rows of recomputations are the full problem's. In a longer one it is open at which of its
stages a node runs. So its row charges what is there at all of them: the least of the parameters and gradients, and the
tensors that are held all through the window without being recomputed in it.

The rows of a window share their sums. `level` is what is there once the nodes before one are through: parameters and
gradients, tensors before the node as they are held after the stage's recomputations, tensors from the node on as the
stage began with them. A plan that stores nothing without use keeps to these rows where the node doesn't run, too: what
is there between two runs is no more than what one of them is charged with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.options import Option, again_options
from gapless.model import Model
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["Again", "Away", "Relaxation", "Rows", "Span", "add_level", "add_run_rows"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Away:
    """The columns of the bytes that are on the host instead, in the model's unit, -1 where there can't be any.

    `forward[i]`, `backward[b]`: while a node runs; `again[w]`: at most while one runs again in a window.
    """

    forward: Ids
    backward: Ids
    again: Ids


@dataclass(frozen=True)
class Relaxation:
    """The model and where its variables are; costs are in units of `unit_s`, memory in units of `unit_bytes`.

    `budget`: the column of the budget where it is to be minimised, -1 where it is given.
    `away`: what is offloaded, None where nothing can be.
    `cuts`: the stages at which windows begin, the first is 1. `stored[w, i]`, `again[w, i]`: columns, -1 where x_i
    can't matter. `forward[i]`, `backward[b]`: the options of each node, with their columns (-1: the only one).
    """

    milp: Model
    graph: TrainingGraph
    budget_bytes: int
    budget: int
    unit_s: float
    unit_bytes: float
    cuts: tuple[int, ...]
    stored: Ids
    again: Ids
    forward: tuple[tuple[tuple[Option, int], ...], ...]
    backward: tuple[tuple[tuple[Option, int], ...], ...]
    away: Away | None = None

    def span(self, window: int) -> tuple[int, int]:
        """The first and the last stage of a window."""
        is_last = window + 1 == len(self.cuts)
        return self.cuts[window], len(self.graph.backward) if is_last else self.cuts[window + 1] - 1

    def may_pass(self, most: float) -> bool:
        """Whether a row that takes `most` units at most could pass the budget at all."""
        return self.budget >= 0 or most > self.budget_bytes / self.unit_bytes

    def leaves(self, window: int, tensor: int) -> int:
        """The column that says whether the next window begins with x_i, -1 where it can't matter any more."""
        return int(self.stored[window + 1, tensor]) if window + 1 < len(self.cuts) else -1


@dataclass(frozen=True)
class Span:
    """Stages of one window at which `column` says whether x_tensor is held; `is_need`: a need's own stage."""

    tensor: int
    first: int
    last: int
    column: int
    is_need: bool = False


class Rows:
    """Rows of coordinate entries, each at most its bound, which takes up what is constant: column -1 stands for 1."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []
        self.bound: list[float] = []

    def begin(self, bound: float) -> None:
        """Start a row."""
        self.bound.append(bound)

    def begin_memory(self, model: Relaxation, taken: float) -> None:
        """Start a row that keeps memory within the budget, `taken` of which is."""
        self.begin(model.budget_bytes / model.unit_bytes - taken)
        if model.budget >= 0:
            self.put(model.budget, -1.0)

    def put(self, column: int, value: float) -> None:
        """Add an entry to the current row."""
        if column < 0:
            self.bound[-1] -= value
        else:
            self.row.append(len(self.bound) - 1)
            self.column.append(column)
            self.value.append(value)

    def put_away(self, column: np.int64 | None) -> None:
        """Take the bytes of a column off a row of memory, if there is one."""
        if column is not None and column >= 0:
            self.put(int(column), -1.0)

    def add_to(self, model: Model, family: str, cite: str = "", equal: bool = False) -> None:
        """Add the rows as `<= bound`, or as `= bound`."""
        bound = np.array(self.bound)
        lower = bound if equal else -np.inf
        model.add_sparse(family, len(bound), self.row, self.column, self.value, lower=lower, upper=bound, cite=cite)


Floats = NDArray[np.float64]
Again: TypeAlias = "list[list[tuple[Option, int]]]"
"""The options of each recomputation that a window may hold, with their columns."""


@dataclass(frozen=True)
class _Window:
    """A window and what is surely there in it; sizes in the model's unit.

    `before`, `after`: columns that say which tensors are there before the recomputations of every stage in it, and
    after them. `base`: the least of the parameters and gradients of its stages.
    """

    number: int
    before: dict[int, int]
    after: dict[int, int]
    base: float


@dataclass(frozen=True)
class _Families:
    """The rows that are being collected."""

    levels: Rows
    choices: Rows
    fits: Rows
    overwritten: Rows


def add_run_rows(model: Relaxation, spans: list[list[Span]]) -> list[Again]:
    """Adds all recomputations' options and memory rows; `spans`: what is held in each window. By window."""
    families = _Families(Rows(), Rows(), Rows(), Rows())
    windows = [_window(model, number, spans[number]) for number in range(len(model.cuts))]
    again = [_add_window(model, families, window) for window in windows]
    families.levels.add_to(model.milp, "level", "4.15", equal=True)
    families.choices.add_to(model.milp, "recomputation_takes_one_option", "4.2.2", equal=True)
    families.fits.add_to(model.milp, "recomputation_fits", "4.4, 4.14")
    families.overwritten.add_to(model.milp, "overwritten_not_held", "4.10")
    return again


def _window(model: Relaxation, number: int, spans: list[Span]) -> _Window:
    """What is there in a window. Held all through a longer one is what it need not, or not before its last stage."""
    stages, (first, last) = model.graph.backward, model.span(number)
    fixed = [stages[t - 1].fixed_bytes + model.graph.gradient_bytes[t - 1] for t in range(first, last + 1)]
    base = min(fixed) / model.unit_bytes
    if first == last:
        before = {node: int(model.stored[number, node]) for node in np.flatnonzero(model.stored[number] >= 0).tolist()}
        return _Window(number, before, {span.tensor: span.column for span in spans}, base)
    through = {
        span.tensor: span.column for span in spans if span.first == first and span.last == last - 1 and not span.is_need
    }
    return _Window(number, through, through, base)


def _add_window(model: Relaxation, families: _Families, window: _Window) -> Again:
    """The implementations and rows of one window, with a level wherever a row needs one."""
    size = model.graph.output_bytes / model.unit_bytes
    again: Again = []
    level, change = -1, {column: size[node] for node, column in window.before.items()}
    most, lasting = _most(model, window, size), _last_read(model.graph)
    for node in range(model.graph.loss):
        if model.again[window.number, node] >= 0:
            may_not_fit = model.may_pass(most[node])
            options = _options(model, families.choices, window, node, may_not_fit)
            again.append(options)
            if may_not_fit:
                if level < 0 or change:
                    name = f"level_w{window.number}_x{node}"
                    level, change = add_level(model, families.levels, name, level, window.base, change), {}
                _add_fit(model, families.fits, window, node, options, level)
                _add_overwritten(model, families.overwritten, window, node, options)
        for tensor, column, sign in _passed(model, window, node, lasting):
            change[column] = change.get(column, 0.0) + sign * size[tensor]
    return again


def _passed(
    model: Relaxation, window: _Window, node: int, lasting: dict[int, list[int]]
) -> list[tuple[int, int, float]]:  # fmt: skip
    """What a level gains and loses behind a node: tensors with their columns, and which of the two.

    Where a tensor that lasts is in L_i, it is in no level: rows needn't take it off.
    """
    before, after = window.before.get(node, -1), window.after.get(node, -1)
    changes = [(node, before, -1.0), (node, after, 1.0)]
    if model.graph.lasting[node]:
        changes = [(node, before, -1.0)]
    elif before == after:
        changes = []
    changes += [(tensor, window.after.get(tensor, -1), 1.0) for tensor in lasting.get(node, [])]
    return [change for change in changes if change[1] >= 0]


def _last_read(graph: TrainingGraph) -> dict[int, list[int]]:
    """The tensors that last, by the last node that reads them."""
    found = dict[int, list[int]]()
    for tensor in np.flatnonzero(graph.lasting).tolist():
        found.setdefault(int(graph.last_reader[tensor]), []).append(tensor)
    return found


def _most(model: Relaxation, window: _Window, size: Floats) -> Floats:
    """What a run of each node could take at most, float, (nodes,)."""
    graph, nodes = model.graph, np.arange(len(size))
    is_before, is_after = np.isin(nodes, list(window.before)), np.isin(nodes, list(window.after))
    before, after = np.where(is_before, size, 0.0), np.where(is_after, size, 0.0)
    beside = [size[alive][~is_after[alive]].sum() for alive in graph.alive]
    workspace = [max(option.workspace_bytes for option in again_options(graph, node)) for node in nodes.tolist()]
    held = after.cumsum() - after + before[::-1].cumsum()[::-1] - before
    return np.asarray(window.base + size + held + beside + np.array(workspace) / model.unit_bytes)


def _options(model: Relaxation, rows: Rows, window: _Window, node: int, may_not_fit: bool) -> list[tuple[Option, int]]:
    """A column for each option, one of which a recomputation takes; where all fit, it takes the fastest."""
    again = int(model.again[window.number, node])
    options = again_options(model.graph, node)
    if not may_not_fit or len(options) == 1:
        return [(min(options, key=lambda option: option.duration_s), again)]
    columns = model.milp.binaries(f"option_w{window.number}_x{node}", len(options)).tolist()
    rows.begin(0.0)
    rows.put(again, -1.0)
    for column in columns:
        rows.put(column, 1.0)
    return list(zip(options, columns, strict=True))


def add_level(model: Relaxation, rows: Rows, name: str, level: int, base: float, change: dict[int, float]) -> int:
    """A column for a sum: the last one's, or `base` where there is none (-1), and what has changed since."""
    column = int(model.milp.continuous(name))
    rows.begin(0.0 if level >= 0 else base)
    rows.put(column, 1.0)
    if level >= 0:
        rows.put(level, -1.0)
    for changed, more in change.items():
        rows.put(changed, -more)
    return column


def _add_fit(
    model: Relaxation, rows: Rows, window: _Window, node: int, options: list[tuple[Option, int]], level: int
) -> None:
    """A run fits: the level, its output and workspace, and the skip tensors alive there."""
    size, local = model.graph.output_bytes / model.unit_bytes, model.graph.alive[node].tolist()
    own = size[node] + size[local].sum()
    rows.begin_memory(model, 0.0)
    rows.put(level, 1.0)
    rows.put_away(None if model.away is None else model.away.again[window.number])
    for option, column in options:
        rows.put(column, own + option.workspace_bytes / model.unit_bytes)
    for other in local:
        if other in window.after and not model.graph.lasting[other]:
            rows.put(window.after[other], -size[other])
    if node in window.before:
        rows.put(window.before[node], -size[node])


def _add_overwritten(
    model: Relaxation, rows: Rows, window: _Window, node: int, options: list[tuple[Option, int]]
) -> None:
    """The input of a run in place is not there afterwards."""
    over = model.graph.forward[node].overwrites
    in_place = [column for option, column in options if option.in_place]
    if over in window.after and in_place:
        rows.begin(1.0)
        rows.put(window.after[over], 1.0)
        for column in in_place:
            rows.put(column, 1.0)
