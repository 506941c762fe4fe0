"""What is left of an instance as a model: the local polytope of its graph, with memory as a chain of levels.

A binary a choice, and a column for each open pair of choices of an edge, whose rows and columns sum to the choices'
(Koster, van Hoesel and Kolen, 1998). Memory at a time point is that of the point before plus what starts less what
ends, so that a node enters two rows instead of one at each point of its life.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.bounds.dual import Multipliers
from gapless.encodings.sharding.bounds.pairs import Pairs
from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.presolve.reduced import Reduced
from gapless.model import Model

__all__ = ["Built", "built"]

_MOST_COST = 1000.0
"""What a whole plan costs in the model's unit, about: solvers compare with absolute tolerances."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Built:
    """A model, the ids of its columns for choices, int64, shape (choices,), and what its costs are divided by."""

    model: Model
    choices: Ints
    cost_scale: float
    memory_scale: float

    def multipliers(self, pairs: Pairs, points: int, row_prices: Floats) -> Multipliers:
        """The multipliers that the prices of the relaxation's rows say."""
        first = {family.name: family.first for family in self.model.families}
        price = row_prices * self.cost_scale
        rows = price[first["pairs of first"] :][: len(pairs.row_choice)]
        columns = price[first["pairs of second"] :][: len(pairs.column_choice)]
        level = price[first["memory"] :][:points] if points else np.zeros(0)
        memory = np.maximum(level - np.append(level[1:], 0.0), 0.0) / self.memory_scale
        return Multipliers(memory, rows, columns)

    def taken(self, reduced: Reduced, values: Floats) -> Ints:
        """The choice of each node that values of all columns say, int64, shape (nodes,), counted from 0 in each."""
        value = values[self.choices]
        return np.array(
            [
                int(value[start:stop].argmax())
                for start, stop in zip(reduced.starts[:-1], reduced.starts[1:], strict=True)
            ],
            dtype=np.int64,
        )


def built(
    reduced: Reduced, pairs: Pairs, below: int | None = None, *, is_integer: bool = True, is_elastic: bool = False
) -> Built:
    """The model of what is left; `below`: a cost that plans are to stay under, which says what its unit is. With
    `is_elastic` memory may be bought, a thousandth of the room for what a whole plan costs.
    """
    is_open = np.flatnonzero(reduced.factors.is_open(reduced.tables))
    scale = _unit(reduced, below)
    model = Model("sharding")
    add = model.binaries if is_integer else model.continuous
    choices = add("choice", len(reduced.costs))
    levels, memory_scale = _levels(model, reduced)
    chosen = model.continuous("pair", len(is_open))
    owner = np.repeat(np.arange(reduced.node_count), reduced.sizes)
    model.add_sparse("one choice", reduced.node_count, owner, choices, 1.0, lower=1.0, upper=1.0)
    for name, slot, choice in (
        ("pairs of first", pairs.row[is_open], pairs.row_choice),
        ("pairs of second", pairs.column[is_open], pairs.column_choice),
    ):
        rows = np.concatenate([slot, np.arange(len(choice))])
        signs = np.concatenate([np.ones(len(slot)), -np.ones(len(choice))])
        model.add_sparse(
            name, len(choice), rows, np.concatenate([chosen, choices[choice]]), signs, lower=0.0, upper=0.0
        )
    bought = model.continuous("bought", len(levels) if is_elastic else 0)
    _memory_rows(model, reduced, choices, levels, bought, memory_scale)
    costs = (reduced.float_costs / scale, choices), (reduced.float_tables[is_open] / scale, chosen)
    model.minimize(*costs, (np.full(len(bought), _MOST_COST * 1000.0), bought), offset=reduced.offset / scale)
    return Built(model, choices, scale, memory_scale)


def _unit(reduced: Reduced, below: int | None) -> float:
    """What costs are divided by: a power of two, so that a whole plan costs some thousands."""
    open_tables = reduced.float_tables[np.isfinite(reduced.float_tables)]
    typical = float(reduced.float_costs.mean() if len(reduced.costs) else 0) * reduced.node_count
    typical += float(open_tables.mean() if len(open_tables) else 0) * len(reduced.ends)
    whole = typical if below is None else below - reduced.offset
    return float(2.0 ** np.round(np.log2(max(whole, 1.0) / _MOST_COST)))


def _levels(model: Model, reduced: Reduced) -> tuple[Ints, float]:
    """Columns for the memory above the least at each point, and the bytes that they count in."""
    room = reduced.points.room
    scale = float(2.0 ** np.round(np.log2(max(float(room.max(initial=0)), 1.0))))
    return model.continuous("memory", len(room), lower=-np.inf, upper=room / scale), scale


def _memory_rows(model: Model, reduced: Reduced, choices: Ints, levels: Ints, bought: Ints, scale: float) -> None:
    points, count = reduced.points, len(levels)
    if not count:
        return
    ends_inside = points.end < count
    rows = [np.arange(count), np.arange(1, count), points.first, points.end[ends_inside], np.arange(len(bought))]
    columns = [levels, levels[:-1], choices[points.choice], choices[points.choice[ends_inside]], bought]
    used = points.used / scale
    values = [np.ones(count), -np.ones(count - 1), -used, used[ends_inside], np.ones(len(bought))]
    model.add_sparse(
        "memory", count, np.concatenate(rows), np.concatenate(columns), np.concatenate(values), lower=0.0, upper=0.0
    )
