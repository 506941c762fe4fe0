"""What multipliers prove: a bound on every plan, and choices and pairs that no cheaper plan has, in whole numbers.

Multipliers charge memory at each time point, and move costs between an edge and the choices of its ends. Whatever they
are, the least cost of each node, plus the least of each edge, less what the room for memory is worth, is a bound. Here
it is computed in 64-bit whole numbers after scaling, each rounding against the bound, so that no solver's accuracy
counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.bounds.pairs import Pairs
from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.presolve.reduced import Narrowing, Reduced

__all__ = ["Multipliers", "Proof", "proof"]

Floats = NDArray[np.float64]

_SCALED_BITS = 50
"""Of the largest cost that counts, after scaling: the sums of a node with a thousand neighbours stay in 64 bits."""
_MESSAGE_BITS = 59
"""Of what a choice pays to all its edges, after scaling."""
_MULTIPLIER_BITS = 61
"""Of the sum of the multipliers of all time points, in fixed point."""
_PRODUCT_ERROR = 2.0**-50
"""More than a product of two rounded floating-point numbers is off."""
_SHUT = 2**61
_UNIT = 1.0
"""Costs are whole: by so much rounding a bound up can be above what is proven."""


@dataclass(frozen=True, repr=False)
class Multipliers:
    """Cost per byte at each time point, >= 0, float, shape (points,); and what each slot's choice pays for its edge:
    `rows`, float, shape (rows,), and `columns`, float, shape (columns,), as `Pairs` numbers them. Units of cost.
    """

    memory: Floats
    rows: Floats
    columns: Floats


@dataclass(frozen=True, repr=False)
class Proof:
    """`bound`: no plan costs less, or none that is cheaper than `below`. `narrowing`: what such plans can have, and the
    messages in whole units of cost. `excess`: float, shape (choices,), what a plan with a choice costs at
    least beyond `bound`.
    """

    bound: int
    below: int | None
    narrowing: Narrowing
    excess: Floats

    @property
    def is_closed(self) -> bool:
        """Whether no plan is cheaper than `below`."""
        return self.below is not None and self.bound >= self.below


def proof(reduced: Reduced, pairs: Pairs, multipliers: Multipliers, below: int | None = None) -> Proof:
    """What the multipliers prove of all plans, and of those that cost less than `below`."""
    is_open = reduced.factors.is_open(reduced.tables)
    most = max(_largest(reduced.costs), _largest(reduced.tables[is_open]), 1)
    limit = most if below is None else min(most, max(below - reduced.offset, 1))
    reach = limit if below is None else max(limit, below - reduced.offset)
    messages = _centred(reduced, pairs, multipliers, float(reach))
    shift = min(_SCALED_BITS - reach.bit_length(), _MESSAGE_BITS - _most_bits(reduced, pairs, messages))
    node, edge = _scaled(reduced.costs, limit, shift), _scaled(reduced.tables, limit, shift)
    is_open &= reduced.tables <= limit  # what alone costs as much as `below` is in no cheaper plan
    edge[~is_open], node[reduced.costs > limit] = _SHUT, _SHUT
    charged, paid = _memory(reduced, multipliers.memory, shift)
    node += charged
    rows, columns = (np.rint(np.ldexp(each, shift)).astype(np.int64) for each in messages)
    np.add.at(node, pairs.row_choice, rows)
    np.add.at(node, pairs.column_choice, columns)
    edge -= rows[pairs.row] + columns[pairs.column]
    parts = _Parts(reduced, pairs, node, edge)
    total = sum(parts.node_least.tolist()) + sum(parts.edge_least.tolist()) - paid
    bound = reduced.offset + _rounded_up(total, shift)
    whole = tuple(np.rint(each).astype(np.int64) for each in messages)
    excess = np.ldexp(parts.above.astype(np.float64), -shift) * (1 - _PRODUCT_ERROR) - _UNIT
    if below is None:
        return Proof(bound, None, Narrowing(np.ones(len(node), dtype=bool), is_open, *whole), excess)
    spare = _shifted(below - 1 - reduced.offset, shift) - total
    choices, open_pairs = parts.within(spare)
    choices &= reduced.costs <= limit
    return Proof(min(bound, below), below, Narrowing(choices, open_pairs & is_open, *whole), excess)


class _Parts:
    """Costs after multipliers: by how much each choice and pair is above the least of its node and edge."""

    def __init__(self, reduced: Reduced, pairs: Pairs, node: Ints, edge: Ints) -> None:
        self._pairs = pairs
        self.node_least = np.minimum.reduceat(node, reduced.starts[:-1]) if len(node) else node
        row_least, column_least = pairs.row_least(edge), pairs.column_least(edge)
        edges = len(reduced.ends)
        self.edge_least = np.full(edges, np.iinfo(np.int64).max)
        np.minimum.at(self.edge_least, pairs.row_edge, row_least)
        self._node = node - np.repeat(self.node_least, reduced.sizes)
        self._edge = edge - self.edge_least[pairs.row_edge[pairs.row]]
        self._row = row_least - self.edge_least[pairs.row_edge]
        self._column = column_least - self.edge_least[pairs.column_edge]
        degree = np.bincount(reduced.ends.reshape(-1), minlength=reduced.node_count)
        self._clip = 2**61 // (int(degree.max(initial=0)) + 3)
        self._row, self._column = np.minimum(self._row, self._clip), np.minimum(self._column, self._clip)
        self.above = np.minimum(self._node, self._clip)
        np.add.at(self.above, pairs.row_choice, self._row)
        np.add.at(self.above, pairs.column_choice, self._column)

    def within(self, spare: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which choices and pairs add no more than `spare` to the least of all."""
        clip = self._clip
        if spare < 0:
            return np.zeros(len(self._node), dtype=bool), np.zeros(len(self._edge), dtype=bool)
        if spare >= clip:  # above the clip all are equal
            return np.ones(len(self._node), dtype=bool), np.ones(len(self._edge), dtype=bool)
        above, pairs = self.above, self._pairs
        at_row, at_column = above[pairs.row_choice] - self._row, above[pairs.column_choice] - self._column
        pair = np.minimum(self._edge, clip)
        total = np.minimum(at_row[pairs.row], clip) + np.minimum(at_column[pairs.column], clip) + pair
        return above <= spare, total <= spare


def _largest(costs: NDArray[np.generic]) -> int:
    return int(costs.max()) if costs.size else 0


def _shifted(number: int, shift: int) -> int:
    """Times 2^shift, rounded down."""
    return number << shift if shift >= 0 else number >> -shift


def _rounded_up(total: int, shift: int) -> int:
    """Divided by 2^shift, rounded up where that is a division."""
    return -((-total) >> shift) if shift >= 0 else total << -shift


def _scaled(costs: NDArray[np.generic], limit: int, shift: int) -> Ints:
    """Whole numbers times 2^shift, rounded down, none above that of the limit."""
    if costs.dtype == object:
        return np.array([_shifted(int(min(cost, limit)), shift) for cost in costs.tolist()], dtype=np.int64)
    clipped = np.minimum(costs, limit).astype(np.int64)
    scaled: Ints = np.left_shift(clipped, shift) if shift >= 0 else np.right_shift(clipped, -shift)
    return scaled


def _memory(reduced: Reduced, memory: Floats, shift: int) -> tuple[Ints, int]:
    """What each choice pays for memory at least, int64, shape (choices,), and what room is worth at most; scaled."""
    points, charged = reduced.points, np.zeros(len(reduced.costs), dtype=np.int64)
    prices = np.nan_to_num(np.maximum(memory, 0.0), nan=0.0, posinf=0.0)
    total = float(prices.sum())
    if not total > 0 or not len(points.choice):
        return charged, 0
    fixed = _MULTIPLIER_BITS - 1 - int(np.ceil(np.log2(total)))
    whole = np.floor(np.ldexp(prices, fixed)).astype(np.int64)
    before = np.concatenate([[0], np.cumsum(whole)])
    price = (before[points.end] - before[points.first]).astype(np.float64)
    product = np.ldexp(points.used.astype(np.float64) * price, shift - fixed) * (1 - _PRODUCT_ERROR)
    repeats = int(np.bincount(points.choice).max())
    np.add.at(charged, points.choice, np.floor(np.minimum(product, 2.0**59 / repeats)).astype(np.int64))
    worth = sum(price * room for price, room in zip(whole.tolist(), points.room.tolist(), strict=True))
    return charged, _rounded_up(worth, fixed - shift)


def _centred(reduced: Reduced, pairs: Pairs, multipliers: Multipliers, reach: float) -> tuple[Floats, Floats]:
    """Messages of which each edge's least to either end is 0: what all choices of a node pay alike changes nothing."""
    degree = int(np.bincount(reduced.ends.reshape(-1), minlength=1).max(initial=0))
    found, most = [], min(reach * 2.0**20, 2.0**58 / (degree + 1))
    for values, edge in ((multipliers.rows, pairs.row_edge), (multipliers.columns, pairs.column_edge)):
        least = np.full(len(reduced.ends), np.inf)
        finite = np.clip(np.nan_to_num(values), -most, most)
        np.minimum.at(least, edge, finite)
        found.append(finite - least[edge])
    return found[0], found[1]


def _most_bits(reduced: Reduced, pairs: Pairs, messages: tuple[Floats, Floats]) -> int:
    """Of the largest sum of the messages of a choice."""
    total = np.zeros(len(reduced.costs))
    for values, choice in zip(messages, (pairs.row_choice, pairs.column_choice), strict=True):
        total += np.bincount(choice, values, len(total))
    return int(np.ceil(np.log2(total.max(initial=0.0) + 1.0)))
