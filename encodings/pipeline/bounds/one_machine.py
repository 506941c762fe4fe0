"""What a rank or a link needs alone: all that it does, one after the other, between heads and tails."""

from __future__ import annotations

import heapq
import math

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.bounds.activities import Activities

__all__ = ["in_two_s", "one_machine_s"]


def one_machine_s(activities: Activities) -> float:
    """Seconds of the machine that needs longest. Each may interrupt what it does: then Jackson's rule, what has the
    longest tail first, is best (Carlier, 1982). What has no head, or no tail, is left out.
    """
    hold_s = np.broadcast_to(activities.hold[:, None], activities.head.shape)
    tail_s = np.maximum(activities.rest - hold_s, 0.0)
    columns, there = (activities.head, hold_s, tail_s), np.isfinite(activities.head) & np.isfinite(activities.rest)
    return max((_preemptive_s(*(column[own][there[own]].tolist() for column in columns))
                for own in activities.machines), default=0.0)  # fmt: skip


def in_two_s(first_s: Floats, then_s: Floats) -> Floats:
    """Seconds of jobs that take one machine and then another, in the best order (Johnson, 1954); the first may
    interrupt them, which doesn't help. Shape (jobs, ...) each; found is that of one job."""
    longest_s = np.maximum(first_s, then_s).max(axis=0, initial=0.0)
    order = np.argsort(np.where(first_s <= then_s, first_s - longest_s, longest_s - then_s), axis=0, kind="stable")
    first_s, then_s = (np.take_along_axis(each, order, axis=0) for each in (first_s, then_s))
    left_s = np.cumsum(then_s[::-1], axis=0)[::-1]
    return np.asarray((np.cumsum(first_s, axis=0) + left_s).max(axis=0, initial=0.0))


def _preemptive_s(heads: list[float], left_s: list[float], tails: list[float]) -> float:
    by_head = sorted(range(len(heads)), key=heads.__getitem__)
    now_s, end_s, at = 0.0, 0.0, 0
    ready: list[tuple[float, int]] = []
    while at < len(by_head) or ready:
        if not ready:
            now_s = max(now_s, heads[by_head[at]])
        while at < len(by_head) and heads[by_head[at]] <= now_s:
            heapq.heappush(ready, (-tails[by_head[at]], by_head[at]))
            at += 1
        op, until_s = ready[0][1], heads[by_head[at]] if at < len(by_head) else math.inf
        if left_s[op] > until_s - now_s:
            left_s[op] -= until_s - now_s
            now_s = until_s
            continue
        now_s += left_s[op]
        heapq.heappop(ready)
        end_s = max(end_s, now_s + tails[op])
    return end_s
