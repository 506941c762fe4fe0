"""Flows between the ranks of a process group: rank 0 says which, every rank does its part, senders' times count.

Messages of lower to higher ranks go through one process group, the others through a second one: a pair of gloo that
sends and receives at once does both at half the rate. What acknowledges them goes through two more, and what is to be
done, and the times, through a fifth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from gapless.topologies.measured.experiments import Flow
from gapless.torch.devices import device_of
from gapless.torch.library import rank_count, torch

__all__ = ["Transfers"]

_FIELDS = 6
_ACKNOWLEDGED = 1
"""Bytes of what says that something has arrived."""


class Transfers:
    """A `Prober` on rank 0; the other ranks `serve` it until it is `done`. Made by all ranks at once.

    `device`: where what is sent lies. `wait_s`: the longest that a rank waits for a message.
    """

    def __init__(self, device: torch.device, wait_s: float) -> None:
        self.rank_count = rank_count()
        self._rank = torch.distributed.get_rank()
        self._device = device
        ranks = list(range(self.rank_count))
        wait = timedelta(seconds=wait_s)  # without one a group waits for half an hour, whatever the first one does
        self._groups = [torch.distributed.new_group(ranks, wait) for _ in range(4)]
        self._control = torch.distributed.new_group(ranks, wait, "gloo")
        self._most = 2 * self.rank_count
        self._threads = ThreadPoolExecutor(2 * self._most, thread_name_prefix="gapless-flow")

    def time(self, flows: Sequence[Flow]) -> NDArray[np.float64]:
        """Seconds that each flow takes, all begun together once all are warm: float, shape (flows,)."""
        if len(flows) > self._most:
            raise ValueError(f"flows: must be at most {self._most}, got {len(flows)}")
        table = torch.zeros(1 + self._most * _FIELDS, dtype=torch.int64)
        numbers = [
            number
            for flow in flows
            for number in (
                flow.source, flow.target, flow.chunks, flow.size_bytes, int(flow.at_once), flow.warm_bytes,
            )
        ]  # fmt: skip
        table[: 1 + len(numbers)] = torch.tensor([len(flows), *numbers])
        torch.distributed.broadcast(table, 0, self._control)
        return self._carry_out(flows)

    def done(self) -> None:
        """Let the other ranks leave `serve`."""
        torch.distributed.broadcast(torch.zeros(1 + self._most * _FIELDS, dtype=torch.int64), 0, self._control)

    def serve(self) -> None:
        """Take part in flows until rank 0 is done."""
        table = torch.zeros(1 + self._most * _FIELDS, dtype=torch.int64)
        while True:
            torch.distributed.broadcast(table, 0, self._control)
            count, *numbers = table.tolist()
            if not count:
                return
            rows = [numbers[k : k + _FIELDS] for k in range(0, count * _FIELDS, _FIELDS)]
            self._carry_out([Flow(a, b, n, size, bool(once), warm) for a, b, n, size, once, warm in rows])

    def _carry_out(self, flows: Sequence[Flow]) -> NDArray[np.float64]:
        times_s = torch.zeros(len(flows), dtype=torch.float64)
        ends = [_End(self, flow, self._rank) for flow in flows if self._rank in (flow.source, flow.target)]
        torch.distributed.barrier(self._control)
        taken = self._at_once([end.carry_out for end in ends])
        numbers = [number for number, flow in enumerate(flows) if self._rank in (flow.source, flow.target)]
        for number, taken_s in zip(numbers, taken, strict=True):
            if flows[number].source == self._rank:
                times_s[number] = taken_s
        torch.distributed.all_reduce(times_s, group=self._control)
        return np.array(times_s.tolist())

    def _at_once(self, tasks: Sequence[Callable[[], float]]) -> list[float]:
        """What each returns, each in a thread of its own where there are several."""
        if len(tasks) == 1:
            return [tasks[0]()]
        return [future.result() for future in [self._threads.submit(task) for task in tasks]]

    def groups(self, flow: Flow) -> tuple[torch.distributed.ProcessGroup, torch.distributed.ProcessGroup]:
        """The process groups of a flow, and of what acknowledges it."""
        is_up = flow.source < flow.target
        return self._groups[is_up], self._groups[2 + is_up]

    def buffer(self, size_bytes: int) -> torch.Tensor:
        """Memory that has been written to, for a message."""
        return torch.ones(size_bytes, dtype=torch.uint8, device=self._device)

    def settle(self) -> None:
        """Wait until the device has done what it was given."""
        device_of(self._device).synchronize()


class _End:
    """One rank's part in a flow, as sender or receiver; memory for all of it is there from the start."""

    def __init__(self, transfers: Transfers, flow: Flow, rank: int) -> None:
        self._transfers, self._flow = transfers, flow
        self._sends = flow.source == rank
        self._there, self._back = transfers.groups(flow)
        self._acknowledged = transfers.buffer(_ACKNOWLEDGED)
        chunks = flow.chunks if flow.at_once and not self._sends else 1  # what is sent may be the same memory
        self._chunks = [transfers.buffer(max(flow.size_bytes, 1)) for _ in range(chunks)] * (flow.chunks // chunks)
        self._warm = transfers.buffer(flow.warm_bytes) if flow.warm_bytes else None

    def carry_out(self) -> float:
        """Seconds until all was acknowledged, from when the warm part was, or from the start."""
        begin_s = time.perf_counter()
        warm = [] if self._warm is None else [self._warm]
        rounds = [self._chunks] if self._flow.at_once else [[chunk] for chunk in self._chunks]
        works = self._begin([*warm, *rounds[0]])
        if warm:
            self._acknowledge(works[:1])
            begin_s = time.perf_counter()
        self._acknowledge(works[len(warm) :])
        for chunks in rounds[1:]:
            self._acknowledge(self._begin(chunks))
        return time.perf_counter() - begin_s

    def _begin(self, chunks: Sequence[torch.Tensor]) -> list[torch.distributed.Work]:
        """Messages, one behind the other."""
        begin = torch.distributed.isend if self._sends else torch.distributed.irecv
        peer = self._flow.target if self._sends else self._flow.source
        works = (begin(chunk, peer, self._there) for chunk in chunks)
        return [work for work in works if work is not None]

    def _acknowledge(self, works: Sequence[torch.distributed.Work]) -> None:
        """Let the sender know that messages have arrived."""
        for work in works:
            work.wait()
        self._transfers.settle()
        if self._sends:
            torch.distributed.recv(self._acknowledged, self._flow.target, self._back)
            self._transfers.settle()
        else:
            torch.distributed.send(self._acknowledged, self._flow.source, self._back)
