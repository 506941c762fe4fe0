"""Trees of an earlier plan, mended: what hung on a link that is gone grows on again where little is sent.

A chunk keeps its tree as far as it hangs together with its root. Each rank that is cut off takes the cheapest path from
any rank that has the chunk: what each link adds to the load of its clocks, to a high power, and its time, the more the
longer paths are beside loads. What hung on that rank comes along. Then the busiest clock is relieved: one branch after
the other through it is cut and grows anew, as long as loads become more even.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.paths import groups_of_links
from gapless.encodings.taccl.ordering.sends import Routing

__all__ = ["Load", "Trees"]

_POWER = 6.0
"""Of the load, unless another is said: the higher, the more a busy clock is avoided."""
_TIME_SHARE = 1e-3
"""Of a path's time, which decides where loads are equal."""


class Load:
    """Seconds for which each clock is taken, of all phases together; what a link more costs follows from it.

    `power`: of the load in prices.
    """

    def __init__(self, problem: Chunked, power: float = _POWER) -> None:
        self.power = power
        groups = groups_of_links(problem)
        most, count = max(map(len, groups)), 1 + max(max(each) for each in groups)
        self.groups = groups
        self.held = np.array([[*each, *[count] * (most - len(each))] for each in groups], dtype=np.int64)
        self.occupancy_s, self.duration_s = problem.occupancy_s, problem.duration_s
        self.load_s = np.zeros(count + 1)
        self.longest_s = float(problem.earliest_s[np.isfinite(problem.earliest_s)].max(initial=0.0))

    @classmethod
    def by_link(cls, problem: Chunked, occupancy_s: Floats) -> Load:
        """Where each link is a clock of its own, which a chunk takes for `occupancy_s[l]`."""
        load, links = cls(problem), len(occupancy_s)
        load.groups, load.held = [[link] for link in range(links)], np.arange(links)[:, None]
        load.occupancy_s, load.load_s = occupancy_s, np.zeros(links + 1)
        return load

    def add(self, link: int, sign: float = 1.0) -> None:
        """A chunk more, or less, over a link."""
        self.load_s[self.groups[link]] += sign * float(self.occupancy_s[link])

    def add_all(self, links: list[int]) -> None:
        """A chunk more over each of some links, as often as they are named."""
        often = np.bincount(np.array(links, dtype=np.int64), minlength=len(self.groups))
        np.add.at(self.load_s, self.held, (often * self.occupancy_s)[:, None])
        self.load_s[-1] = 0.0

    @property
    def evenness(self) -> tuple[float, float]:
        """The load of the busiest clock, and of all to a high power, in units of the busiest."""
        top_s = float(self.load_s[:-1].max(initial=0.0)) or 1.0
        return top_s, float(((self.load_s[:-1] / top_s) ** _POWER).sum())

    @property
    def time_share(self) -> float:
        """What a second of a path counts for beside a second of load."""
        top_s = float(self.load_s[:-1].max(initial=0.0))
        return 1.0 if top_s <= 0 else min(1.0, max(_TIME_SHARE, (self.longest_s / top_s) ** 2))

    def prices(self) -> list[float]:
        """By link: what one more chunk costs."""
        top_s = float(self.load_s[:-1].max(initial=0.0)) or 1.0
        heat = ((self.load_s[self.held] + self.occupancy_s[:, None]) / top_s) ** self.power
        heat[self.held == len(self.load_s) - 1] = 0.0
        prices: list[float] = (self.occupancy_s * heat.sum(axis=1) + self.time_share * self.duration_s).tolist()
        return prices


class Trees:
    """The trees of a phase, in the direction in which it spreads.

    `into[c][r]`: the link that brings chunk c to rank r.

    `roots[c]`, `wanted[c]`: where it starts, and the ranks that it must reach.
    """

    def __init__(
        self, phase: Chunked, roots: list[int], wanted: list[set[int]], into: list[dict[int, int]], load: Load
    ) -> None:  # fmt: skip
        topology = phase.logical.topology
        self.source, self.target = topology.link_source.tolist(), topology.link_target.tolist()
        self.links_of: list[list[int]] = [[] for _ in range(topology.device_count)]
        for link, source in enumerate(self.source):
            self.links_of[source].append(link)
        self.duration_s, self.load = phase.duration_s.tolist(), load
        self.allowed = None if phase.is_free else phase.usable
        self.roots, self.wanted, self.into = roots, wanted, into
        load.add_all([link for tree in into for link in tree.values()])

    @classmethod
    def of(cls, phase: Chunked, load: Load, into: list[dict[int, int]] | None = None) -> Trees:
        """From the owners of its chunks to all that want them; none is grown where they aren't given."""
        owners = phase.owners.tolist()
        wanted = [{*ranks} - {owner} for ranks, owner in zip(phase.collective.destinations, owners, strict=True)]
        return cls(phase, owners, wanted, into or [{} for _ in owners], load)

    def mend(self, chunk: int) -> bool:
        """Whether every rank is reached, once what was cut off hangs on the tree again."""
        if self._is_whole(chunk):
            return True
        tree, arrival_s = self.into[chunk], self._reached(chunk)
        missing = self.wanted[chunk] - arrival_s.keys()
        while missing:
            path = self._path(chunk, arrival_s, missing)
            if not path:
                return False
            for link in path:
                self._replace(tree, self.target[link], link)
            arrival_s = self._reached(chunk)
            missing = self.wanted[chunk] - arrival_s.keys()
        self._prune(chunk, arrival_s)
        return True

    def _is_whole(self, chunk: int) -> bool:
        """Whether exactly the wanted ranks are reached; their links are those of a plan, so that none go in circles."""
        tree = self.into[chunk]
        if tree.keys() != self.wanted[chunk]:
            return False
        return all(self.source[link] in tree or self.source[link] == self.roots[chunk] for link in tree.values())

    def relieve(self, looks: int, enough_s: float) -> int:
        """Cut branches through the busiest clock and let them grow anew, while that helps; the looks that are left.

        `enough_s`: how little the load of the busiest clock must be to leave it at that.
        """
        while looks > 0:
            before = self.load.evenness
            if before[0] <= enough_s:
                break
            busiest = int(self.load.load_s[:-1].argmax())
            improved = False
            for chunk, rank, link in self._through(busiest):
                looks -= 1
                known, kept_s = dict(self.into[chunk]), self.load.load_s.copy()
                self._replace(self.into[chunk], rank, None)
                after = self.load.evenness if self.mend(chunk) else (np.inf, np.inf)
                if self.into[chunk].get(rank) == link or not _is_better(after, before):
                    self.into[chunk], self.load.load_s = known, kept_s
                else:
                    improved = True
                    break
                if looks <= 0:
                    break
            if not improved:
                break
        return looks

    def grow_anew(self, chunk: int) -> bool:
        """Whether every rank is reached by a tree that is grown from nothing."""
        for rank in list(self.into[chunk]):
            self._replace(self.into[chunk], rank, None)
        return self.mend(chunk)

    def routing(self) -> Routing:
        """All trees, parents before children."""
        chunks, links, parents = list[int](), list[int](), list[int]()
        for chunk, tree in enumerate(self.into):
            row_of = {self.roots[chunk]: -1}
            for rank in self._in_order(chunk):
                parents.append(row_of[self.source[tree[rank]]])
                row_of[rank] = len(links)
                chunks.append(chunk)
                links.append(tree[rank])
        return Routing(*(np.array(column, dtype=np.int64) for column in (chunks, links, parents)))

    def _through(self, clock: int) -> Iterator[tuple[int, int, int]]:
        """The branches that hold a clock: chunk, the rank that they lead to, link."""
        holds = {link for link, groups in enumerate(self.load.groups) if clock in groups}
        for chunk, tree in enumerate(self.into):
            for rank, link in list(tree.items()):
                if link in holds and tree.get(rank) == link:
                    yield chunk, rank, link

    def _replace(self, tree: dict[int, int], rank: int, link: int | None) -> None:
        old = tree.pop(rank, None)
        if old is not None:
            self.load.add(old, -1.0)
        if link is not None:
            tree[rank] = link
            self.load.add(link)

    def _in_order(self, chunk: int) -> Iterator[int]:
        """The ranks that hang on the root, parents first."""
        children: dict[int, list[int]] = {}
        for rank, link in self.into[chunk].items():
            children.setdefault(self.source[link], []).append(rank)
        waiting = [self.roots[chunk]]
        for at in waiting:
            for rank in children.get(at, ()):
                waiting.append(rank)
                yield rank

    def _reached(self, chunk: int) -> dict[int, float]:
        """When a chunk alone is at each rank that hangs on the root, seconds."""
        tree, arrival_s = self.into[chunk], {self.roots[chunk]: 0.0}
        for rank in self._in_order(chunk):
            link = tree[rank]
            arrival_s[rank] = arrival_s[self.source[link]] + self.duration_s[link]
        return arrival_s

    def _prune(self, chunk: int, arrival_s: dict[int, float]) -> None:
        """Leave out what leads nowhere wanted."""
        tree, wanted = self.into[chunk], self.wanted[chunk]
        useful = {rank for rank in wanted if rank in arrival_s}
        for rank in sorted(useful):
            while rank in tree and (rank := self.source[tree[rank]]) not in useful:
                useful.add(rank)
        for rank in [each for each in tree if each not in useful]:
            self._replace(tree, rank, None)

    def _path(self, chunk: int, arrival_s: dict[int, float], missing: set[int]) -> list[int]:
        """The links of the cheapest path from a rank that is reached to one that is missing; none if there is none."""
        price, share = self.load.prices(), self.load.time_share
        cost = {rank: share * at_s for rank, at_s in arrival_s.items()}
        brought_by: dict[int, int] = {}
        heap = [(so_far, rank) for rank, so_far in cost.items()]
        heapq.heapify(heap)
        may_go = None if self.allowed is None else self.allowed[chunk]
        end, done = -1, set[int]()
        while heap:
            so_far, rank = heapq.heappop(heap)
            if rank in missing:
                end = rank
                break
            if rank in done:
                continue
            done.add(rank)
            for link in self.links_of[rank]:
                to, through = self.target[link], so_far + price[link]
                if to not in arrival_s and through < cost.get(to, np.inf) and (may_go is None or may_go[link]):
                    cost[to], brought_by[to] = through, link
                    heapq.heappush(heap, (through, to))
        path = list[int]()
        while end in brought_by:
            path.append(brought_by[end])
            end = self.source[brought_by[end]]
        return path[::-1]


def _is_better(after: tuple[float, float], before: tuple[float, float]) -> bool:
    """Whether loads are more even: in units of the same busiest clock."""
    scale = (after[0] / before[0]) ** _POWER
    return bool(after[1] * scale < before[1] * (1 - 1e-6))
