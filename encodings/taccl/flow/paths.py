"""Paths of chunks through the network: the shortest, by load, or from the flow that carries the least time, rounded.

Shortest paths need no solver, and are there for chunks with several destinations, too. By load, no resource is busy for
much longer than others. Each chunk in turn takes the path on which the load of the resources, to a high power, grows
least; then each in turn is taken out and routed again among the others, as often as that helps.

The flow of `concurrent_flow` carries fractions of chunks, and falls apart into paths with amounts. How many chunks of
one owner and one target take each path is then a whole number: a small integer program on the quotient, one variable a
path.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.bandwidth.concurrent_flow import ConcurrentFlow
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.encodings.taccl.symmetry.quotient import QuotientProblem
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.registry import solve_model

__all__ = [
    "Path", "busiest_s", "decomposed", "exclusive_groups", "groups_of_links", "round_flow", "route_paths", "routing_of",
    "shortest_path_links", "shortest_path_routing", "time_of", "trees_from_links",
]  # fmt: skip

Path = tuple[int, ...]
"""Links one after the other."""

_POWER = 6.0
"""Of the load: the higher, the more a busy resource is avoided."""
_TIME_SHARE = 1e-3
"""Of a link's time, which decides where loads are equal."""


def route_paths(
    quotient: QuotientProblem, occupancy_s: Floats, allowed: Mask | None = None, rounds: int = 3
) -> Routing:
    """A path for each chunk of the quotient problem; each is routed at most `rounds` times.

    `occupancy_s`: how long one chunk holds each link, float, shape (links,). `allowed[c, l]`: whether the
    quotient's c-th chunk may take link l, where not all may.
    """
    finder = _Finder(quotient, occupancy_s, allowed)
    targets = quotient.wanted.argmax(axis=1).tolist()
    paths: list[list[int]] = [[] for _ in targets]
    best: list[list[int]] = []
    best_s = np.inf
    for _ in range(rounds):
        for number, target in enumerate(targets):
            finder.load(paths[number], -1.0)
            paths[number] = finder.path(number, target)
            finder.load(paths[number], 1.0)
        if finder.load_s.max() >= best_s * (1 - 1e-9):
            break
        best, best_s = [list(path) for path in paths], float(finder.load_s.max())
    return routing_of(best)


def routing_of(paths: Sequence[Sequence[int]]) -> Routing:
    """The sends along a path, links one after the other, for each chunk."""
    chunk = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    link = np.array([link for path in paths for link in path], dtype=np.int64)
    parent = np.arange(-1, len(link) - 1)
    parent[np.append(True, chunk[1:] != chunk[:-1])[: len(link)]] = -1
    return Routing(chunk, link, parent)


def busiest_s(quotient: QuotientProblem, routing: Routing, occupancy_s: Floats) -> float:
    """How long the busiest clock is taken."""
    load_s = np.zeros(quotient.group_count)
    for link, count in zip(*(found.tolist() for found in np.unique(routing.link, return_counts=True)), strict=True):
        for group in quotient.groups[link]:
            load_s[group] += occupancy_s[link] * count
    return float(load_s.max(initial=0.0))


class _Finder:
    """Cheapest paths under prices that follow the load; links of one kind hold the same clocks for the same time."""

    def __init__(self, quotient: QuotientProblem, occupancy_s: Floats, allowed: Mask | None) -> None:
        self.quotient, self.target, self.allowed = quotient, quotient.topology.link_target.tolist(), allowed
        self.load_s = np.zeros(quotient.group_count)
        number: dict[tuple[tuple[int, ...], float, float], int] = {}
        columns = (quotient.groups, occupancy_s.tolist(), quotient.duration_s.tolist())
        self.kind = [number.setdefault(kind, len(number)) for kind in zip(*columns, strict=True)]
        self.kinds = list(number)
        self.kinds_into: list[set[int]] = [set() for _ in range(quotient.topology.device_count)]
        for kind, target in zip(self.kind, self.target, strict=True):
            self.kinds_into[target].add(kind)
        most = max(len(groups) for groups, _, _ in self.kinds)
        self.held = np.array([[*groups, *[0] * (most - len(groups))] for groups, _, _ in self.kinds], dtype=np.int64)
        self.holds = np.array([[k < len(groups) for k in range(most)] for groups, _, _ in self.kinds], dtype=np.bool_)
        self.occupancy_s, self.duration_s = (np.array([kind[place] for kind in self.kinds]) for place in (1, 2))

    def load(self, path: list[int], sign: float) -> None:
        """Add a path to the load of its clocks, or take it away."""
        for link in path:
            groups, occupancy_s, _ = self.kinds[self.kind[link]]
            for group in groups:
                self.load_s[group] += sign * occupancy_s

    def path(self, chunk: int, target: int) -> list[int]:
        """The links of the cheapest path: what each adds to the load of its clocks, to a high power, and its time."""
        source, price = self.quotient.owner[chunk], self._prices()
        may_go = None if self.allowed is None else self.allowed[chunk]
        cost, link_to = {source: 0.0}, {source: -1}
        last = min(price[kind] for kind in self.kinds_into[target])
        heap, done = [(0.0, source)], set()
        while heap:
            so_far, rank = heapq.heappop(heap)
            if rank == target or so_far + last >= cost.get(target, np.inf):  # no other path is cheaper
                break
            if rank in done:
                continue
            done.add(rank)
            for link in self.quotient.links_of[rank]:
                to, through = self.target[link], so_far + price[self.kind[link]]
                if through < cost.get(to, np.inf) and (may_go is None or may_go[link]):
                    cost[to], link_to[to] = through, link
                    heapq.heappush(heap, (through, to))
        path, sources = [], self.quotient.topology.link_source
        while target != source:
            path.append(link_to[target])
            target = int(sources[link_to[target]])
        return path[::-1]

    def _prices(self) -> list[float]:
        """By kind: what one more chunk costs."""
        top_s = float(self.load_s.max(initial=0.0)) or 1.0
        heat = ((self.load_s[self.held] + self.occupancy_s[:, None]) / top_s) ** _POWER
        prices: list[float] = (
            self.occupancy_s * heat.sum(axis=1, where=self.holds) + _TIME_SHARE * self.duration_s
        ).tolist()
        return prices


_NOTHING = 1e-6
"""Less of a chunk than this on a link is rounding."""


@dataclass(frozen=True)
class _Choice:
    """The quotient's chunks that have owner and target in common, and the paths that carry them, with amounts."""

    chunks: list[int]
    paths: list[Path]
    amounts: list[float]


def round_flow(quotient: QuotientProblem, occupancy_s: Floats, flow: ConcurrentFlow, options: SolveOptions) -> Routing:
    """Paths for the quotient's chunks, each of which a single rank wants, along the paths of a flow for all of them."""
    choices = _choices(quotient, flow)
    counts = _counts(quotient, occupancy_s, choices, options)
    paths: list[Path] = [()] * len(quotient.owner)
    for choice, numbers in zip(choices, counts, strict=True):
        taken = [path for path, count in zip(choice.paths, numbers, strict=True) for _ in range(count)]
        for chunk, path in zip(choice.chunks, taken, strict=True):
            paths[chunk] = path
    return routing_of(paths)


def _choices(quotient: QuotientProblem, flow: ConcurrentFlow) -> list[_Choice]:
    """For chunks that have owner and target in common, paths of the flow with amounts that add up to their number."""
    tail, head = quotient.topology.link_source.tolist(), quotient.topology.link_target.tolist()
    if flow.by_target:
        tail, head = head, tail
    members: dict[int, dict[int, list[int]]] = {}
    for chunk, (owner, target) in enumerate(zip(quotient.owner, quotient.wanted.argmax(axis=1).tolist(), strict=True)):
        end, other = (target, owner) if flow.by_target else (owner, target)
        members.setdefault(end, {}).setdefault(other, []).append(chunk)
    choices = []
    for end, others in members.items():
        amount = flow.flow[int(np.flatnonzero(flow.ends == end)[0])].copy()
        carried = decomposed(end, {other: float(len(chunks)) for other, chunks in others.items()}, amount, tail, head)
        for other, taken in carried.items():
            paths = [path[::-1] if flow.by_target else path for path, _ in taken]
            choices.append(_Choice(others[other], paths, [through for _, through in taken]))
    return choices


def _counts(
    quotient: QuotientProblem, occupancy_s: Floats, choices: list[_Choice], options: SolveOptions
) -> list[list[int]]:
    """How many chunks take each path, such that no clock is taken for longer than need be."""
    if all(len(choice.paths) == 1 for choice in choices):
        return [[len(choice.chunks)] for choice in choices]
    model = Model("taccl_path_counts")
    whole = [
        model.integers(f"taken_{k}", len(choice.paths), upper=len(choice.chunks)) for k, choice in enumerate(choices)
    ]
    time = int(model.continuous("time"))
    unit_s = float(occupancy_s.mean())
    model.add_sparse(
        "every_chunk_takes_a_path",
        len(choices),
        np.repeat(np.arange(len(choices)), [len(ids) for ids in whole]),
        np.concatenate(whole),
        1.0,
        lower=(wanted := np.array([len(choice.chunks) for choice in choices], dtype=np.float64)),
        upper=wanted,
    )
    rows, columns, values = [], [], []
    for ids, choice in zip(whole, choices, strict=True):
        for column, path in zip(ids.tolist(), choice.paths, strict=True):
            for link in path:
                for group in quotient.groups[link]:
                    rows.append(group)
                    columns.append(column)
                    values.append(-occupancy_s[link] / unit_s)
    used, row = np.unique(rows, return_inverse=True)
    model.add_sparse(
        "time_covers_clock",
        len(used),
        np.concatenate([row, np.arange(len(used))]),
        np.concatenate([columns, np.full(len(used), time)]),
        np.concatenate([values, np.ones(len(used))]),
        lower=0.0,
    )
    model.minimize((1.0, [time]))
    solution = solve_model(model, options)
    if solution.values is None:
        return [_nearest(choice) for choice in choices]
    return [np.round(solution.values[ids]).astype(int).tolist() for ids in whole]


def _nearest(choice: _Choice) -> list[int]:
    """Whole numbers near the amounts, with their sum: the largest remainders are rounded up."""
    amounts = np.array(choice.amounts)
    counts = np.floor(amounts + _NOTHING).astype(int)
    short = len(choice.chunks) - int(counts.sum())
    counts[np.argsort(counts - amounts, kind="stable")[:short]] += 1
    return [int(count) for count in counts]


def decomposed(
    owner: int, wanted: Mapping[int, float], amount: Floats, source: list[int], target: list[int]
) -> dict[int, list[tuple[Path, float]]]:
    """Paths from the owner to the ranks that want some of a flow, with how much each carries.

    `amount[l]`: the flow on link l, float, which is used up; paths are as short as they can be.
    """
    leaving: dict[int, list[int]] = {}
    for link in np.flatnonzero(amount > _NOTHING).tolist():
        leaving.setdefault(source[link], []).append(link)
    found: dict[int, list[tuple[Path, float]]] = {rank: [] for rank in wanted}
    for rank, missing in wanted.items():
        while missing > _NOTHING and (path := _carrying_path(owner, rank, leaving, amount, target)):
            through = float(min(missing, *amount[list(path)]))
            amount[list(path)] -= through
            missing -= through
            found[rank].append((path, through))
    return found


def _carrying_path(owner: int, rank: int, leaving: dict[int, list[int]], left: Floats, target: list[int]) -> Path:
    """Links from `owner` to `rank` on which some flow is left, as few as possible; () if there are none."""
    brought_by: dict[int, tuple[int, int]] = {owner: (-1, -1)}
    queue = [owner]
    for at in queue:
        for link in leaving.get(at, ()):
            if left[link] > _NOTHING and target[link] not in brought_by:
                brought_by[target[link]] = link, at
                queue.append(target[link])
    path: list[int] = []
    while rank != owner and rank in brought_by:
        link, rank = brought_by[rank]
        path.append(link)
    return tuple(reversed(path))


def shortest_path_routing(problem: Chunked) -> Routing:
    """A routing without a solver: shortest paths, for when there is no time for more."""
    return trees_from_links(problem, shortest_path_links(problem), problem.earliest_s)


def trees_from_links(problem: Chunked, sent: Mask, start_s: Floats) -> Routing:
    """One tree a chunk from the links that it is sent on.

    `sent[c, l]`: bool, at most one link into each rank. `start_s[c, r]`: arrivals in any unit, to put parents first.
    """
    topology = problem.logical.topology
    chunk, link = np.nonzero(sent)
    order = np.lexsort((link, start_s[chunk, topology.link_target[link]], chunk))
    chunk, link = chunk[order], link[order]
    brought_by = {
        (c, r): k for k, (c, r) in enumerate(zip(chunk.tolist(), topology.link_target[link].tolist(), strict=True))
    }
    parent = [
        brought_by.get((c, s), -1) for c, s in zip(chunk.tolist(), topology.link_source[link].tolist(), strict=True)
    ]
    routing = Routing(chunk, link, np.array(parent, dtype=np.int64))
    return routing.part(routing.that_lead_to(problem.wanted[chunk, topology.link_target[link]]))


def shortest_path_links(problem: Chunked) -> Mask:
    """`sent[c, l]`: every chunk to every rank that it can reach along shortest paths, the less loaded of equal ones."""
    topology, groups_of = problem.logical.topology, groups_of_links(problem)
    load_s: dict[int, float] = defaultdict(float)
    sent = np.zeros(problem.usable.shape, dtype=np.bool_)
    for chunk in range(len(problem.owners)):
        links = np.flatnonzero(problem.usable[chunk])
        arrival_s = problem.earliest_s[chunk, topology.link_source[links]] + problem.duration_s[links]
        tight = links[arrival_s <= problem.earliest_s[chunk, topology.link_target[links]] * (1 + 1e-9)]
        best: dict[int, tuple[float, int]] = {}
        for link, target in zip(tight.tolist(), topology.link_target[tight].tolist(), strict=True):
            candidate = (max(load_s[group] for group in groups_of[link]), link)
            best[target] = min(best.get(target, candidate), candidate)
        for _, link in best.values():
            sent[chunk, link] = True
            for group in groups_of[link]:
                load_s[group] += float(problem.occupancy_s[link])
    return sent


def time_of(problem: Chunked, sent: Mask) -> float:
    """The larger of congestion and dilation of shortest-path trees, in seconds; what takes turns counts together."""
    congestion_s = max(
        float((sent[:, links] * problem.occupancy_s[links]).sum()) for links in exclusive_groups(problem)
    )
    time_s = max(congestion_s, float(problem.earliest_s[problem.wanted].max(initial=0.0)))
    if problem.logical.one_by_one:
        sums_s = np.zeros(problem.wanted.shape)
        chunk, link = np.nonzero(sent)
        np.add.at(sums_s, (chunk, problem.logical.topology.link_source[link]), problem.duration_s[link])
        time_s = max(time_s, float(sums_s.max()))
    return time_s


def exclusive_groups(problem: Chunked) -> list[Ids]:
    """The sets of links of which one at a time can be busy: each named resource, and each link that has none."""
    topology = problem.logical.topology
    users: dict[int, list[int]] = {}
    alone = []
    for number, link in enumerate(topology.links):
        for resource in link.resources:
            users.setdefault(resource, []).append(number)
        if not link.resources:
            alone.append([number])
    return [np.array(links, dtype=np.int64) for links in (*(users[resource] for resource in sorted(users)), *alone)]


def groups_of_links(problem: Chunked) -> list[list[int]]:
    """The numbers of the exclusive groups that each link is in."""
    groups_of: list[list[int]] = [[] for _ in range(problem.link_count)]
    for number, links in enumerate(exclusive_groups(problem)):
        for link in links.tolist():
            groups_of[link].append(number)
    return groups_of
