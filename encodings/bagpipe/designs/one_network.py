"""The pipeline on one network: the servers' transfers and the trainers' synchronisation take turns on it.

As `pipeline.py`, but for the network. What has begun is carried to its end. After the backward pass of batch x come its
critical synchronisation, its private rows' write-back, its background synchronisation and its late write-back.
Prefetches fill the time until the next backward pass ends, in the order of batches: one that has been asked for begins
as soon as the network is free, and may so hold up the synchronisation behind it. A batch about to be trained has
its own prefetch carried before all else.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

__all__ = ["earliest_on_one_network"]


def earliest_on_one_network(
    columns: list[list[float]], prefetch_after: list[int | None], fetch_latency_s: float
) -> NDArray[np.float64]:
    """The start of every activity, float64, (activities, batches), in the order of `pipeline.ACTIVITIES`.

    `columns`: how long each takes, by batch. `prefetch_after`: the batch whose write-back a prefetch waits for, -1 for
    none; None where nothing is fetched.
    """
    network = _Network(columns[0], prefetch_after, fetch_latency_s)
    starts: list[tuple[float, ...]] = []
    synced = 0.0
    for number, (_, peer_s, forward_s, backward_s, now_s, later_s, early_s, late_s) in enumerate(
        zip(*columns, strict=True)
    ):
        network.prefetch_upto(number)
        peer = network.begin(max(network.fetched[number], synced), peer_s)
        forward = peer + peer_s
        backward = forward + forward_s
        trained = backward + backward_s
        network.prefetch_before(trained)
        now = network.begin(trained, now_s)
        early = network.begin(trained, early_s)
        synced = now + now_s
        later = network.begin(synced, later_s)
        late = network.begin(later + later_s, late_s)
        network.written(number, max(early + early_s, late + late_s))
        starts.append((network.fetch_start[number], peer, forward, backward, now, later, early, late))
    return np.array(starts).T


class _Network:
    """When it is free, and which prefetches it has carried, one after the other in the order of batches."""

    def __init__(self, prefetch_s: list[float], after: list[int | None], latency_s: float) -> None:
        self._prefetch_s, self._after, self._latency_s = prefetch_s, after, latency_s
        self._free_s = 0.0
        self._written: list[float] = []
        self._waiting = deque(range(len(prefetch_s)))
        self.fetch_start: list[float] = []
        self.fetched: list[float] = []

    def begin(self, ready_s: float, duration_s: float) -> float:
        """When something that is ready begins; what takes no time needs no network."""
        if not duration_s:
            return ready_s
        begin_s = max(ready_s, self._free_s)
        self._free_s = begin_s + duration_s
        return begin_s

    def written(self, number: int, end_s: float) -> None:
        """All updates of a batch are at the servers."""
        assert number == len(self._written)
        self._written.append(end_s)

    def prefetch_upto(self, number: int) -> None:
        """Carry the prefetches of batches up to this one."""
        while self._waiting and self._waiting[0] <= number:
            self._carry()

    def prefetch_before(self, time_s: float) -> None:
        """Carry the prefetches that can begin before that time."""
        while self._waiting and (asked_s := self._asked_s(self._waiting[0])) is not None:
            if max(asked_s, self._free_s) >= time_s:
                return
            self._carry()

    def _asked_s(self, number: int) -> float | None:
        """When the first rows of a batch may come; None while nobody knows."""
        after = self._after[number]
        if after is None or after < 0:
            return 0.0 if after is None else self._latency_s
        return self._written[after] + self._latency_s if after < len(self._written) else None

    def _carry(self) -> None:
        number = self._waiting.popleft()
        asked_s = self._asked_s(number)
        assert asked_s is not None, "a batch is prefetched after an earlier one"
        start_s = self.begin(max(asked_s, self.fetched[-1] if self.fetched else 0.0), self._prefetch_s[number])
        self.fetch_start.append(start_s)
        self.fetched.append(start_s + self._prefetch_s[number])
