"""What runs compressors: exchanges over a process group, by one rank alone, and from one rank to another.

How each compressor sends is said in `gapless.profiles.compressors`. Needs the extra `torch`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import Bucket, Exchange, Message, Method
from gapless.torch.library import rank_count, torch

if TYPE_CHECKING:
    from gapless.torch.ddp.emulation import Wire

__all__ = [
    "CodingTimes", "HopCompressor", "ModeErrors", "coding_times", "collective", "exchanged_together", "left_behind",
    "returned", "sent_together",
]  # fmt: skip


def collective(message: Message, group: torch.distributed.ProcessGroup | None) -> torch.Tensor:
    """The sum over ranks in place of the payload, this rank's share of it, or as rows the payloads of all ranks, or
    what each of them has for this one."""
    ranks, payload = rank_count(group), message.payload
    if message.collective == "all_reduce":
        if ranks > 1:
            torch.distributed.all_reduce(payload, group=group)
        return payload
    if message.collective == "reduce_scatter":
        if ranks == 1:
            return payload
        share = payload.new_empty(payload.numel() // ranks)
        newest = getattr(torch.distributed, "reduce_scatter_single", None)  # torch 2.13's name, as below
        (newest or torch.distributed.reduce_scatter_tensor)(share, payload, group=group)
        return share
    if ranks == 1:
        return payload.view(1, -1)
    if message.collective == "all_to_all":
        received = torch.empty_like(payload)
        torch.distributed.all_to_all_single(received, payload, group=group)
        return received.view(ranks, -1)
    gathered = payload.new_empty(ranks * payload.numel())
    renamed = getattr(torch.distributed, "all_gather_single", None)  # from torch 2.13 on, which warns of the old name
    (renamed or torch.distributed.all_gather_into_tensor)(gathered, payload, group=group)
    return gathered.view(ranks, -1)


def returned(exchange: Exchange, received: torch.Tensor) -> torch.Tensor:
    """What the exchange makes of what arrived last."""
    try:
        exchange.send(received)
    except StopIteration as end:
        return end.value
    raise InputError("mode: must end after its last message")


def exchanged_together(
    exchanges: Sequence[Exchange], group: torch.distributed.ProcessGroup | None, wire: Wire | None = None
) -> tuple[list[torch.Tensor], int]:
    """The means of several exchanges, whose messages are sent together, round by round; and the bytes sent.

    `wire`: an emulated one, on which each collective takes its time.
    """
    messages = [next(exchange) for exchange in exchanges]
    means: list[torch.Tensor] = [None] * len(exchanges)
    open_now, sent_bytes = list(range(len(exchanges))), 0
    while open_now:
        received, size_bytes = sent_together([messages[k] for k in open_now], group, wire)
        sent_bytes += size_bytes
        last = [messages[k].is_last for k in open_now]
        for k, is_last, arrived in zip(open_now, last, received, strict=True):
            if is_last:
                means[k] = returned(exchanges[k], arrived)
            else:
                messages[k] = exchanges[k].send(arrived)
        open_now = [k for k, is_last in zip(open_now, last, strict=True) if not is_last]
    return means, sent_bytes


def sent_together(
    messages: Sequence[Message], group: torch.distributed.ProcessGroup | None, wire: Wire | None
) -> tuple[list[torch.Tensor], int]:
    """What arrives of each, by one collective for all of a kind and type; and the bytes sent."""
    received: list[torch.Tensor] = [None] * len(messages)
    kinds = [(message.collective, message.payload.dtype) for message in messages]
    sent_bytes = 0
    for kind in dict.fromkeys(kinds):
        places = [place for place, other in enumerate(kinds) if other == kind]
        payloads = [messages[place].payload for place in places]
        shares = rank_count(group) if kind[0] == "all_to_all" else 1
        joined, begin_s = _joined(payloads, shares), time.monotonic()
        sent_bytes += joined.nbytes - (joined.nbytes // shares if kind[0] == "all_to_all" else 0)  # but its own share
        arrived = collective(Message(kind[0], joined), group)
        if wire is not None:
            wire.take(kind[0], joined.nbytes, begin_s)
        parts = arrived.split([len(payload) * arrived.shape[-1] // len(joined) for payload in payloads], dim=-1)
        for place, part in zip(places, parts, strict=True):
            received[place] = part.contiguous()
    return received, sent_bytes


def _joined(payloads: Sequence[torch.Tensor], ranks: int) -> torch.Tensor:
    """What goes to each rank, one after the other."""
    return torch.cat([payload.view(ranks, -1) for payload in payloads], dim=1).view(-1)


def left_behind(mode: str, gradient: torch.Tensor, memory: dict[str, Any], step: int = 0) -> float:
    """The squared norm of what a rank alone would not have sent of a gradient in a mode; `memory`: of that mode."""
    bucket = Bucket(gradient.reshape(-1).clone(), [tuple(gradient.shape)], 0, 1, 0, step, memory)
    exchange = method_of(mode).exchange(bucket)
    message = next(exchange)
    while not message.is_last:
        message = exchange.send(_alone(message))
    mean = returned(exchange, _alone(message))
    return float((gradient.reshape(-1) - mean.reshape(-1)).double().square().sum())


class ModeErrors:
    """What modes spoil of a layer's gradient: mean squared errors over the gradients that were looked at.

    Of a low rank it is the tail of the singular values, the least error of that rank, unless the mode is one of
    `measured`; of all other modes what sending leaves behind.
    """

    def __init__(self, modes: Sequence[str], measured: Sequence[str] = ()) -> None:
        self._modes, self._measured = tuple(modes), set(measured)
        self._memory: dict[str, dict[str, Any]] = {}
        self._number = 0
        self.begin()

    def begin(self) -> None:
        """Forget the errors, not what modes keep."""
        self._sums, self._looks = [0.0] * len(self._modes), 0

    def means(self) -> list[float]:
        """Of each mode, 0 where nothing was looked at."""
        return [total / max(self._looks, 1) for total in self._sums]

    def look(self, gradient: torch.Tensor) -> None:
        """Add a gradient's errors."""
        tails = None
        for place, mode in enumerate(self._modes):
            rank = method_of(mode).rank
            if rank and mode not in self._measured:
                if method_of(mode).is_factored(tuple(gradient.shape)):
                    tails = _tails(gradient) if tails is None else tails
                    self._sums[place] += float(tails[rank]) if rank < len(tails) else 0.0
            else:
                self._number += 1
                memory = self._memory.setdefault(mode, {})
                self._sums[place] += left_behind(mode, gradient, memory, self._number)
        self._looks += 1


def _tails(gradient: torch.Tensor) -> torch.Tensor:
    """Of the gradient as a matrix: `[r]` is the squared error of its best approximation of rank r."""
    squares = torch.linalg.svdvals(gradient.reshape(gradient.shape[0], -1).double()).square()
    return squares.flip(0).cumsum(0).flip(0)


@dataclass(frozen=True)
class CodingTimes:
    """What encoding a gradient and decoding the messages of all ranks took, of each repetition.

    `sent_bytes`: by a rank. What is computed between two messages counts as encoding.
    """

    mode: str
    encode_s: tuple[float, ...]
    decode_s: tuple[float, ...]
    sent_bytes: int

    @property
    def both_s(self) -> tuple[float, ...]:
        """Of each repetition."""
        return tuple(first + second for first, second in zip(self.encode_s, self.decode_s, strict=True))

    @property
    def median_s(self) -> float:
        """Of both together."""
        return statistics.median(self.both_s)


def coding_times(mode: str, shapes: Sequence[tuple[int, ...]], ranks: int, repeats: int, seed: int = 0) -> CodingTimes:
    """Measured in this process alone, after one run that doesn't count: messages of other ranks are copies of its own.

    Raises `InputError` for an unknown mode.
    """
    method, memory = method_of(mode), dict[str, Any]()
    generator = torch.Generator().manual_seed(seed)
    sizes = [torch.Size(shape).numel() for shape in shapes]
    gradient = torch.randn(sum(sizes), generator=generator)
    found: list[tuple[float, float, int]] = []
    for step in range(1 + repeats):
        bucket = Bucket(gradient.clone(), shapes, 0, ranks, 0, step, memory)
        begin_s = time.perf_counter()
        exchange = method.exchange(bucket)
        message = next(exchange)
        sent_bytes = message.payload.nbytes
        while not message.is_last:
            message = exchange.send(_from_all(message, ranks))
            sent_bytes += message.payload.nbytes
        encoded_s = time.perf_counter()
        returned(exchange, _from_all(message, ranks))
        found.append((encoded_s - begin_s, time.perf_counter() - encoded_s, sent_bytes))
    encode_s, decode_s, sent = zip(*found[1:], strict=True)
    return CodingTimes(mode, encode_s, decode_s, sent[0])


def _from_all(message: Message, ranks: int) -> torch.Tensor:
    """What arrives where all ranks send the same, or a first rank to all."""
    if message.collective == "all_to_all":
        return message.payload.view(ranks, -1)[:1].expand(ranks, -1)
    return message.payload if message.collective == "all_reduce" else message.payload.expand(ranks, -1)


def _alone(message: Message) -> torch.Tensor:
    """What arrives where there is one rank."""
    return message.payload if message.collective == "all_reduce" else message.payload.view(1, -1)


class HopCompressor:
    """Turns gradients of one shape into payloads and back, approximately, as they go from one rank to another.

    It may remember what helps with the next. Raises `InputError` for an unknown mode, or one that is only for sums.
    """

    def __init__(self, mode: str) -> None:
        self.method: Method = method_of(mode)
        if self.method.only_summed:
            raise InputError(f"mode: {mode!r} can't go from stage to stage: {self.method.only_summed}")
        self._memory: dict[str, Any] = {}

    def encode(self, gradient: torch.Tensor) -> torch.Tensor:
        """The payload, flat."""
        return self.method.encode(gradient, self._memory)

    def room(self, gradient: torch.Tensor) -> torch.Tensor:
        """Room for the payload of a gradient such as this."""
        return self.method.room(gradient)

    def decode(self, payload: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """What a payload stands for, in the shape of this gradient."""
        return self.method.decode(payload, gradient)
