"""What micro-batches keep on its way to the host of their rank and back, as a plan says, beside the rank's ops.

On a CPU there is no link to a host: its copies are made by threads, one each way at a time, and are over when they
would be at the link's speed. What has left gives its memory back to the machine until it returns. Needs the extra
`torch`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from gapless.torch.devices import device_of
from gapless.torch.emulated_copies import EmulatedQueue
from gapless.torch.library import Tensor, torch
from gapless.torch.pipeline.memory.kept import Tally
from gapless.torch.pipeline.stage import CompressedStage

__all__ = ["CopyRow", "Offload", "OffloadingStage", "WallClock", "op_name", "rows_on"]

CopyRow = tuple[str, str, str]
"""An op, the forwards whose copies out it waits for, and those whose copies back begin when the op before is over."""


class WallClock:
    """The machine's."""

    def now_s(self) -> float:
        """What it says."""
        return time.monotonic()

    def wait_until(self, instant_s: float) -> None:
        """Wait until it says that."""
        left_s = instant_s - self.now_s()
        if left_s > 0:
            time.sleep(left_s)


class Held(Protocol):
    """Who counts what a rank keeps."""

    def gone(self, forward: str, memory: Sequence[torch.UntypedStorage]) -> None:
        """What is kept of a micro-batch is elsewhere, and is about to let its memory go."""
        ...

    def returned(self, forward: str, memory: Sequence[torch.UntypedStorage]) -> None:
        """It has its memory again."""
        ...


@dataclass
class _Stash:
    """`here`: what is kept, or the room of it while it is away; `there`: as much on the host."""

    here: list[torch.UntypedStorage]
    there: list[Tensor]
    out: list[Any]
    back: list[Any] | None = None


def op_name(stage: int, kind: str, micro_batch: int) -> str:
    """As plans name it."""
    return f"{stage}{kind}{micro_batch}"


def rows_on(rows: Sequence[CopyRow], rank_of_stage: Sequence[int], rank: int) -> list[CopyRow]:
    """Those of a rank's ops."""
    return [row for row in rows if rank_of_stage[int(re.split("[FIWB]", row[0])[0])] == rank]


class Offload:
    """The copies of a rank, a step after the other.

    `rows`: of all its ops, in order. `beta_s_per_byte`: of each direction. `held`: is shown what leaves and returns.
    """

    def __init__(self, rows: Sequence[CopyRow], beta_s_per_byte: float, held: Held) -> None:
        self._held, self._clock = held, WallClock()
        self._out, self._in = (EmulatedQueue(self._clock, beta_s_per_byte) for _ in range(2))
        self._waits = ThreadPoolExecutor(1, thread_name_prefix="gapless-offload")
        self._rows = {op: (gone.split(), back.split()) for op, gone, back in rows}
        self._next = {op: after for (op, *_), (after, *_) in pairwise(rows)}
        self._leaving = [forward for gone, _ in self._rows.values() for forward in gone]
        self._hosts: dict[tuple[str, int, int], Tensor] = {}
        self.travels = frozenset(self._leaving)
        self.begin()

    def begin(self) -> None:
        """A step."""
        self._stashes: dict[str, _Stash] = {}
        self._made: dict[str, list[torch.UntypedStorage]] = {}
        self._started, self._copied_s, self._border = 0, 0.0, Future[None]()
        self._border.set_result(None)

    @contextmanager
    def op(self, name: str, forward: str) -> Iterator[float]:
        """Around an op of this rank, in the plan's order; when all copies are over that it waits for.

        `forward`: that of its micro-batch on its stage.
        """
        self._border.result()
        self._arrive(forward)
        yield self._copied_s
        after = self._next.get(name)
        gone, back = self._rows[after] if after is not None else ((), ())
        if gone or back:
            self._border = self._waits.submit(self._between, gone, back)

    def _arrive(self, forward: str) -> None:
        stash = self._stashes.get(forward)
        if stash is not None and stash.back is not None:
            self._wait(self._in, stash.back)
            del self._stashes[forward]

    def _wait(self, queue: EmulatedQueue, tickets: Sequence[Any]) -> None:
        for ticket in tickets:
            queue.wait(ticket)
            self._copied_s = max(self._copied_s, ticket.end_s)

    def made(self, forward: str, kept: list[torch.UntypedStorage]) -> None:
        """A forward that keeps so much; what leaves does so in the plan's order."""
        self._made[forward] = kept
        while self._started < len(self._leaving) and self._leaving[self._started] in self._made:
            leaving = self._leaving[self._started]
            self._stashes[leaving] = self._sent(leaving, self._made.pop(leaving))
            self._started += 1

    def _sent(self, forward: str, kept: list[torch.UntypedStorage]) -> _Stash:
        sizes = [each.nbytes() for each in kept]
        hosts = [self._host(forward, number, size) for number, size in enumerate(sizes)]
        tickets = [self._out.copy(host, _bytes_of(each)) for host, each in zip(hosts, kept, strict=True)]
        return _Stash(kept, hosts, tickets)

    def _host(self, forward: str, number: int, size_bytes: int) -> Tensor:
        key = forward, number, size_bytes
        if key not in self._hosts:
            self._hosts[key] = device_of(torch.device("cpu")).host_memory(size_bytes)
        return self._hosts[key]

    def _between(self, gone: Sequence[str], back: Sequence[str]) -> None:
        """Between two ops: what is to be gone goes, and then what is to come back has its memory again."""
        for forward in gone:
            stash = self._stashes[forward]
            self._wait(self._out, stash.out)
            self._held.gone(forward, stash.here)
            for storage in stash.here:
                storage.resize_(0)
        for forward in back:
            stash = self._stashes[forward]
            for storage, host in zip(stash.here, stash.there, strict=True):
                storage.resize_(host.numel())
            self._held.returned(forward, stash.here)
            pairs = zip(stash.here, stash.there, strict=True)
            stash.back = [self._in.copy(_bytes_of(storage), host) for storage, host in pairs]


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)


class OffloadingStage(CompressedStage):
    """As `CompressedStage`; what autograd saves of a forward leaves and returns from `travel` on."""

    def travel(self, offload: Offload, saved: Tally) -> None:
        """From now on as `offload` says; `saved`: who is watching what autograd saves."""
        self._offload, self._saved = offload, saved

    def _op(self, kind: str, micro_batch: int) -> Any:
        forward = op_name(self.stage_index, "F", micro_batch)
        return self._offload.op(op_name(self.stage_index, kind, micro_batch), forward)

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        """The forward; what it keeps begins to leave."""
        with self._op("F", fwd_chunk_id):
            forward = op_name(self.stage_index, "F", fwd_chunk_id)
            if forward not in self._offload.travels:
                return super().forward_one_chunk(fwd_chunk_id, *args, **options)
            with self._saved.noting() as noted:
                output = super().forward_one_chunk(fwd_chunk_id, *args, **options)
            (outputs, inputs) = self.fwd_cache[fwd_chunk_id]
            self._offload.made(forward, self._saved.own(noted, inputs if self.recomputes else (), outputs))
            return output

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Tensor | None = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """The backward, or its part for the input, once what was kept is back."""
        with self._op("B" if full_backward else "I", bwd_chunk_id):
            super().backward_one_chunk(
                bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
            )  # fmt: skip

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """The gradients of the weights."""
        with self._op("W", bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)
