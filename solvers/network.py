"""Recognise a model as a network: rows are nodes that conserve flow, columns are arcs between them."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.model import Model
from gapless.model_arrays import ModelArrays
from gapless.solvers.integral import whole_bounds

__all__ = ["Network", "as_network"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Network:
    """Arcs with bounds, and what each node must send on.

    `tail`, `head`: int64, one per arc; `lower`, `upper`: float, whole or infinite. The first `column_count` arcs are
    the model's columns, in order; the rest are the slacks of inequality rows. `supply`: float, one per node: flow out
    less flow in. The last node is the root, which takes what a column with a single entry carries.
    """

    tail: Ids
    head: Ids
    lower: Floats
    upper: Floats
    supply: Floats
    column_count: int


def as_network(model: Model, arrays: ModelArrays) -> Network:
    """The network that the model states, after scaling rows to +1 and -1 and changing the signs of some.

    An inequality row becomes a node with a slack arc from the root. Raises `InputError` naming the first column that
    is no arc, or the first column or row whose bounds are not whole numbers.
    """
    scale, sign = _unit_entries(model, arrays)
    first, second = _two_entries(model, arrays)
    flip = _row_signs(model, arrays, sign, first, second)
    row = arrays.row_of_entry
    root = len(arrays.row_lower)
    is_out = sign * flip[row] > 0
    tail = np.full(len(arrays.cost), root)
    head = tail.copy()
    tail[arrays.index[is_out]] = row[is_out]
    head[arrays.index[~is_out]] = row[~is_out]

    lower, upper, row_lower, row_upper = _whole(model, arrays, scale)
    row_lower, row_upper = np.where(flip > 0, row_lower, -row_upper), np.where(flip > 0, row_upper, -row_lower)
    is_equal = row_lower == row_upper
    slack = np.flatnonzero(~is_equal)
    supply = np.r_[np.where(is_equal, row_lower, 0.0), 0.0]
    supply[root] = -supply.sum()
    return Network(
        tail=np.r_[tail, np.full(len(slack), root)].astype(np.int64),
        head=np.r_[head, slack].astype(np.int64),
        lower=np.r_[lower, row_lower[slack]],
        upper=np.r_[upper, row_upper[slack]],
        supply=supply,
        column_count=len(arrays.cost),
    )


def _not_an_arc(model: Model, column: int, value: str) -> InputError:
    name = model.column_names()[column]
    rule = "must be an arc (one +1 and one -1 at most) for min_cost_flow"
    return InputError(f"variable {name!r}: {rule}, {value}; use --solver highs")


def _unit_entries(model: Model, arrays: ModelArrays) -> tuple[Floats, Floats]:
    """The size of each row's coefficients, which must be one per row, and the sign of each entry."""
    row, size = arrays.row_of_entry, np.abs(arrays.value)
    scale = np.ones(len(arrays.row_lower))
    filled = np.flatnonzero(np.diff(arrays.start))
    scale[filled] = size[arrays.start[filled]]
    differs = size != scale[row]
    if differs.any():
        entry = int(np.argmax(differs))
        name = model.row_names()[int(row[entry])]
        value = f"has {arrays.value[entry]:g} in row {name!r} beside {scale[row[entry]]:g}"
        raise _not_an_arc(model, int(arrays.index[entry]), value)
    return scale, np.sign(arrays.value)


def _two_entries(model: Model, arrays: ModelArrays) -> tuple[Ids, Ids]:
    """The two entries of each column that has two, as positions in the CSR arrays."""
    count = np.bincount(arrays.index, minlength=len(arrays.cost))
    if (count > 2).any():
        column = int(np.argmax(count > 2))
        raise _not_an_arc(model, column, f"is in {count[column]} rows")
    by_column = np.argsort(arrays.index, kind="stable")
    of_pairs = by_column[count[arrays.index[by_column]] == 2]
    return of_pairs[0::2], of_pairs[1::2]


def _row_signs(model: Model, arrays: ModelArrays, sign: Floats, first: Ids, second: Ids) -> Floats:
    """A sign per row such that each column with two entries has them opposite; found by walking along the columns."""
    row = arrays.row_of_entry
    relation = -sign[first] * sign[second]  # +1: the two rows keep one sign, -1: they need different ones
    links: nx.Graph[int] = nx.Graph()
    links.add_nodes_from(range(len(arrays.row_lower)))
    links.add_weighted_edges_from(zip(row[first].tolist(), row[second].tolist(), relation.tolist(), strict=True))
    flip = np.zeros(len(arrays.row_lower))
    for root in range(len(flip)):
        if flip[root] == 0:
            flip[root] = 1.0
            for known, new in nx.bfs_edges(links, root):
                flip[new] = flip[known] * links[known][new]["weight"]
    clashes = flip[row[first]] * flip[row[second]] != relation
    if clashes.any():
        columns = arrays.index[first][clashes]
        raise _not_an_arc(model, int(columns.min()), "has two entries that no change of row signs makes opposite")
    return flip


def _whole(model: Model, arrays: ModelArrays, scale: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Bounds of columns and scaled rows as whole numbers: rounded inwards where all that they bound is integer."""
    has_real = np.zeros(len(arrays.row_lower), dtype=bool)
    has_real[arrays.row_of_entry[~arrays.is_integer[arrays.index]]] = True
    rounded: list[Floats] = []
    for kind, lower, upper, is_real, names in (
        ("variable", arrays.lower, arrays.upper, ~arrays.is_integer, model.column_names),
        ("row", arrays.row_lower / scale, arrays.row_upper / scale, has_real, model.row_names),
    ):
        for bound in (lower, upper):
            is_wrong = is_real & np.isfinite(bound) & (bound != np.round(bound))
            if is_wrong.any():
                where = int(np.argmax(is_wrong))
                rule = "must have whole-number bounds for min_cost_flow"
                raise InputError(f"{kind} {names()[where]!r}: {rule}, got {bound[where]:g}; use --solver highs")
        rounded += whole_bounds(lower, upper)
    return rounded[0], rounded[1], rounded[2], rounded[3]
