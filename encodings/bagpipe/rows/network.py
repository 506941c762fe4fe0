"""Networks between processes: planned all-to-alls and sums, which take what they take, or what emulated links would.

On an emulated network everything is really sent, over gloo. Each message also says when its sender began, and when it
was through with all it sent; so who gets it knows when it would be there:

- a process sends at the rate of its link, and gets at that rate; a message pays one latency;
- a sum of all goes around a ring: 2 (p - 1) messages of a p-th each, at the share of a link that an all-reduce reaches.

Instants are those of the emulation. A thread sleeps until the instant at which it would be through, so that the clock
on the wall shows the same, and what the machine itself takes beyond it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.torch.ddp.emulation import sleep_until
from gapless.torch.embeddings.sharding import Group
from gapless.torch.library import Tensor, torch

__all__ = ["Emulation", "Network"]

_STAMPS = 2
"""Instants that go with a message: when its sender begins, and when it has sent everything."""


@dataclass
class Emulation:
    """The links of a cluster, `dilation` times as slow, and its passes. `sleeps`: whether anyone waits for an instant.

    `late_s`: how long after its instant a message was through at most, on the machine's clock.
    """

    cluster: Cluster
    dilation: float
    sleeps: bool
    late_s: float = 0.0

    def rate(self, is_server_alone: bool) -> float:
        """Bytes per second of a process's link."""
        cluster = self.cluster
        return (cluster.server_bytes_per_s if is_server_alone else cluster.trainer_bytes_per_s) / self.dilation

    @property
    def latency_s(self) -> float:
        """Of a message."""
        return self.cluster.latency_s * self.dilation

    def all_reduce_s(self, size_bytes: float) -> float:
        """Around the ring."""
        return float(self.cluster.all_reduce_s(size_bytes)) * self.dilation

    def reach(self, at_s: float, is_message: bool = True) -> None:
        """Wait for an instant."""
        if self.sleeps:
            if is_message:
                self.late_s = max(self.late_s, time.monotonic() - at_s)
            sleep_until(at_s)


class Network:
    """What processes `0..ranks - 1` exchange in one group, seen from one of them.

    `rate`: bytes per second of this process's link, where it is emulated.
    """

    def __init__(self, group: Group, rank: int, ranks: int, emulation: Emulation | None, rate: float = 0.0) -> None:
        self._group, self._rank, self._ranks = group, rank, ranks
        self._emulation, self._rate = emulation, rate

    def exchange(self, values: Tensor, targets: Ints, sources: Ints, begin_s: float) -> tuple[Tensor, float]:
        """Rows in the order of the processes that they go to, and those that come, and when all is through.

        `targets`, `sources`: of each row, ascending.
        """
        sent, got = (np.bincount(each, minlength=self._ranks) for each in (targets, sources))
        if self._emulation is None:
            return self._all_to_all(values.contiguous(), sent, got), time.monotonic()
        return self._emulated(self._emulation, values, sent, got, begin_s)

    def sums(self, values: Tensor, charged_bytes: float, begin_s: float) -> tuple[Tensor, float]:
        """The sum of all processes' values (n,), in the order of ranks; of so many bytes in the emulation."""
        size = -(-len(values) // self._ranks)
        padded = torch.cat([values, values.new_zeros(size * self._ranks - len(values))]).reshape(self._ranks, size)
        stamp = _stamped(torch.tensor([begin_s, begin_s], dtype=torch.float64), 1).reshape(1, -1)
        one = np.ones(self._ranks, dtype=np.int64)
        parts = self._all_to_all(torch.cat([stamp.expand(self._ranks, -1), padded], dim=1), one, one)
        total = padded.new_zeros(size)
        for part in parts[:, stamp.shape[1] :]:
            total += part
        whole = padded.new_empty(self._ranks, size)
        torch.distributed.all_gather(list(whole.unbind()), total, group=self._group)
        if self._emulation is None:
            return whole.reshape(-1)[: len(values)], time.monotonic()
        begins = parts[:, : stamp.shape[1]].clone(memory_format=torch.contiguous_format).view(torch.float64)[:, 0]
        end_s = float(begins.max()) + self._emulation.all_reduce_s(charged_bytes)
        self._emulation.reach(end_s)
        return whole.reshape(-1)[: len(values)], end_s

    def _emulated(
        self, emulation: Emulation, values: Tensor, sent: Ints, got: Ints, begin_s: float
    ) -> tuple[Tensor, float]:  # fmt: skip
        """With stamps before each message to or from another process."""
        row_bytes = values.shape[1] * values.element_size()
        others = np.arange(self._ranks) != self._rank
        sent_bytes, got_bytes = (int(each[others].sum()) * row_bytes for each in (sent, got))
        sent_s = begin_s + (emulation.latency_s + sent_bytes / self._rate if sent_bytes else 0.0)
        stamp = _stamped(torch.tensor([begin_s, sent_s], dtype=torch.float64), values.shape[1])
        stamped_to, stamped_from = ((each > 0) & others for each in (sent, got))
        pieces = []
        for is_stamped, part in zip(stamped_to.tolist(), values.split(sent.tolist()), strict=True):
            pieces += [stamp, part] if is_stamped else [part]
        arrived = self._all_to_all(torch.cat(pieces), sent + len(stamp) * stamped_to, got + len(stamp) * stamped_from)
        begins, ends, parts = list[float](), [sent_s], list[Tensor]()
        whole = (got + len(stamp) * stamped_from).tolist()
        for is_stamped, part in zip(stamped_from.tolist(), arrived.split(whole), strict=True):
            if is_stamped:
                instants = part[: len(stamp)].reshape(-1)[: 2 * _STAMPS].clone().view(torch.float64)
                begins.append(float(instants[0]))
                ends.append(float(instants[1]))
            parts.append(part[len(stamp) * is_stamped :])
        if begins:
            ends.append(max(begin_s, *begins) + emulation.latency_s + got_bytes / self._rate)
        emulation.reach(max(ends))
        return torch.cat(parts), max(ends)

    def _all_to_all(self, values: Tensor, sent: Ints, got: Ints) -> Tensor:
        arrived = values.new_empty((int(got.sum()), values.shape[1]))
        torch.distributed.all_to_all_single(
            arrived, values.contiguous(), got.tolist(), sent.tolist(), group=self._group
        )
        return arrived


def _stamped(instants: Tensor, width: int) -> Tensor:
    """Instants as rows of so many fp32 values, bit by bit."""
    words = instants.view(torch.float32)
    rows = -(-len(words) // width)
    return torch.cat([words, words.new_zeros(rows * width - len(words))]).reshape(rows, width)
