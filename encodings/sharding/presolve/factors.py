"""Nodes and tables that reductions change, and the way back to the choices of the instance.

Costs are whole numbers; `BLOCKED` stands for what is forbidden, and sums stop there. Where finite costs could add up to
more, they are Python's integers in arrays of objects: slower, and as exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.instances.instance import FORBIDDEN, Instance

__all__ = ["BLOCKED", "Costs", "Factors", "Ints", "OutOfTime"]

Ints = NDArray[np.int64]
Costs: TypeAlias = NDArray[Any]
"""Of whole numbers: int64, or objects where sums may leave 64 bits."""

BLOCKED = 2**61
"""Twice of it fits into 64 bits."""

_ItemT = TypeVar("_ItemT")
_ASKED_EVERY = 1024
"""Nodes or edges from one look at the clock to the next."""


class OutOfTime(Exception):  # noqa: N818
    """The time was up before presolve was over."""


@dataclass(frozen=True)
class _Part:
    """Choices of a node of the instance, or of other parts: of `sources[k]` it is `choices[k][c]` for choice c."""

    node: int
    sources: tuple[_Part, ...] = ()
    choices: tuple[Ints, ...] = ()


class Factors:
    """Nodes by number, with what is left of their choices; a node may stand for several of the instance.

    `paid`: what every plan costs beside them. `costs[v]`: shape (choices of v,). `tables[v][w]`: shape (choices of v,
    of w); `tables[w][v]` is its transpose. `is_over`: whether the time is up; copies have all the time.
    """

    def __init__(self, instance: Instance, is_over: Callable[[], bool] = bool) -> None:
        self.instance, self.is_over, self._asked = instance, is_over, 0
        self.is_wide = instance.most_cost >= BLOCKED
        self.paid = 0
        self.costs: dict[int, Costs] = {node: self._blocked(row) for node, row in enumerate(instance.costs)}
        self.tables: dict[int, dict[int, Costs]] = {node: {} for node in self.costs}
        self._parts = {node: _Part(node) for node in self.costs}
        for (first, second), table in zip(instance.edges.tolist(), instance.tables, strict=True):
            self.ask()
            if first == second:
                self.costs[first] = self.add(self.costs[first], self._blocked(np.diagonal(table)))
            else:
                self.add_table(first, second, self._blocked(table))

    def copy(self) -> Factors:
        """One that changes without this one."""
        other = object.__new__(Factors)
        other.__dict__.update(self.__dict__)
        other.is_over = bool
        other.costs, other._parts = dict(self.costs), dict(self._parts)
        other.tables = {node: dict(tables) for node, tables in self.tables.items()}
        return other

    def ask(self) -> None:
        """Raise `OutOfTime` where the time is up; the clock is looked at now and then alone."""
        self._asked += 1
        if self._asked % _ASKED_EVERY == 0 and self.is_over():
            raise OutOfTime

    def asking(self, items: Iterable[_ItemT]) -> Iterator[_ItemT]:
        """The same items, with an `ask` for each."""
        for item in items:
            self.ask()
            yield item

    def _blocked(self, row: Ints) -> Costs:
        known = row.astype(object) if self.is_wide else row
        return np.where(row >= FORBIDDEN, _blocked_value(self.is_wide), known)

    def add(self, first: Costs, second: Costs) -> Costs:
        """A sum in which what is blocked stays so."""
        if self.is_wide:
            return np.where((first == np.inf) | (second == np.inf), np.inf, first + second)
        total: Costs = np.minimum(first + second, BLOCKED)
        return total

    def is_open(self, costs: Costs) -> NDArray[np.bool_]:
        """Where nothing is blocked."""
        return np.asarray(costs != _blocked_value(self.is_wide), dtype=bool)

    def floats(self, costs: Costs) -> NDArray[np.float64]:
        """As floating-point numbers, infinite where blocked."""
        return np.where(self.is_open(costs), costs.astype(np.float64), np.inf)

    def add_table(self, first: int, second: int, table: Costs) -> None:
        """Charge pairs of choices of two nodes."""
        known = self.tables[first].get(second)
        self._set_table(first, second, table if known is None else self.add(known, table))

    def block(self, first: int, second: int, is_open: NDArray[np.bool_]) -> None:
        """Forbid the pairs of two neighbours' choices that aren't open; shape as their table's."""
        self._set_table(first, second, np.where(is_open, self.tables[first][second], _blocked_value(self.is_wide)))

    def _set_table(self, first: int, second: int, table: Costs) -> None:
        self.tables[first][second], self.tables[second][first] = table, table.T

    def move(self, first: int, second: int, rows: Ints, columns: Ints) -> None:
        """Let the choices of two neighbours pay these whole numbers, of any sign, for their edge, which costs the less.

        The least of the edge is paid by all plans. What is left of the edge isn't negative.
        """
        table = self.tables[first][second]
        is_open = self.is_open(table)
        left = np.where(is_open, table - rows[:, None] - columns, table)
        least = left.min()
        self._set_table(first, second, np.where(is_open, left - least, table))
        self.costs[first], self.costs[second] = self.costs[first] + rows, self.costs[second] + columns
        self.paid += int(least)

    def part(self, first: int, second: int, rows: Ints, columns: Ints) -> None:
        """Let the choices of two neighbours pay for a table that is the sum of these: they are neighbours no more."""
        self.costs[first], self.costs[second] = self.add(self.costs[first], rows), self.add(self.costs[second], columns)
        for node in (first, second):
            self.paid += int(self.costs[node].min())
            self.costs[node] = self.costs[node] - self.costs[node].min()
        del self.tables[first][second], self.tables[second][first]

    def absorb(self, kept: int, leaf: int) -> None:
        """Let a neighbour stand for a leaf too, which takes its cheapest choice beside each of the neighbour's."""
        pairs = self.add(self.tables[kept][leaf], self.costs[leaf])
        best = pairs.argmin(axis=1)
        self.costs[kept] = self.add(self.costs[kept], pairs[np.arange(len(best)), best])
        self._parts[kept] = _Part(-1, (self._parts[kept], self._parts[leaf]), (np.arange(len(best)), best))
        del self.tables[kept][leaf], self.costs[leaf], self.tables[leaf], self._parts[leaf]

    def settle(self, node: int) -> None:
        """Let all plans pay what each choice of a node costs at least."""
        least = self.costs[node].min()
        self.costs[node] = self.costs[node] - least
        self.paid += int(least)

    def restrict(self, node: int, kept: Ints) -> None:
        """Leave a node these choices, in this order."""
        self.costs[node] = self.costs[node][kept]
        self._parts[node] = _Part(-1, (self._parts[node],), (kept,))
        for other, table in list(self.tables[node].items()):
            self._set_table(node, other, table[kept])

    def detach(self, node: int) -> list[int]:
        """Charge the neighbours of a node with a single choice for it. Returns them."""
        neighbours = list(self.tables[node])
        for other in neighbours:
            self.costs[other] = self.add(self.costs[other], self.tables[node][other][0])
            del self.tables[other][node]
        self.tables[node] = {}
        return neighbours

    def merge(self, kept: int, gone: int) -> list[int]:
        """Let the first of two neighbours stand for both: its choices are the open pairs. Returns its neighbours."""
        table = self.tables[kept][gone]
        own, others = np.nonzero(self.is_open(table))
        is_same = len(own) == len(table) and bool((own == np.arange(len(own))).all())
        cost = self.add(self.costs[kept][own], self.costs[gone][others])
        self.costs[kept] = self.add(cost, table[own, others])
        self._parts[kept] = _Part(-1, (self._parts[kept], self._parts[gone]), (own, others))
        del self.tables[kept][gone], self.tables[gone][kept]
        if not is_same:
            for other, beside in list(self.tables[kept].items()):
                self._set_table(kept, other, beside[own])
        for other, beside in self.tables[gone].items():
            del self.tables[other][gone]
            self.add_table(kept, other, beside[others])
        del self.costs[gone], self.tables[gone], self._parts[gone]
        return list(self.tables[kept])

    def members(self, node: int) -> list[tuple[int, Ints]]:
        """The nodes of the instance that a node stands for, each with its choice for each choice of the node."""
        found, open_parts = [], [(self._parts[node], np.arange(len(self.costs[node])))]
        while open_parts:
            part, choice = open_parts.pop()
            if part.node >= 0:
                found.append((part.node, choice))
            open_parts += [(source, own[choice]) for source, own in zip(part.sources, part.choices, strict=True)]
        return sorted(found, key=lambda pair: pair[0])

    def expand(self, nodes: Iterable[int], choices: Sequence[int]) -> Ints:
        """The choice of each node of the instance, int64, shape (nodes,), from one for each node that is left."""
        found = np.full(len(self.instance.costs), -1, dtype=np.int64)
        for node, choice in zip(nodes, choices, strict=True):
            for member, own in self.members(node):
                found[member] = own[choice]
        return found


def _blocked_value(is_wide: bool) -> Any:
    return np.inf if is_wide else BLOCKED
