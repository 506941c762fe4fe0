"""The best possible makespan of a tiny collective, by trying every order of every transfer."""

from __future__ import annotations

from itertools import combinations

from gapless.encodings.taccl import Chunked


def best_makespan_s(problem: Chunked) -> float:
    """Exhaustive search over all schedules in which each rank gets each chunk once.

    Transfers are placed one after the other in any order, each as early as its link, sides and chunks allow: some order
    gives every best schedule. Where chunks may be grouped, every set of chunks is tried as one transfer.
    """
    return _Search(problem).run()


class _Search:
    def __init__(self, problem: Chunked) -> None:
        self.problem = problem
        self.topology = problem.logical.topology
        self.missing = {(c, r) for c, ranks in enumerate(problem.collective.destinations) for r in ranks}
        self.at = {(c, int(owner)): 0.0 for c, owner in enumerate(problem.owners)}
        self.free: dict[object, float] = {}
        self.best = float("inf")

    def run(self) -> float:
        self._place(0.0)
        return self.best

    def _place(self, makespan: float) -> None:
        if makespan >= self.best:
            return
        if not self.missing:
            self.best = makespan
            return
        for number, link in enumerate(self.topology.links):
            ready = [
                chunk
                for chunk in range(len(self.problem.owners))
                if (chunk, link.source) in self.at and (chunk, link.target) in self.missing
            ]
            largest = len(ready) if self.problem.may_group[number] else min(len(ready), 1)
            for size in range(1, largest + 1):
                for group in combinations(ready, size):
                    self._send(number, group, makespan)

    def _send(self, number: int, group: tuple[int, ...], makespan: float) -> None:
        link = self.topology.links[number]
        held: list[object] = [("link", number), *(("side", resource) for resource in link.resources)]
        start = max(*(self.at[chunk, link.source] for chunk in group), *(self.free.get(key, 0.0) for key in held))
        end = start + link.duration_s(self.problem.chunk_bytes * len(group))
        before = {key: self.free.get(key, 0.0) for key in held}
        for key in held:
            self.free[key] = end
        for chunk in group:
            self.at[chunk, link.target] = end
            self.missing.discard((chunk, link.target))
        self._place(max(makespan, end))
        self.free.update(before)
        for chunk in group:
            del self.at[chunk, link.target]
            self.missing.add((chunk, link.target))
