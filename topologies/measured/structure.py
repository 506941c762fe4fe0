"""Which ranks are a node, share a NIC, a port or a bus: from costs, and from links that slow each other.

Two links share something where flows that use both at once take longer than one alone. What a test asks is put so that
few tests are enough: about one for each pair of ranks of a node, and those of different nodes at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats
from gapless.topologies.measured.experiments import Experiments, Pair

__all__ = ["Inside", "Structure", "classes_of", "find_structure", "joined", "near_groups"]

Test = Generator[list[Pair], float, "Inside"]
"""Asks for links to be used at once, gets how many times as long that takes, and ends with what it has found."""

_CLEAR = 1.35
"""A slow-down that is expected of links that share something must be at least this much for one test to decide."""
_ORDERS = 8
"""In which every rank sends to every other one, all at once."""
_SELDOM = 0.3
"""The share of times in which a pair of one node may be held up by chance; one of two nodes is in more than half."""
_FAINT = 1.12
"""One that is smaller can't be distinguished from noise."""


@dataclass(frozen=True)
class Inside:
    """What the ranks of a node share: ports out of and into a rank, buses (one transfer of all that touch their ranks).

    A rank that shares nothing is in none of them.
    """

    out_ports: tuple[int, ...] = ()
    in_ports: tuple[int, ...] = ()
    buses: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Structure:
    """Nodes, as groups of ranks; the groups of each that share a NIC, which is empty for one node; what is inside.

    `why_nodes`: by what nodes are distinguished: latency, bandwidth, contention, or nothing.
    """

    nodes: tuple[tuple[int, ...], ...]
    nics: tuple[tuple[tuple[int, ...], ...], ...]
    inside: tuple[Inside, ...]
    why_nodes: str

    def node_of(self, rank: int) -> int:
        """The node of a rank."""
        return next(number for number, node in enumerate(self.nodes) if rank in node)


@dataclass(frozen=True)
class _Finder:
    """The experiments, and rough costs of every pair."""

    experiments: Experiments
    alpha_s: Floats
    beta: Floats

    def ratio(self, groups: Sequence[Sequence[Pair]], thresholds: Sequence[float]) -> Floats:
        """How many times as long links at once take; what seems slow is tried again, and the fastest counts."""
        found = self.experiments.together(groups, self.alpha_s, self.beta)
        for _ in range(self.experiments.settings.tries - 1):
            again = [k for k, threshold in enumerate(thresholds) if found[k] > 0.9 * threshold]
            if not again:
                break
            tried = self.experiments.together([groups[k] for k in again], self.alpha_s, self.beta)
            found[again] = np.minimum(found[again], tried)
        return found

    def expected(self, pairs: Sequence[Pair], capacity: float) -> float:
        """How many times as long links at once take that share something of a capacity, bytes/s."""
        return float(sum(1 / self.beta[pair] for pair in pairs)) / capacity

    def share(self, pairs: Sequence[Pair], capacity: float) -> bool:
        """Whether links share something of this capacity."""
        threshold = float(np.sqrt(max(self.expected(pairs, capacity), 1.0)))
        return bool(self.ratio([pairs], [threshold])[0] > threshold)


def find_structure(experiments: Experiments, alpha_s: Floats, beta: Floats) -> Structure:
    """The structure behind rough costs of all ordered pairs (float, shape (ranks, ranks)), with experiments on top.

    Raises `OutOfTimeError` where there is no time for one of them.
    """
    finder = _Finder(experiments, alpha_s, beta)
    nodes, why = _nodes(finder)
    nics = [_nics(finder, nodes, number) if len(nodes) > 1 else [] for number in range(len(nodes))]
    inside = _lockstep(finder, [_inside(node) for node in nodes])
    return Structure(
        tuple(map(tuple, nodes)), tuple(tuple(map(tuple, groups)) for groups in nics), tuple(inside), why
    )  # fmt: skip


# -- nodes -------------------------------------------------------------------------------------------------------------


def _nodes(finder: _Finder) -> tuple[list[list[int]], str]:
    """By latency; where that is the same everywhere by bandwidth, and else by what ranks share when they send."""
    ranks = len(finder.beta)
    found = near_groups(finder.alpha_s, finest=False)
    if len(found) > 1:
        return found, "latency"
    found = near_groups(finder.beta, finest=True)
    if len(found) > 1:
        return found, "bandwidth"
    if ranks > 3:
        found = _private_groups(finder)
        if 1 < len(found) < ranks:
            return found, "contention"
    return [list(range(ranks))], "nothing"


def _private_groups(finder: _Finder) -> list[list[int]]:
    """Groups that pairs join which others seldom slow, while every rank sends to another one, in several orders."""
    ranks = len(finder.beta)
    slowed = np.zeros((ranks, ranks))
    rng = np.random.default_rng(0)
    for order in [rng.permutation(ranks) for _ in range(_ORDERS)]:
        for step in range(1, ranks):
            pairs = list(zip(order.tolist(), np.roll(order, -step).tolist(), strict=True))
            ratios = finder.experiments.together([[pair] for pair in pairs], finder.alpha_s, finder.beta)
            for pair, ratio in zip(pairs, ratios, strict=True):
                slowed[pair] += ratio > np.sqrt(2)
    both = np.triu(slowed + slowed.T < _SELDOM * 2 * _ORDERS, 1)
    groups = joined(ranks, np.argwhere(both).tolist())
    is_whole = all(both[a, b] for group in groups for a, b in combinations(group, 2))
    return groups if is_whole else [list(range(ranks))]


# -- NICs --------------------------------------------------------------------------------------------------------------


def _nics(finder: _Finder, nodes: list[list[int]], number: int) -> list[list[int]]:
    """The ranks of a node in groups: those whose transfers to other nodes take turns."""
    here = nodes[number]
    groups: list[list[int]] = []
    for rank in here:
        for group in groups:
            if _same_nic(finder, nodes, number, group[0], rank):
                group.append(rank)
                break
        else:
            groups.append([rank])
    return groups


def _same_nic(finder: _Finder, nodes: list[list[int]], number: int, one: int, other: int) -> bool:
    """Whether two ranks of a node share a NIC, by sending to two ranks that share none, if there are such."""
    away = [rank for place, node in enumerate(nodes) if place != number for rank in node]
    rate = 1 / finder.beta
    fastest = [max(rate[rank, target] for target in away) for rank in (one, other)]
    if max(fastest) > _CLEAR * min(fastest):
        return False
    capacity = max(fastest)
    node_of = {rank: place for place, node in enumerate(nodes) for rank in node}

    def clear(pair: Pair) -> float:
        return finder.expected([(one, pair[0]), (other, pair[1])], capacity)

    def share(pair: Pair) -> bool:
        return finder.share([(one, pair[0]), (other, pair[1])], capacity)

    apart = max(
        (pair for pair in permutations(away, 2) if node_of[pair[0]] != node_of[pair[1]]), key=clear, default=None
    )
    if apart is not None and clear(apart) >= _CLEAR:
        return share(apart)
    # Receivers of one node may share a NIC, but where there are several NICs, two that follow each other don't.
    for place, node in enumerate(nodes):
        pairs = list(zip(node, node[1:] + node[:1], strict=True))[: len(node) if len(node) > 2 else 1]
        if place == number or len(node) == 1:
            continue
        if not all(share(pair) for pair in sorted(pairs, key=clear, reverse=True) if clear(pair) >= _FAINT):
            return False
    return apart is None or clear(apart) < _FAINT or share(apart)


# -- inside of nodes ---------------------------------------------------------------------------------------------------


def _lockstep(finder: _Finder, tests: list[Test]) -> list[Inside]:
    """All nodes' tests, a step of each at a time: links in different nodes don't disturb each other."""
    found: dict[int, Inside] = {}
    asked: dict[int, list[Pair]] = {}

    def go_on(number: int, answer: float | None) -> None:
        try:
            asked[number] = next(tests[number]) if answer is None else tests[number].send(answer)
        except StopIteration as end:
            asked.pop(number, None)
            found[number] = end.value

    for number in range(len(tests)):
        go_on(number, None)
    while asked:
        numbers = sorted(asked)
        groups = [asked[number] for number in numbers]
        expected = [finder.expected(group, max(1 / finder.beta[pair] for pair in group)) for group in groups]
        thresholds = np.sqrt(np.maximum(expected, 1.0))
        for number, slow in zip(numbers, finder.ratio(groups, thresholds.tolist()) > thresholds, strict=True):
            go_on(number, float(slow))
    return [found[number] for number in range(len(tests))]


def _inside(node: list[int]) -> Test:
    """What the ranks of a node share: a bus shows where a rank that receives is slow to send, a port where it sends to
    two at once.
    """
    count = len(node)
    if count < 2:
        return Inside()
    if count == 2:
        is_slow = yield [(node[0], node[1]), (node[1], node[0])]
        return Inside(buses=(tuple(node),) if is_slow else ())
    around = [(node[k - 1], rank, node[(k + 1) % count]) for k, rank in enumerate(node)]
    slow = []
    for before, rank, after in around:
        slow.append((yield [(before, rank), (rank, after)]))
    if 2 * sum(slow) > count:
        return Inside(buses=tuple(map(tuple, (yield from _buses(node)))))
    out_ports, in_ports = [], []
    for before, rank, after in around:
        if (yield [(rank, before), (rank, after)]):
            out_ports.append(rank)
        if (yield [(before, rank), (after, rank)]):
            in_ports.append(rank)
    return Inside(tuple(out_ports), tuple(in_ports))


def _buses(node: list[int]) -> Generator[list[Pair], float, list[list[int]]]:
    """Groups of ranks: transfers that touch the same group take turns.

    Links of four ranks that don't slow each other keep the groups of two of them apart from those of the others.
    """
    apart = set[frozenset[int]]()
    most = len(node) ** 2
    rng = np.random.default_rng(0)
    quadruples = list(combinations(node, 4))
    for place in rng.permutation(len(quadruples))[: max(most // 3, 1)].tolist():
        a, *others = quadruples[place]
        for b in others:
            c, d = (rank for rank in others if rank != b)
            if all(frozenset(pair) in apart for pair in ((a, c), (a, d), (b, c), (b, d))):
                continue
            if not (yield [(a, b), (c, d)]):
                apart |= {frozenset(pair) for pair in ((a, c), (a, d), (b, c), (b, d))}
    numbers = {rank: place for place, rank in enumerate(node)}
    together = [pair for pair in combinations(node, 2) if frozenset(pair) not in apart]
    return [
        [node[place] for place in group] for group in joined(len(node), [(numbers[a], numbers[b]) for a, b in together])
    ]


_LEAST_GAP = 1.3
"""Ranks of one group are nearer to each other than to others by this factor at least, or there are no groups."""


def classes_of(values: Floats, gap: float) -> NDArray[np.int64]:
    """The class of each value, 0 for the smallest: neighbours that differ by more than a factor `gap` are apart."""
    order = np.argsort(values, kind="stable")
    above = np.maximum(values[order], 1e-300)
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.concatenate([[0], np.cumsum(above[1:] > gap * above[:-1])])
    return found


def joined(count: int, pairs: Iterable[Sequence[int]]) -> list[list[int]]:
    """The components of `count` things that pairs join, each sorted, in the order of their first."""
    graph = nx.empty_graph(count)
    graph.add_edges_from(pairs)
    return sorted(sorted(part) for part in nx.connected_components(graph))


def near_groups(cost: Floats, finest: bool) -> list[list[int]]:
    """Groups of ranks whose costs among themselves are all lower than those to others; one group if there are none.

    `cost`: of ordered pairs, float, shape (ranks, ranks); of a pair's two directions the cheaper counts. Of several
    divisions that costs allow, the one with the widest gap, or the `finest`.
    """
    ranks = len(cost)
    both = np.fmin(cost, cost.T)
    upper = np.triu_indices(ranks, 1)
    values = np.sort(both[upper])
    found: list[tuple[float, list[list[int]]]] = []
    for k in np.flatnonzero(values[1:] > _LEAST_GAP * values[:-1]):
        near = both <= values[k]
        groups = joined(ranks, np.argwhere(np.triu(near, 1)).tolist())
        if sum(len(group) * (len(group) - 1) // 2 for group in groups) == k + 1:  # all pairs inside are near
            found.append((values[k + 1] / values[k], groups))
    if not found:
        return [list(range(ranks))]
    return found[0][1] if finest else max(found, key=lambda each: each[0])[1]
