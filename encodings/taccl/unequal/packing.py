"""Packed trees of an ALLGATHERV: each piece of a rank's data goes from there to all others, along a tree of its own.

Trees that leave each rank in proportion to its bytes can be packed into the links so that none has more to do than the
narrowest cut in front of a rank (Edmonds). Here they are grown one after the other along the links that have least to
do so far, each lane's load counting by a high power, and grown anew while that evens the loads. Shallow ones are
preferred: a piece waits for each step. Then the sends are put in order, pieces that share a link grouped or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.ordering.list_scheduling import (
    Order,
    Rule,
    Table,
    better_orders,
    list_schedule,
    path_times,
)
from gapless.encodings.taccl.ordering.sends import Sends, to_schedule
from gapless.encodings.taccl.parameters import Shares
from gapless.encodings.taccl.symmetry.rotations import lanes_of
from gapless.encodings.taccl.unequal.fluid import Lanes
from gapless.encodings.taccl.unequal.problem import Unequal, UnequalInChunks
from gapless.ir.amounts import pieces_of
from gapless.ir.schedule import Schedule
from gapless.options import Deadline
from gapless.topologies.topology import Topology

__all__ = ["packed_plan", "pieces_alike"]

_POWERS = (4, 8, 16, 32)
"""Of a lane's load, pass by pass: the higher, the more the busiest decides alone."""
_DEEP = 0.3
"""How much dearer a link gets for each step, of a piece on the slowest link, that is between its start and the root."""
_TIED = 1e-6
"""By which share prices differ at random, and what a link costs that nothing has used, of its own time."""
_PACE = 0.5
"""How soon pieces are due, as a share of the time that those before them give them."""
_RULES = (Rule("as given"), Rule("as given", most=4), Rule("longest from now"), Rule("longest from now", most=3))


def pieces_alike(sizes: Sequence[int], pieces: int) -> list[list[int]]:
    """The bytes of pieces of each share, all of nearly one size: `pieces` for a share of the mean size."""
    unit_bytes = max(sum(sizes) / (len(sizes) * pieces), 1.0)
    return [pieces_of(size, min(max(round(size / unit_bytes), 1), size)) if size else [] for size in sizes]


def packed_plan(
    problem: Unequal, parameters: Shares, seed: int, deadline: Deadline, enough_s: float
) -> tuple[UnequalInChunks, Schedule, str] | None:
    """The question in pieces, the best plan along packed trees, and its variant; None where all are too many sends.

    More pieces are tried as long as no plan takes at most `enough_s`, but none where trees are far behind that.
    """
    ranks, best = problem.topology.device_count, None
    tried = set[int]()
    for number in parameters.packed_pieces:
        shares = pieces_alike(problem.amounts.rows[0], number)
        count = sum(map(len, shares))
        if best is not None and not enough_s < best[0].makespan_s < parameters.hopeless_packing * enough_s:
            break
        if best is not None and deadline.over:
            break
        if count in tried or count * (ranks - 1) > parameters.most_packed_sends:
            continue
        tried.add(count)
        packing = _Packing(problem.topology, shares, seed)
        packing.pack(parameters.packing_passes)
        sends, table = packing.sends()
        orders = [list_schedule(table, rule, packing.due_s(sends, table)) for rule in _RULES]
        order = min(orders, key=lambda one: one.makespan_s)
        if best is None or order.makespan_s < best[0].makespan_s:
            best = order, sends, shares
    if best is None:
        return None
    order, sends, shares = best
    if order.makespan_s < parameters.hopeless_packing * enough_s:
        order = _perturbed(order, parameters.perturbed_rows, seed, deadline, enough_s)
    collective = problem.amounts.cut(shares)
    schedule = to_schedule(problem.topology, collective, 0, sends, order)
    return UnequalInChunks(problem, collective), schedule, f"{collective.chunk_count} trees, {order.name}"


def _perturbed(best: Order, rows: int, seed: int, deadline: Deadline, enough_s: float) -> Order:
    """The best of orders near it, of so many sends together."""
    left = rows

    def is_over(length_s: float) -> bool:
        nonlocal left
        left -= len(best.table)
        return left < 0 or length_s <= enough_s or deadline.over

    return [best, *better_orders(best, seed, math.ceil(rows / len(best.table)), is_over)][-1]


@dataclass
class _Growing:
    """A tree in the making. `price[l]`: of links from inside to outside, else inf; `away[r]`: steps from the root."""

    price: Floats
    is_inside: np.ndarray[tuple[int], np.dtype[np.bool_]]
    away: Floats


class _Packing:
    """A tree for each piece; `trees[c]`: its links, each behind that which brings the piece to its start.

    `load_s[g]`: seconds that all trees hold lane g. `near[l]`: the links that hold a lane of link l.
    """

    def __init__(self, topology: Topology, shares: Sequence[Sequence[int]], seed: int) -> None:
        self.topology, self.chance = topology, np.random.default_rng(seed)
        self.sizes = np.array([size for share in shares for size in share], dtype=np.float64)
        self.owners = [rank for rank, share in enumerate(shares) for _ in share]
        lanes, ranks = Lanes.of(topology), range(topology.device_count)
        self.lanes, most = lanes, max(map(len, lanes.of_link))
        self.held = np.array([[*held, *[lanes.count] * (most - len(held))] for held in lanes.of_link], dtype=np.int64)
        by_lane = [lanes.link[lanes.lane == lane] for lane in range(lanes.count)]
        self.near = [np.unique(np.concatenate([by_lane[lane] for lane in held])) for held in lanes.of_link]
        self.out = [np.flatnonzero(topology.link_source == rank) for rank in ranks]
        self.into = [np.flatnonzero(topology.link_target == rank) for rank in ranks]
        self.load_s = np.zeros(lanes.count + 1)  # the last is of no lane
        self.trees: list[list[int]] = [[] for _ in self.owners]
        self.step_s = float(self._takes_s(float(self.sizes.mean())).max())

    def pack(self, passes: int) -> None:
        """Grow all trees, then all anew, so many times; the trees with the least largest load are kept."""
        best_s, best = np.inf, self.trees
        for number in range(passes):
            for piece in self.chance.permutation(len(self.trees)).tolist():
                self._load(piece, -1)
                self.trees[piece] = self._grown(piece, _POWERS[min(number, len(_POWERS) - 1)])
                self._load(piece, 1)
            if self.busiest_s < best_s:
                best_s, best = self.busiest_s, list(self.trees)
        for piece, tree in enumerate(best):
            self._load(piece, -1)
            self.trees[piece] = tree
            self._load(piece, 1)

    @property
    def busiest_s(self) -> float:
        """How long the busiest lane is held."""
        return float(self.load_s[:-1].max())

    def _takes_s(self, size_bytes: float) -> Floats:
        """Seconds of so many bytes on each link, alone."""
        return np.asarray(self.topology.alpha_s + self.topology.beta_s_per_byte * size_bytes)

    def _load(self, piece: int, sign: int) -> None:
        takes_s = self._takes_s(self.sizes[piece])
        for link in self.trees[piece]:
            self.load_s[self.held[link]] += sign * takes_s[link]
        self.load_s[-1] = 0.0

    def _grown(self, piece: int, power: int) -> list[int]:
        """A tree from the piece's owner to all ranks, by the links that cost least."""
        topology, takes_s, load_s = self.topology, self._takes_s(self.sizes[piece]), self.load_s.copy()
        load_s[-1] = -np.inf
        top_s = max(float(load_s[:-1].max()), float(takes_s.max()))
        own = takes_s * (1 + _TIED * self.chance.random(len(takes_s)))

        def costs(links: Ids) -> Floats:
            after_s = np.maximum(load_s[self.held[links]] + takes_s[links, None], 0.0)
            return np.asarray(own[links] * (((after_s / top_s) ** power).sum(axis=1) + _TIED))

        cost, root = costs(np.arange(len(own))), self.owners[piece]
        state = _Growing(np.full(len(own), np.inf), np.zeros(topology.device_count, dtype=np.bool_),
                         np.zeros(topology.device_count))  # fmt: skip
        state.is_inside[root] = True
        state.price[self.out[root]] = cost[self.out[root]]
        tree = list[int]()
        while len(tree) < topology.device_count - 1:
            link = int(state.price.argmin())
            source, target = int(topology.link_source[link]), int(topology.link_target[link])
            tree.append(link)
            state.is_inside[target] = True
            state.away[target] = state.away[source] + takes_s[link] / self.step_s
            state.price[self.into[target]] = np.inf
            load_s[self.held[link]] += takes_s[link]
            near = self.near[link]
            cost[near] = costs(near)
            open_links = np.concatenate([near, self.out[target]])
            starts, ends = topology.link_source[open_links], topology.link_target[open_links]
            open_links = open_links[state.is_inside[starts] & ~state.is_inside[ends]]
            away = state.away[topology.link_source[open_links]]
            state.price[open_links] = cost[open_links] * (1 + _DEEP * away)
        return tree

    def sends(self) -> tuple[Sends, Table]:
        """All sends, and the same as rows to be put in order."""
        topology, held = self.topology, lanes_of(self.topology)
        pieces, links, needs = list[int](), list[int](), list[tuple[int, ...]]()
        for piece, tree in enumerate(self.trees):
            brought: dict[int, tuple[int, ...]] = {self.owners[piece]: ()}
            for link in tree:
                needs.append(brought[int(topology.link_source[link])])
                brought[int(topology.link_target[link])] = (len(links),)
                pieces.append(piece)
                links.append(link)
        chunk, over = np.array(pieces, dtype=np.int64), np.array(links, dtype=np.int64)
        nothing = np.zeros(len(over), dtype=np.bool_)
        sends = Sends(chunk, over, tuple(needs), np.zeros(len(over), dtype=np.int64), nothing, nothing.copy())
        size_s = topology.beta_s_per_byte[over] * self.sizes[chunk]
        return sends, Table(needs, links, [held[each] for each in links], topology.alpha_s[over], size_s, ~nothing)

    def due_s(self, sends: Sends, table: Table) -> Floats:
        """When each send is due: as its piece's turn comes, and behind what brings the piece."""
        until_s, _ = path_times(table.duration_s.tolist(), table.needs)
        return np.asarray(_PACE * self.busiest_s * self._turns()[sends.chunk] + until_s)

    def _turns(self) -> Floats:
        """The share of all bytes before each piece, in an order that keeps each lane's load near its share so far."""
        count = len(self.trees)
        load_s = np.zeros((count, self.lanes.count + 1))
        for piece, tree in enumerate(self.trees):
            takes_s = self._takes_s(self.sizes[piece])
            for link in tree:
                load_s[piece, self.held[link]] += takes_s[link]
        all_s = load_s[:, :-1].sum(axis=0)
        used = np.flatnonzero(all_s)
        share, weight = load_s[:, used] / all_s[used], (all_s[used] / all_s.max()) ** _POWERS[0]
        size, turn = self.sizes / self.sizes.sum(), np.zeros(count)
        so_far, at, left = np.zeros(len(used)), 0.0, np.arange(count)
        while len(left):
            behind = so_far + share[left] - (at + size[left])[:, None]
            place = int((behind**2 @ weight).argmin())
            piece = left[place]
            turn[piece] = at
            so_far, at, left = so_far + share[piece], at + size[piece], np.delete(left, place)
        return turn
