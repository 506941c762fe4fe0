"""What lies between the ranks: a wire, and blocks of unlike lengths carried over it along given hops.

A `Wire` is the one place that knows where the backend takes tensors from, so that all else stays on the device of the
gradients; and how long an emulated link takes.

Messages between two ranks go one after the other, in the order of the hops; those of different pairs and directions at
the same time, by a thread each. Lower ranks send to higher ones in one process group and the others in a second one: a
pair of gloo that sends and receives at once does both at half the rate.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gapless.torch.ddp.emulation import sleep_until
from gapless.torch.devices import own_gpu
from gapless.torch.library import rank_count, torch

__all__ = ["EmulatedLink", "Hop", "Relay", "Wire"]


_OF_THE_CPU = ("gloo", "mpi")
"""Backends that take tensors of the CPU."""


@dataclass(frozen=True)
class EmulatedLink:
    """Into and out of each rank: messages in one direction go one after the other."""

    bytes_per_s: float
    latency_s: float

    def time_s(self, size_bytes: float, messages: int = 1) -> float:
        """Of messages that have so many bytes together."""
        return self.latency_s * messages + size_bytes / self.bytes_per_s


class Wire:
    """Between the ranks of a group. `device`: where its backend takes tensors from. With an emulated `link`, what is
    sent is waited for until the link would have been through with it.
    """

    def __init__(self, group: torch.distributed.ProcessGroup | None = None, link: EmulatedLink | None = None) -> None:
        self.group, self._link = group, link
        is_of_cpu = torch.distributed.get_backend(group) in _OF_THE_CPU
        self.device = torch.device("cpu") if is_of_cpu else own_gpu()
        self._busy = threading.Lock()
        self._until_s = {"out": 0.0, "in": 0.0}

    def gathered(self, row: torch.Tensor) -> torch.Tensor:
        """What all ranks give, equally long, as rows on the wire's device."""
        row = row.to(self.device)
        rows = row.new_empty(rank_count(self.group), row.numel())
        torch.distributed.all_gather(list(rows), row, group=self.group)
        others = len(rows) - 1
        self.wait("in", others * row.numel() * row.element_size(), others)  # around a ring
        return rows

    def numbers(self, own: Sequence[int]) -> list[int]:
        """All ranks' numbers, of each as many, rank by rank."""
        found: list[int] = self.gathered(torch.tensor(own, device=self.device)).flatten().tolist()
        return found

    def words(self, count: int) -> torch.Tensor:
        """Room for so many words on the wire's device."""
        return torch.empty(count, dtype=torch.int32, device=self.device)

    def wait(self, direction: str, size_bytes: float, messages: int = 1) -> None:
        """Hold the link, `out` or `in`: messages that arrive are over when it is through, others may begin then."""
        if self._link is None:
            return
        took_s = self._link.time_s(size_bytes, messages)
        with self._busy:
            begin_s = max(time.monotonic(), self._until_s[direction])
            self._until_s[direction] = begin_s + took_s
        sleep_until(begin_s + took_s if direction == "in" else begin_s)


_AHEAD = 4
"""Messages between two ranks that are expected before they are sent."""


@dataclass(frozen=True)
class Hop:
    """A message of blocks, one after the other, from a rank that has them by then to another."""

    source: int
    target: int
    blocks: tuple[int, ...]


class Relay:
    """Carries blocks of words (int32); made and called by all ranks of a wire.

    `received_words`: by this rank, in all calls.
    """

    def __init__(self, wire: Wire) -> None:
        self.received_words, self._wire, group = 0, wire, wire.group
        self._rank, ranks = torch.distributed.get_rank(group), rank_count(group)
        self._peers = torch.distributed.get_process_group_ranks(group)
        is_part = ranks < rank_count()  # the others don't take part
        self._groups = [torch.distributed.new_group(self._peers, use_local_synchronization=is_part) for _ in range(2)]
        self._threads = ThreadPoolExecutor(max(2 * (ranks - 1), 1), thread_name_prefix="gapless-relay")

    def __call__(
        self, hops: Sequence[Hop], held: Mapping[int, torch.Tensor], lengths: Sequence[int],
        meanwhile: Callable[[Callable[[int], torch.Tensor]], None] = lambda block: None,
    ) -> dict[int, torch.Tensor]:  # fmt: skip
        """All blocks that this rank has in the end: those it held, and those that the hops bring, which are on the
        wire's device.

        `lengths`: in words, of every block, the same in all ranks. Blocks without words aren't sent, and needn't be
        held. `meanwhile`: what is done while blocks come; it is given what waits for a block. Raises what a message
        fails with.
        """
        empty = {block: self._wire.words(0) for block, length in enumerate(lengths) if not length}
        call = _Call({**held, **empty}, lengths, self._wire)
        queues = defaultdict(list)
        for hop in hops:
            full = tuple(block for block in hop.blocks if lengths[block])
            if full and self._rank in (hop.source, hop.target):
                queues[hop.source, hop.target].append(Hop(hop.source, hop.target, full))
        futures = [self._threads.submit(self._work, call, queue) for queue in queues.values()]
        try:
            meanwhile(call.block)
        except Exception as error:
            call.fail(error)
            raise
        for future in futures:
            future.exception()
        if call.error is not None:
            raise call.error
        self.received_words += call.received_words
        return call.held

    def _work(self, call: _Call, queue: Sequence[Hop]) -> None:
        """The messages from one rank to another; this one is either. A few are under way at once."""
        open_ = deque[tuple[Hop, torch.Tensor, torch.distributed.Work]]()
        try:
            for hop in queue:
                group, sends = self._groups[hop.source < hop.target], hop.source == self._rank
                message = call.message(hop) if sends else call.room(hop)
                if sends:
                    self._wire.wait("out", message.nbytes)
                start = torch.distributed.isend if sends else torch.distributed.irecv
                open_.append((hop, message, start(message, self._peers[hop.target if sends else hop.source], group)))
                if len(open_) > _AHEAD:
                    self._finish(call, *open_.popleft())
            while open_:
                self._finish(call, *open_.popleft())
        except Exception as error:  # the caller's thread raises it, the other threads end
            call.fail(error)

    def _finish(self, call: _Call, hop: Hop, message: torch.Tensor, work: torch.distributed.Work) -> None:
        """Wait for a message to have gone, or to be there."""
        work.wait()
        if hop.target == self._rank:
            self._wire.wait("in", message.nbytes)
            call.receive(hop, message)


class _Call:
    """The blocks that a rank holds while they are carried; threads share it under one lock."""

    def __init__(self, held: dict[int, torch.Tensor], lengths: Sequence[int], wire: Wire) -> None:
        self.held, self.received_words = held, 0
        self.error: Exception | None = None
        self._lengths, self._wire = lengths, wire
        self._news = threading.Condition()

    def message(self, hop: Hop) -> torch.Tensor:
        """What a hop sends, once all of it is there."""
        with self._news:
            self._news.wait_for(lambda: self.error is not None or all(block in self.held for block in hop.blocks))
            if self.error is not None:
                raise self.error
            parts = [self.held[block].to(self._wire.device) for block in hop.blocks]
        return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)

    def block(self, number: int) -> torch.Tensor:
        """A block, once it is there."""
        with self._news:
            self._news.wait_for(lambda: self.error is not None or number in self.held)
            if self.error is not None:
                raise self.error
            return self.held[number]

    def room(self, hop: Hop) -> torch.Tensor:
        """Memory for what a hop brings."""
        return self._wire.words(sum(self._lengths[block] for block in hop.blocks))

    def receive(self, hop: Hop, message: torch.Tensor) -> None:
        """What a hop has brought."""
        parts = message.split([self._lengths[block] for block in hop.blocks])
        with self._news:
            self.received_words += message.numel()
            self.held.update(zip(hop.blocks, parts, strict=True))
            self._news.notify_all()

    def fail(self, error: Exception) -> None:
        """Let all threads end; the first error is kept."""
        with self._news:
            self.error = self.error or error
            self._news.notify_all()
