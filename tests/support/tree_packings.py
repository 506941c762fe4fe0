"""Fractional packings of spanning trees by column generation: a linear program whose columns are cheapest trees.

The program shares each rank's data (of an ALLREDUCE: all data) out over trees so that the busiest link, or whatever
links share, has least to do, latencies aside. The duals of links are prices. A cheapest arborescence from each root
(Chu and Liu, Edmonds) under these prices is the next column, as long as it is cheaper than what its root pays so far.
Where all links run alike both ways and share nothing, a tree of an ALLREDUCE is a minimum spanning tree, up and down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology

__all__ = ["Tree", "cheapest_arborescence", "packed_trees"]

MOST_ROUNDS = 60
"""Of new columns: few packings gain by more."""
LEAST_GAIN = 1e-4
"""What a column must be cheaper by, as a share."""
LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class Tree:
    """`up`: the links towards the root, `down`: those away from it, either with those next to the root first."""

    root: int
    up: tuple[int, ...]
    down: tuple[int, ...]


def packed_trees(collective: str, topology: Topology) -> list[tuple[Tree, float]]:
    """Trees with their shares of a root's data, or of all data of an ALLREDUCE."""
    start, held, links = topology.held_start.tolist(), topology.held.tolist(), len(topology.links)
    clocks = [(link, *(links + each for each in held[start[link] : start[link + 1]])) for link in range(links)]
    beta_s = topology.beta_s_per_byte / topology.beta_s_per_byte.max()
    twin = _twins(topology) if collective == "allreduce" else None
    columns: dict[Tree, None] = {}
    price = beta_s + 1e-3 * topology.alpha_s / topology.alpha_s.max(initial=1e-12)
    pays = None
    shares: NDArray[np.float64] = np.zeros(0)
    for _ in range(MOST_ROUNDS):
        count = len(columns)
        for tree in _cheapest(collective, topology, price, twin):
            root = 0 if collective == "allreduce" else tree.root
            costs = float(price[[*tree.up, *tree.down]].sum())
            if pays is None or costs < pays[root] * (1 - LEAST_GAIN):
                columns.setdefault(tree)
        if len(columns) == count:
            break
        shares, pays, price = _shared(collective, topology, list(columns), clocks, beta_s)
    return [(tree, float(share)) for tree, share in zip(columns, shares, strict=True) if share > LEAST_SHARE]


def _shared(
    collective: str, topology: Topology, trees: list[Tree], clocks: list[tuple[int, ...]], beta_s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], list[float], NDArray[np.float64]]:
    """The best shares, what each root pays, and the price of each link."""
    model = Model("tree_packing")
    share, time = model.continuous("share", len(trees)), int(model.continuous("time"))
    users: dict[int, list[tuple[int, float]]] = {}
    for column, tree in enumerate(trees):
        for link in (*tree.up, *tree.down):
            for clock in clocks[link]:
                users.setdefault(clock, []).append((column, float(beta_s[link])))
    for clock, held in users.items():
        columns, takes_s = zip(*held, strict=True)
        model.add(f"clock_{clock}", (1.0, [time]), (-np.array(takes_s), share[list(columns)]), lower=0.0)
    roots = 1 if collective == "allreduce" else topology.device_count
    for root in range(roots):
        own = [column for column, tree in enumerate(trees) if roots == 1 or tree.root == root]
        model.add(f"whole_{root}", (1.0, share[own]), lower=1.0, upper=1.0)
    model.minimize((1.0, [time]))
    solution = solve_model(model, SolveOptions(threads=1))
    assert solution.values is not None
    assert solution.row_prices is not None
    of_clock = dict(zip(users, solution.row_prices.tolist(), strict=False))
    price = [beta * sum(of_clock.get(clock, 0.0) for clock in held)
             for beta, held in zip(beta_s.tolist(), clocks, strict=True)]  # fmt: skip
    return solution.values[share], solution.row_prices[len(users) :].tolist(), np.array(price) + 1e-7 * beta_s


def _cheapest(
    collective: str, topology: Topology, price: NDArray[np.float64], twin: list[int] | None
) -> list[Tree]:  # fmt: skip
    """The cheapest tree of each root; of an ALLREDUCE, the cheapest of all."""
    ranks, source, target = topology.device_count, topology.link_source.tolist(), topology.link_target.tolist()
    prices = price.tolist()
    if twin is not None:
        both = [one + prices[other] for one, other in zip(prices, twin, strict=True)]
        down = cheapest_arborescence(ranks, 0, source, target, both)
        return [_from_the_middle(ranks, down, source, target, twin)]
    found = []
    for root in range(ranks):
        down = cheapest_arborescence(ranks, root, source, target, prices) if collective != "reducescatter" else []
        up = cheapest_arborescence(ranks, root, target, source, prices) if collective != "allgather" else []
        found.append(
            Tree(root, tuple(_in_order(root, up, target, source)), tuple(_in_order(root, down, source, target)))
        )
    if collective == "allreduce":
        found = sorted(found, key=lambda tree: float(price[[*tree.up, *tree.down]].sum()))[:3]
    return found


def _twins(topology: Topology) -> list[int] | None:
    """The link back of each link; None where some link has none of the same costs, or links share something."""
    if len(topology.held):
        return None
    ends = list(zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True))
    costs = list(zip(topology.alpha_s.tolist(), topology.beta_s_per_byte.tolist(), strict=True))
    waiting: dict[tuple[object, ...], list[int]] = {}
    for link, (source, target) in enumerate(ends):
        waiting.setdefault((source, target, costs[link]), []).append(link)
    twin = []
    seen: dict[tuple[object, ...], int] = {}
    for link, (source, target) in enumerate(ends):
        others = waiting.get((target, source, costs[link]), [])
        place = seen.get((source, target, costs[link]), 0)
        seen[source, target, costs[link]] = place + 1
        if place >= len(others):
            return None
        twin.append(others[place])
    return twin


def _from_the_middle(ranks: int, links: list[int], source: list[int], target: list[int], twin: list[int]) -> Tree:
    """A tree of links that run both ways, from the rank that is nearest to its farthest."""
    both = [*links, *(twin[link] for link in links)]
    orders = []
    for root in range(ranks):
        depth, order = {root: 0}, list[int]()
        front = [root]
        for rank in front:
            for link in both:
                if source[link] == rank and target[link] not in depth:
                    depth[target[link]] = depth[rank] + 1
                    order.append(link)
                    front.append(target[link])
        orders.append((max(depth.values()), root, order))
    _, root, down = min(orders)
    return Tree(root, tuple(twin[link] for link in down), tuple(down))


def _in_order(root: int, links: Sequence[int], source: list[int], target: list[int]) -> list[int]:
    """The links of an arborescence, those next to the root first."""
    of_rank: dict[int, list[int]] = {}
    for link in links:
        of_rank.setdefault(source[link], []).append(link)
    order = list(of_rank.get(root, ()))
    for link in order:
        order += of_rank.get(target[link], ())
    assert len(order) == len(links)
    return order


def cheapest_arborescence(
    ranks: int, root: int, source: Sequence[int], target: Sequence[int], price: Sequence[float]
) -> list[int]:
    """The links of the cheapest tree from the root to all ranks (Chu and Liu, Edmonds: cycles are contracted)."""
    arcs = list(zip(source, target, price, range(len(price)), strict=True))
    found = _arborescence(ranks, root, arcs)
    assert len(found) == ranks - 1
    return found


def _arborescence(ranks: int, root: int, arcs: list[tuple[int, int, float, int]]) -> list[int]:
    best: dict[int, tuple[int, int, float, int]] = {}
    for arc in arcs:
        if arc[1] != root and arc[0] != arc[1] and (arc[1] not in best or arc[2] < best[arc[1]][2]):
            best[arc[1]] = arc
    cycle = _cycle(best, root)
    if not cycle:
        return [arc[3] for arc in best.values()]
    inside, merged = set(cycle), ranks
    into: dict[int, tuple[int, int, float, int]] = {}  # arcs between what is left, by number
    left: list[tuple[int, int, float, int]] = []
    for arc in arcs:
        one, other, costs, number = arc
        if one in inside and other in inside:
            continue
        if other in inside:
            into[number] = arc
            left.append((one, merged, costs - best[other][2], number))
        else:
            left.append((merged if one in inside else one, other, costs, number))
    chosen = _arborescence(ranks + 1, root, left)
    entered = next(into[number][1] for number in chosen if number in into)
    return [*chosen, *(best[rank][3] for rank in cycle if rank != entered)]


def _cycle(best: dict[int, tuple[int, int, float, int]], root: int) -> list[int]:
    """A cycle among the cheapest arcs into each rank; empty where there is none."""
    done = {root}
    for first in best:
        path, rank = list[int](), first
        while rank not in done:
            done.add(rank)
            path.append(rank)
            rank = best[rank][0]
        if rank in path:
            return path[path.index(rank) :]
    return []
