"""The paper's search, Algorithm 1, as printed: a baseline with its node count.

It is exact for affine costs. Otherwise its second pruning can lose the optimum where h is flat below a threshold, its
first where h is superadditive; and it never scores the fusion of everything into one group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gapless.options import Deadline
from gapless.profiles.gradients.fusion import Costs, Fusion

__all__ = ["Searched", "search"]

_STEPS_BETWEEN_LOOKS = 2**16
"""How many gradients are looked at between two looks at the clock; each node looks at all of them at most."""

_MOST_KEPT = 2**22
"""Costs of groups that are kept."""


@dataclass(frozen=True)
class Searched:
    """The best fusion that was scored (None if none was), the nodes visited, and whether the search came to its end."""

    fusion: Fusion | None
    end_s: float
    nodes: int
    finished: bool


@dataclass
class _Frame:
    """One call of FindOptFusion(M, k): `compressed_s` is M.comp, `sent_s` the end of M's communication."""

    k: int
    compressed_s: float
    sent_s: float
    end: int
    i: int = 0
    best_s: float = math.inf
    best_rest: tuple[int, ...] = ()


def search(
    costs: Costs,
    deadline: Deadline,
    on_better: Callable[[float, Fusion], None] = lambda end_s, fusion: None,
    most_nodes: float = math.inf,
) -> Searched:
    """Run Algorithm 1 until it is finished, the deadline is over, or it has visited so many nodes. Line numbers are the
    paper's.

    `on_better` takes every better fusion, and when it ends.
    """
    run = _Run(costs, on_better, most_nodes)
    for k in range(1, costs.count + 1):  # lines 1-5
        compressed_s = run.ready_s[k] + run.h(0, k)
        if not run.find(_Frame(k, compressed_s, compressed_s + run.g(0, k), k), deadline):
            return Searched(run.fusion, run.best_s, run.nodes, finished=False)
    return Searched(run.fusion, run.best_s, run.nodes, finished=True)


class _Run:
    """The state of a search: costs as nested lists, for speed, and global_opt_fuse with its time."""

    def __init__(self, costs: Costs, on_better: Callable[[float, Fusion], None], most_nodes: float) -> None:
        self.most_nodes = most_nodes
        self.on_better = on_better
        self.count = costs.count
        self.ready_s = costs.ready_s.tolist()
        self.costs = costs
        self.fusion: Fusion | None = None
        self.best_s = math.inf
        self.nodes = 0
        self.nodes_between_looks = max(1, _STEPS_BETWEEN_LOOKS // costs.count)
        self._row = lru_cache(max(1, _MOST_KEPT // costs.count))(self._costs_from)

    def h(self, start: int, end: int) -> float:
        """Compression of gradients start..end - 1; 0 for none."""
        return self._row(start)[0][end - start]

    def g(self, start: int, end: int) -> float:
        """Their communication."""
        return self._row(start)[1][end - start]

    def _costs_from(self, start: int) -> tuple[list[float], list[float]]:
        """Compression and communication of the groups from `start` on, by length."""
        ends = np.arange(start, self.costs.count + 1)
        rows = np.stack([self.costs.modes[0].compress_s(start, ends), self.costs.modes[0].send_s(start, ends)])
        rows[:, 0] = 0.0
        compress_s, send_s = rows.tolist()
        return compress_s, send_s

    def find(self, root: _Frame, deadline: Deadline) -> bool:
        """FindOptFusion for M of one group, its recursion spelled out as a stack; False when it was ended."""
        stack = [root]
        self._enter(root)
        while stack:
            frame = stack[-1]
            child = self._next_child(frame)
            if child is not None:
                self._enter(child)
                stack.append(child)
                if self.nodes >= self.most_nodes or (self.nodes % self.nodes_between_looks == 0 and deadline.over):
                    return False
                continue
            stack.pop()  # line 40
            if stack:
                self._take(stack, frame)
        return True

    def _enter(self, frame: _Frame) -> None:
        """Lines 7-16: the rest as one group, and the first i worth trying."""
        self.nodes += 1
        k, count = frame.k, self.count
        if k == count:
            frame.best_s, frame.i = frame.sent_s, count
            return
        compressed_s = frame.compressed_s + self.ready_s[count] - self.ready_s[k] + self.h(k, count)
        frame.best_s = max(compressed_s, frame.sent_s) + self.g(k, count)
        frame.best_rest = (count,)
        delay_s, first = frame.sent_s - frame.compressed_s, k
        for i in range(k, count):
            if self.ready_s[i + 1] - self.ready_s[k] + self.h(k, i + 1) > delay_s:
                break
            first = i
        frame.i = first

    def _next_child(self, frame: _Frame) -> _Frame | None:
        """Lines 18-28: the next first group of the rest that the optimistic outcome doesn't rule out."""
        k, count, delay_s = frame.k, self.count, frame.sent_s - frame.compressed_s
        left_s = self.ready_s[count] - self.ready_s[k]
        while frame.i < count:
            end = frame.i + 1
            frame.i = end
            here_s = self.ready_s[end] - self.ready_s[k] + self.h(k, end)
            base_s = left_s + self.h(k, end) + self.h(end, count)
            cases_s = max(here_s, delay_s) + self.g(k, end) + self.g(end, count)
            if frame.compressed_s + max(base_s, cases_s) > self.best_s:
                continue
            compressed_s = frame.compressed_s + here_s
            return _Frame(end, compressed_s, max(compressed_s, frame.sent_s) + self.g(k, end), end)
        return None

    def _take(self, stack: list[_Frame], child: _Frame) -> None:
        """Lines 29-38: the child's best, behind the group that led to it, against the local and the global best."""
        frame = stack[-1]
        if child.best_s < frame.best_s:
            frame.best_s, frame.best_rest = child.best_s, (child.end, *child.best_rest)
        if child.best_s < self.best_s:
            self.best_s = child.best_s
            ends = [parent.end for parent in stack] + [child.end, *child.best_rest]
            self.fusion = Fusion.uniform(ends, self.costs.names[0])
            self.on_better(self.best_s, self.fusion)
