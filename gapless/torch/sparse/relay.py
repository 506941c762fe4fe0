"""Blocks of unlike lengths carried between ranks along given hops, over gloo.

Messages between two ranks go one after the other, in the order of the hops; those of different pairs and directions at
the same time, by a thread each. Lower ranks send to higher ones in one process group and the others in a second one: a
pair of gloo that sends and receives at once does both at half the rate.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gapless.torch.library import rank_count, torch

__all__ = ["Hop", "Relay"]


_AHEAD = 4
"""Messages between two ranks that are expected before they are sent."""


@dataclass(frozen=True)
class Hop:
    """A message of blocks, one after the other, from a rank that has them by then to another."""

    source: int
    target: int
    blocks: tuple[int, ...]


class Relay:
    """Carries blocks of words (int32); made and called by all ranks of a group, by default of the default one.

    `received_words`: by this rank, in all calls.
    """

    def __init__(self, group: torch.distributed.ProcessGroup | None = None) -> None:
        self.received_words = 0
        self._rank, ranks = torch.distributed.get_rank(group), rank_count(group)
        self._peers = torch.distributed.get_process_group_ranks(group)
        is_part = ranks < rank_count()  # the others don't take part
        self._groups = [torch.distributed.new_group(self._peers, use_local_synchronization=is_part) for _ in range(2)]
        self._threads = ThreadPoolExecutor(max(2 * (ranks - 1), 1), thread_name_prefix="gapless-relay")

    def __call__(
        self, hops: Sequence[Hop], held: Mapping[int, torch.Tensor], lengths: Sequence[int]
    ) -> dict[int, torch.Tensor]:
        """All blocks that this rank has in the end: those it held, and those that the hops bring.

        `lengths`: in words, of every block, the same in all ranks. Blocks without words aren't sent, and needn't be
        held. Raises what a message fails with.
        """
        empty = {block: torch.empty(0, dtype=torch.int32) for block, length in enumerate(lengths) if not length}
        call = _Call({**held, **empty}, lengths)
        queues = defaultdict(list)
        for hop in hops:
            full = tuple(block for block in hop.blocks if lengths[block])
            if full and self._rank in (hop.source, hop.target):
                queues[hop.source, hop.target].append(Hop(hop.source, hop.target, full))
        for future in [self._threads.submit(self._work, call, queue) for queue in queues.values()]:
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
            call.receive(hop, message)


class _Call:
    """The blocks that a rank holds while they are carried; threads share it under one lock."""

    def __init__(self, held: dict[int, torch.Tensor], lengths: Sequence[int]) -> None:
        self.held, self.received_words = held, 0
        self.error: Exception | None = None
        self._lengths = lengths
        self._news = threading.Condition()

    def message(self, hop: Hop) -> torch.Tensor:
        """What a hop sends, once all of it is there."""
        with self._news:
            self._news.wait_for(lambda: self.error is not None or all(block in self.held for block in hop.blocks))
            if self.error is not None:
                raise self.error
            parts = [self.held[block] for block in hop.blocks]
        return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)

    def room(self, hop: Hop) -> torch.Tensor:
        """Memory for what a hop brings."""
        return torch.empty(sum(self._lengths[block] for block in hop.blocks), dtype=torch.int32)

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
