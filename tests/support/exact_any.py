"""Whether a tiny collective of any kind, sums as well, has a shorter schedule than a given one: by trying them all."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

from gapless.encodings.taccl import Chunked

__all__ = ["shortest_below_s"]


def shortest_below_s(problem: Chunked, limit_s: float) -> float:
    """The least makespan below `limit_s`, or `limit_s` where there is none.

    Transfers are placed in order of their starts, each as early as its link, sides and copies allow; one that tells its
    target nothing new is left out. A transfer adds disjoint parts, or replaces what its target holds by more.
    """
    search = _Search(problem, limit_s)
    search.place(0.0, 0.0)
    return search.best_s


@dataclass
class _Search:
    problem: Chunked
    best_s: float
    held: dict[tuple[int, int], int] = field(default_factory=dict)
    written_s: dict[tuple[int, int], float] = field(default_factory=dict)
    used_s: dict[tuple[int, int], float] = field(default_factory=dict)
    free_s: dict[object, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        collective = self.problem.collective
        for rank, buffer in enumerate(collective.inputs):
            for chunk in buffer:
                self.held[chunk, rank] = 1 << rank
        whole = [sum(1 << rank for rank in ranks) for ranks in collective.contributors]
        self.goal = [(chunk, rank, whole[chunk]) for rank, its in enumerate(collective.outputs) for chunk in its]
        links, size = self.problem.logical.topology.links, self.problem.chunk_bytes
        self.way_in_s = [
            min(link.duration_s(size) for link in links if link.target == rank) for rank in range(collective.rank_count)
        ]

    def place(self, makespan_s: float, last_s: float) -> None:
        if makespan_s >= self.best_s * (1 - 1e-12):
            return
        unmet = [rank for chunk, rank, whole in self.goal if self.held.get((chunk, rank), 0) != whole]
        if not unmet:
            self.best_s = makespan_s
            return
        if last_s + max(self.way_in_s[rank] for rank in unmet) >= self.best_s * (1 - 1e-12):
            return
        topology = self.problem.logical.topology
        for number, link in enumerate(topology.links):
            ready = [
                (chunk, *kind)
                for chunk in range(self.problem.collective.chunk_count)
                if (chunk, link.source) in self.held
                for kind in self._kinds(self.held[chunk, link.source], self.held.get((chunk, link.target), 0))
            ]
            largest = len(ready) if self.problem.may_group[number] else 1
            for size in range(1, largest + 1):
                for group in combinations(ready, size):
                    if len({chunk for chunk, _, _ in group}) == size and len({adds for _, adds, _ in group}) == 1:
                        self._send(number, group, makespan_s, last_s)

    @staticmethod
    def _kinds(sent: int, there: int) -> list[tuple[bool, int]]:
        """(adds, what the target holds then) for each way to use what is sent."""
        kinds = []
        if there and not sent & there:
            kinds.append((True, sent | there))
        if not there & ~sent and sent != there:
            kinds.append((False, sent))
        return kinds

    def _send(self, number: int, group: tuple[tuple[int, bool, int], ...], makespan_s: float, last_s: float) -> None:
        link = self.problem.logical.topology.links[number]
        lanes: list[object] = [("link", number), *(("side", resource) for resource in link.resources)]
        sources = [(chunk, link.source) for chunk, _, _ in group]
        targets = [(chunk, link.target) for chunk, _, _ in group]
        start_s = max(
            last_s,
            *(self.free_s.get(lane, 0.0) for lane in lanes),
            *(self.written_s.get(copy, 0.0) for copy in (*sources, *targets)),
            *(self.used_s.get(copy, 0.0) for copy in targets),
        )
        end_s = start_s + link.duration_s(self.problem.chunk_bytes * len(group))
        before = [dict(table) for table in (self.held, self.written_s, self.used_s, self.free_s)]
        self.free_s.update(dict.fromkeys(lanes, end_s))
        for copy in sources:
            self.used_s[copy] = max(end_s, self.used_s.get(copy, 0.0))
        for copy, (_, _, held) in zip(targets, group, strict=True):
            self.held[copy], self.written_s[copy] = held, end_s
        self.place(max(makespan_s, end_s), start_s)
        self.held, self.written_s, self.used_s, self.free_s = before  # type: ignore[assignment]
