"""Paths: a way for each chunk that a single rank wants, such that no resource is busy for much longer than others.

Each chunk in turn takes the way on which the load of the resources, to a high power, grows least; then each in turn is
taken out and routed again among the others, as often as that helps.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.symmetry.quotient import QuotientProblem

__all__ = ["Routes", "route_paths", "routes_of"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

_POWER = 6.0
"""Of the load: the higher, the more a busy resource is avoided."""
_ROUNDS = 3


@dataclass(frozen=True)
class Routes:
    """Sends of the board's chunks, parents before children; `busy_s`: how long the busiest clock is taken.

    `chunk`: a place in `QuotientProblem.chunks`. `parent`: the send that brings the chunk, -1 at its owner.
    """

    chunk: Ids
    link: Ids
    parent: Ids
    busy_s: float


def route_paths(board: QuotientProblem, occupancy_s: Floats) -> Routes:
    """A way for each chunk; `occupancy_s`: how long one chunk holds each link, float, shape (links,)."""
    finder = _Finder(board, occupancy_s)
    targets = board.wanted.argmax(axis=1).tolist()
    ways: list[list[int]] = [[] for _ in targets]
    best: list[list[int]] = []
    best_s = np.inf
    for _ in range(_ROUNDS):
        for number, target in enumerate(targets):
            finder.load(ways[number], -1.0)
            ways[number] = finder.way(board.owner[number], target)
            finder.load(ways[number], 1.0)
        if max(finder.load_s) >= best_s * (1 - 1e-9):
            break
        best, best_s = [list(way) for way in ways], max(finder.load_s)
    return routes_of(board, occupancy_s, best)


def routes_of(board: QuotientProblem, occupancy_s: Floats, ways: Sequence[Sequence[int]]) -> Routes:
    """Routes from a way, links one after the other, for each chunk of the board."""
    chunk = np.repeat(np.arange(len(ways)), [len(way) for way in ways])
    link = np.array([link for way in ways for link in way], dtype=np.int64)
    parent = np.arange(-1, len(link) - 1)
    parent[np.append(True, chunk[1:] != chunk[:-1])[: len(link)]] = -1
    load_s = np.zeros(board.group_count)
    for number in np.unique(link).tolist():
        for group in board.groups[number]:
            load_s[group] += occupancy_s[number] * np.count_nonzero(link == number)
    return Routes(chunk, link, parent, float(load_s.max(initial=0.0)))


class _Finder:
    """Cheapest ways under prices that follow the load; links of one kind hold the same clocks for the same time."""

    def __init__(self, board: QuotientProblem, occupancy_s: Floats) -> None:
        self.board, self.target = board, board.topology.link_target.tolist()
        self.load_s = [0.0] * board.group_count
        self.kinds: list[tuple[tuple[int, ...], float, float]] = []
        number: dict[tuple[tuple[int, ...], float, float], int] = {}
        columns = (board.groups, occupancy_s.tolist(), board.duration_s.tolist())
        self.kind = [number.setdefault(kind, len(number)) for kind in zip(*columns, strict=True)]
        self.kinds = list(number)

    def load(self, way: list[int], sign: float) -> None:
        """Add a way to the load of its clocks, or take it away."""
        for link in way:
            groups, occupancy_s, _ = self.kinds[self.kind[link]]
            for group in groups:
                self.load_s[group] += sign * occupancy_s

    def way(self, source: int, target: int) -> list[int]:
        """The links of the cheapest way: what each adds to the load of its clocks, to a high power, and its time."""
        price = self._prices()
        cost, link_to = {source: 0.0}, {source: -1}
        heap, done = [(0.0, source)], set()
        while heap:
            its, rank = heapq.heappop(heap)
            if rank == target:
                break
            if rank in done:
                continue
            done.add(rank)
            for link in self.board.links_of[rank]:
                to, through = self.target[link], its + price[self.kind[link]]
                if through < cost.get(to, np.inf):
                    cost[to], link_to[to] = through, link
                    heapq.heappush(heap, (through, to))
        way, sources = [], self.board.topology.link_source
        while target != source:
            way.append(link_to[target])
            target = int(sources[link_to[target]])
        return way[::-1]

    def _prices(self) -> list[float]:
        top_s = max(self.load_s) or 1.0
        prices = []
        for groups, occupancy_s, duration_s in self.kinds:
            heat = sum(((self.load_s[group] + occupancy_s) / top_s) ** _POWER for group in groups)
            prices.append(occupancy_s * heat + 1e-3 * duration_s)
        return prices
